"""Following records: in order, and none missed."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw

import dhp_client
from dhp_client.link import Link
from dhp_protocol.replies import LaggedEvent, RecordEvent, StatusReply, WatchReply
from tests.client.fake_daemon import HANDOFF, Connection, FakeDaemon
from tests.client.test_leases import status
from tests.client.waiting import until, until_async
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy


def record(position: int) -> RecordEvent:
    body = {"n": position, "position": position, "type": "checkpointed", "at": "", "fence": 1, "seq": position}
    return RecordEvent(handoff=HANDOFF, record=Raw(msgspec.json.encode(body)))


async def newest(client: dhp_client.Client) -> int:
    """A position to begin at: from 0 on, what others' tests have had forgotten is told of, too."""
    return (await client.stats()).position


async def test_records_come_as_they_happen(client: dhp_client.Client, kind: str) -> None:
    made = await client.dispatch(kind, {})
    async with client.watch(made.handoff, after=0) as events:
        first = await anext(events)
        assert (first.handoff, first.type, first.record["kind"]) == (made.handoff, "dispatched", kind)
        async with client.claim(made.handoff) as task:
            await task.checkpoint(1)
            await task.complete(2)
        rest = [await anext(events) for _ in range(3)]
    assert [event.type for event in rest] == ["claimed", "checkpointed", "completed"]
    assert [event.position for event in rest] == sorted(event.position for event in rest)
    assert events.position == rest[-1].position
    assert rest[1].record["seq"] == 1


async def test_without_after_only_what_comes_is_told(client: dhp_client.Client, kind: str) -> None:
    await client.dispatch(kind, {"n": 1})
    events = client.watch(kinds=kind)
    first = asyncio.ensure_future(anext(events))
    await until(lambda: events.position is not None)
    made = await client.dispatch(kind, {"n": 2})
    assert (await first).handoff == made.handoff
    await events.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_a_watch_misses_nothing_over_a_restart(daemon: DaemonProcess) -> None:
    async with dhp_client.connect(daemon.address) as client:
        made = [await client.dispatch("k", {"n": 0})]
        events = client.watch(kinds="k", after=0)
        seen = [(await anext(events)).handoff]
        for n in range(1, 3):
            await asyncio.to_thread(daemon.restart)
            made.append(await client.dispatch("k", {"n": n}))
            seen.append((await anext(events)).handoff)
        assert seen == [one.handoff for one in made]
        await events.aclose()


async def test_a_watch_misses_nothing_over_a_cut_line(
    daemon: DaemonProcess, proxy_to: Callable[[DaemonProcess], Proxy]
) -> None:
    proxy = proxy_to(daemon)
    async with dhp_client.connect(daemon.address) as other, dhp_client.connect(proxy.address) as client:
        events = client.watch(kinds="k", after=0)
        made = [await other.dispatch("k", {"n": 0})]
        seen = [(await anext(events)).handoff]
        proxy.cut()
        made += [await other.dispatch("k", {"n": n}) for n in range(1, 20)]
        proxy.mend()
        seen += [(await anext(events)).handoff for _ in range(1, 20)]
        assert seen == [one.handoff for one in made]
        await events.aclose()


async def test_what_is_gone_before_it_was_read_is_an_event_and_the_watch_goes_on_after_it(fake: FakeDaemon) -> None:
    async def watch(connection: Connection, request: Any) -> WatchReply:
        asyncio.get_running_loop().call_soon(tell, connection, request)
        return WatchReply(position=10)

    def tell(connection: Connection, request: Any) -> None:
        if len(fake.of("watch")) == 1:
            connection.event(record(11))
            connection.event(LaggedEvent(after=11, lost="events"))
            connection.event(LaggedEvent(after=12))
            connection.drop()
        else:
            connection.event(record(14))

    async def tell_status(connection: Connection, request: Any) -> StatusReply:
        return status("running", 1)

    fake.answers |= {"watch": watch, "status": tell_status}
    async with dhp_client.connect(fake.address) as client:
        events = client.watch(HANDOFF)
        seen = [await anext(events) for _ in range(3)]
        assert [(one.position, one.type == "lagged") for one in seen] == [(11, False), (12, True), (14, False)]
        await events.aclose()
    first, second = fake.of("watch")
    assert first.after is msgspec.UNSET
    assert second.after == 12
    assert second.handoff == HANDOFF


