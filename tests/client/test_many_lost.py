"""Many leases lost at once, as after a long outage: the living ones stay alive, and the loss is learned in good order."""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dhp_client.addresses import SocketAddress, parse_addresses
from dhp_client.blocking import connect_blocking
from dhp_client.clock import monotonic_ms
from dhp_client.keepalive import KeepAlive
from dhp_client.leases import Lease, LeaseTable, Phase
from dhp_protocol.messages import Hello
from dhp_protocol.replies import HeartbeatReply
from tests.client.fake_daemon import Connection, FakeDaemon
from tests.client.test_leases import status
from tests.client.waiting import until

_numbers = itertools.count(1)


def lease(number: int, ttl_ms: int = 600) -> Lease:
    return Lease(
        handoff=f"{number:064x}",
        fence=1,
        ttl_ms=ttl_ms,
        heartbeat_ms=ttl_ms / 3,
        in_doubt_ms=60_000,
        deadline_ms=monotonic_ms() + ttl_ms,
    )


LIVING = f"{0:064x}"


async def renews_one(connection: Connection, request: Any) -> HeartbeatReply:
    asked = [lease.handoff for lease in request.leases]
    return HeartbeatReply(
        renewed=[handoff for handoff in asked if handoff == LIVING],
        lost=[handoff for handoff in asked if handoff != LIVING],
    )


@pytest.fixture
async def keep_alive() -> AsyncIterator[Callable[[str, LeaseTable], KeepAlive]]:
    """Starts keep-alives that are gone after the test."""
    made: list[KeepAlive] = []

    def start(address: str, table: LeaseTable) -> KeepAlive:
        loop = asyncio.get_running_loop()
        hello = Hello(client="", session=f"many-{next(_numbers)}")
        made.append(KeepAlive(parse_addresses(address), table, hello=hello, loop=loop))
        made[-1].start()
        return made[-1]

    yield start
    for keepalive in made:
        keepalive.stop(release=False)
        await asyncio.to_thread(keepalive.join, 20_000)


def table_of(leases: list[Lease]) -> LeaseTable:
    table = LeaseTable()
    for one in leases:
        table.add(one)
    return table


async def test_lost_leases_are_asked_about_a_few_at_a_time_and_once(
    fake: FakeDaemon, keep_alive: Callable[[str, LeaseTable], KeepAlive]
) -> None:
    answer = asyncio.Event()

    async def later(connection: Connection, request: Any) -> Any:
        await answer.wait()
        return status("running", 3)

    fake.answers |= {"heartbeat": renews_one, "status": later}
    leases = [lease(number) for number in range(200)]
    keep_alive(fake.address, table_of(leases))
    await until(lambda: len(fake.of("heartbeat")) > 2)
    assert len(fake.of("status")) == 64, "the others wait, and no beat asks again"
    answer.set()
    await until(lambda: all(one.lost is not None for one in leases[1:]))
    assert len(fake.of("hello")) == 1
    assert len(fake.of("status")) == 199
    assert leases[0].phase(monotonic_ms()) is Phase.HELD


async def test_a_daemon_that_reads_on_only_when_its_answers_were_read_is_no_deadlock(
    fake: FakeDaemon, keep_alive: Callable[[str, LeaseTable], KeepAlive], monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect_narrowly(address: SocketAddress, timeout_ms: float) -> socket.socket:
        connected = connect_blocking(address, timeout_ms)
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            connected.setsockopt(socket.SOL_SOCKET, buffer, 65_536)
        return connected

    monkeypatch.setattr("dhp_client.keepalive.connect_blocking", connect_narrowly)
    fake.in_turn = True
    leases = [lease(number, ttl_ms=30_000) for number in range(25_000)]
    deadlines_ms = [one.deadline_ms for one in leases]
    keep_alive(fake.address, table_of(leases))
    await until(lambda: len(fake.of("heartbeat")) >= 3)
    await until(lambda: all(one.deadline_ms > was_ms for one, was_ms in zip(leases, deadlines_ms, strict=True)))
    assert len(fake.of("hello")) == 1
