"""Moving work between daemons with the clients."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

import dhp_client
from dhp_client import sync
from dhp_client.exceptions import IntegrityError
from dhp_protocol.errors import InvalidRequest, WrongState
from dhp_protocol.replies import ExportReply
from tests.support.daemon_process import DaemonProcess
from tests.support.proxy import Proxy

ProxyTo = Callable[[DaemonProcess], Proxy]


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[dhp_client.Client]:
    """A client of another daemon."""
    with DaemonProcess(tmp_path / "other") as daemon:
        async with dhp_client.connect(daemon.address) as client:
            yield client


async def half_done(client: dhp_client.Client, kind: str, *, state: object = None) -> str:
    handoff = (await client.dispatch(kind, {"x": 1})).handoff
    task = await client.claim(handoff)
    assert task is not None
    await task.checkpoint({"at": 1})
    await task.checkpoint(state or {"at": 2})
    return handoff


async def test_work_goes_on_elsewhere(client: dhp_client.Client, other: dhp_client.Client, kind: str) -> None:
    handoff = await half_done(client, kind)
    bundle = await client.export(handoff)
    assert bundle.endswith(b"}\n")
    reply = await other.import_(bundle)
    assert (reply.handoff, reply.created) == (handoff, True)
    assert (await other.import_(bundle)).created is False
    with pytest.raises(WrongState):
        await client.resume(handoff)
    await other.resume(handoff)
    async with other.claim(handoff) as task:
        assert task.state == {"at": 2}
        await task.complete({"done": True})
    back = await client.import_((await other.export(handoff)).splitlines())
    assert (back.created, back.taken) == (False, 3)
    assert (await client.result(handoff)).result == {"done": True}


async def test_a_long_bundle_goes_in_parts(client: dhp_client.Client, other: dhp_client.Client, kind: str) -> None:
    handoff = await half_done(client, kind, state={"text": "x" * 3_000_000})
    bundle = await client.export(handoff)
    assert len(bundle) > 3_000_000
    assert (await other.import_(bundle)).created
    checkpoint = await other.last_checkpoint(handoff)
    assert checkpoint is not None
    assert checkpoint.state == {"text": "x" * 3_000_000}


async def test_a_bundle_whose_arrival_is_not_answered_is_told_as_arrived(
    client: dhp_client.Client, kind: str, tmp_path: Path, proxy_to: ProxyTo
) -> None:
    handoff = await half_done(client, kind)
    with DaemonProcess(tmp_path / "other") as daemon:
        proxy = proxy_to(daemon)
        async with dhp_client.connect(proxy.address) as other:
            bundle = await client.export(handoff)
            proxy.lose_answer_to("import")
            arrived = await other.import_(bundle)
            assert (proxy.lost, arrived.created) == (1, True)
            assert arrived.taken == len(bundle.splitlines()) - 2, "all but the envelope and the trailer"
            again = await other.import_(bundle)
            assert (again.created, again.taken) == (False, 0)

            await client.resume(handoff, force=True)
            async with client.claim(handoff) as task:
                await task.checkpoint({"at": 3})
                await task.complete(None)
            longer = await client.export(handoff)
            proxy.lose_answer_to("import")
            extended = await other.import_(longer)
            assert (proxy.lost, extended.created) == (2, False)
            assert extended.taken == len(longer.splitlines()) - len(bundle.splitlines())
            proxy.lose_answer_to("import")
            once_more = await other.import_(longer)
            assert (proxy.lost, once_more.created, once_more.taken) == (3, False, 0)


async def test_several_imports_at_once_do_not_mix(
    client: dhp_client.Client, other: dhp_client.Client, kind: str
) -> None:
    bundles = [await client.export(await half_done(client, f"{kind}-{number}")) for number in range(4)]
    replies = await asyncio.gather(*(other.import_(bundle) for bundle in bundles))
    assert all(reply.created for reply in replies)


@pytest.mark.parametrize("damage", ["changed", "cut off", "no JSON", "nothing"])
async def test_a_damaged_bundle_is_refused_by_its_line(client: dhp_client.Client, kind: str, damage: str) -> None:
    lines = (await client.export(await half_done(client, kind))).splitlines()
    wrong = 3
    match damage:
        case "changed":
            lines[2] = lines[2].replace(b'"attempt":1', b'"attempt":2')
        case "cut off":
            wrong = len(lines)
            lines.pop()
        case "no JSON":
            lines[2] = lines[2][:-9]
        case "nothing":
            lines, wrong = [], 1
    with pytest.raises(InvalidRequest) as caught:
        await client.import_(lines)
    assert caught.value.details["line"] == wrong


async def test_an_export_that_was_changed_on_the_way_is_noticed(
    client: dhp_client.Client, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handoff = await half_done(client, kind)
    connection = client._session.connection
    honest = connection.call

    async def lying(make, shape):  # type: ignore[no-untyped-def]
        reply = await honest(make, shape)
        return ExportReply(records=reply.records[:1] + reply.records[2:], next=None) if shape is ExportReply else reply

    monkeypatch.setattr(connection, "call", lying)
    with pytest.raises(IntegrityError):
        await client.export(handoff)


def test_the_sync_client_does_the_same(tmp_path: Path, kind: str) -> None:
    with (
        DaemonProcess(tmp_path / "a") as first,
        DaemonProcess(tmp_path / "b") as second,
        sync.connect(first.address) as client,
        sync.connect(second.address) as other,
    ):
        handoff = client.dispatch(kind, {}).handoff
        assert other.import_(client.export(handoff)).created
        assert other.status(handoff).reason == "imported"