async def test_a_slow_reader_holds_back_the_daemon_and_not_the_other_calls(
    client: dhp_client.Client, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dhp_client.watching.MAX_UNREAD", 10)
    events = client.watch(kinds=kind, after=await newest(client))
    made = [await client.dispatch(kind, {"n": 0})]
    seen = [(await anext(events)).handoff]
    made += await asyncio.gather(*(client.dispatch(kind, {"n": n}) for n in range(1, 300)))
    await client.ping()
    seen += [(await anext(events)).handoff for _ in range(1, 300)]
    assert sorted(seen) == sorted(one.handoff for one in made)
    await events.aclose()


async def test_a_watch_that_is_left_or_forgotten_ends_its_connection(client: dhp_client.Client, kind: str) -> None:
    start = await newest(client)
    await client.dispatch(kind, {})
    before = (await client.stats()).connections

    async def look_once() -> None:
        async for event in client.watch(kinds=kind, after=start):
            assert event.type == "dispatched"
            break

    async def as_before() -> bool:
        return (await client.stats()).connections == before

    await look_once()
    gc.collect()
    await until_async(as_before)


async def test_what_cannot_be_watched_is_told(client: dhp_client.Client) -> None:
    with pytest.raises(dhp_client.DHPError):
        await anext(client.watch(kinds="not a kind"))
    with pytest.raises(dhp_client.NotFound):
        await anext(client.watch("0" * 64))
    with pytest.raises(dhp_client.InvalidRequest, match="kinds="):
        client.watch("count")


async def test_a_watch_gives_up_when_no_daemon_is_to_be_reached_for_long(fake: FakeDaemon) -> None:
    async def watch(connection: Connection, request: Any) -> WatchReply:
        return WatchReply(position=0)

    fake.answers["watch"] = watch
    async with dhp_client.connect(fake.address, retry_ms=200) as client:
        events = client.watch()
        waiting = asyncio.ensure_future(anext(events))
        await until(lambda: fake.of("watch"))
        await fake.vanish()
        with pytest.raises(dhp_client.NotConnected):
            await waiting


async def test_a_watch_whose_peer_vanished_without_a_word_goes_on_over_another_line(
    daemon: DaemonProcess, proxy_to: Callable[[DaemonProcess], Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dhp_client.link.SILENCE_MS", 200)
    proxy = proxy_to(daemon)
    async with dhp_client.connect(daemon.address) as other, dhp_client.connect(proxy.address) as client:
        made = [await other.dispatch("k", {"n": 0})]
        events = client.watch(kinds="k", after=0)
        seen = [(await anext(events)).handoff]
        proxy.silence()
        made.append(await other.dispatch("k", {"n": 1}))
        waiting = asyncio.ensure_future(anext(events))
        await until(lambda: proxy.swallowed)
        proxy.mend()
        seen.append((await asyncio.wait_for(waiting, 20)).handoff)
        assert seen == [one.handoff for one in made]
        await events.aclose()


async def test_a_watch_that_is_never_answered_is_asked_for_again(
    fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dhp_client.link.SILENCE_MS", 50)

    async def watch(connection: Connection, request: Any) -> WatchReply | None:
        if len(fake.of("watch")) == 1:
            fake.answers["ping"] = silence
            return None
        connection.event(record(1))
        return WatchReply(position=0)

    async def silence(connection: Connection, request: Any) -> None:
        return None

    fake.answers["watch"] = watch
    async with dhp_client.connect(fake.address) as client:
        events = client.watch()
        assert (await asyncio.wait_for(anext(events), 20)).position == 1
        await events.aclose()


async def test_a_reader_that_holds_back_the_daemon_for_long_is_no_silent_peer(
    client: dhp_client.Client, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dhp_client.link.SILENCE_MS", 50)
    monkeypatch.setattr("dhp_client.watching.MAX_UNREAD", 2)
    events = client.watch(kinds=kind, after=await newest(client))
    made = [await client.dispatch(kind, {"n": 0})]
    seen = [(await anext(events)).handoff]
    made += [await client.dispatch(kind, {"n": n}) for n in range(1, 10)]
    assert events._feed is not None
    link = events._feed._link
    assert link is not None
    await until(lambda: link._reading_paused)
    held_back = asyncio.Event()
    asyncio.get_running_loop().call_later(0.5, held_back.set)
    await held_back.wait()
    assert not link.ended
    seen += [(await anext(events)).handoff for _ in range(1, 10)]
    assert seen == [one.handoff for one in made]
    await events.aclose()


async def test_the_connections_that_a_watch_has_had_leave_nothing_behind(fake: FakeDaemon) -> None:
    async def watch(connection: Connection, request: Any) -> WatchReply:
        asyncio.get_running_loop().call_soon(connection.event, record(len(fake.of("watch"))))
        return WatchReply(position=0)

    fake.answers["watch"] = watch
    links: list[weakref.ref[Link]] = []
    async with dhp_client.connect(fake.address) as client:
        events = client.watch()
        for _ in range(5):
            await anext(events)
            assert events._feed is not None
            assert events._feed._link is not None
            links.append(weakref.ref(events._feed._link))
            fake.connections[-1].drop()
        await events.aclose()
        await until(lambda: gc.collect() >= 0 and not any(link() for link in links))
