"""A person's decision comes in by a session of its own, never by that of whoever asked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import dhp_client
from dhp_client import AlreadyDecided, Forbidden, NotAnApprover, TokenUnreadable, Unauthenticated
from dhp_client.persons import Approver, approver_beside
from dhpd.token_file import add_token
from tests.support.daemon_process import DaemonProcess

LONG_MS = 600_000


class Guarded:
    """A daemon with tokens, each in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tokens = folder / "tokens.toml"
        for name, role in (("worker", "worker"), ("boss", "approver"), ("reader", "reader")):
            (folder / name).write_text(add_token(tokens, name, [role, "dispatcher"] if name == "worker" else [role]))
        self.process = DaemonProcess(folder / "data", arguments=("--tokens", str(tokens)))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    with made.process:
        yield made


async def test_a_decision_comes_in_by_a_session_of_its_own(shared_daemon: DaemonProcess, kind: str) -> None:
    approver = approver_beside(shared_daemon.address, name="Ada")
    assert approver is not None
    async with dhp_client.connect(shared_daemon.address, name="worker") as client:
        await approver.check()
        await client.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:
            asked = await task.ask("pay", {"usd": 5}, timeout_ms=LONG_MS)
            assert await task.ask("pay", {"usd": 5}, timeout_ms=LONG_MS) == asked
            with pytest.raises(Forbidden):
                await client.approve(asked)
            decided = await approver.approve(asked, "fine")
            assert (decided.decision, decided.by, decided.note) == ("approved", "Ada", "fine")
            assert (await task.approval("pay", {"usd": 5}, timeout_ms=LONG_MS)).approval == asked
            with pytest.raises(AlreadyDecided):
                await approver.deny(asked)
            await task.complete(None)


async def test_with_tokens_it_takes_an_approvers(guarded: Guarded, kind: str) -> None:
    address, folder = guarded.process.address, guarded.folder
    assert approver_beside(address, token_file=folder / "worker") is None
    approver = approver_beside(address, token_file=folder / "worker", approver_token_file=folder / "boss")
    assert approver is not None
    await approver.check()
    async with dhp_client.connect(address, token_file=folder / "worker") as client:
        assert client.roles == ("dispatcher", "worker")
        await client.dispatch(kind, {})
        async with client.claim(kinds=kind) as task:
            asked = await task.ask("pay", timeout_ms=LONG_MS)
            assert (await approver.deny(asked)).by == "boss"
            await task.release()


async def test_a_token_that_can_bring_in_no_decision_is_told_before_anybody_decides(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, folder = guarded.process.address, guarded.folder
    with pytest.raises(NotAnApprover, match="one of their own"):
        approver_beside(address, token_file=folder / "worker", approver_token_file=folder / "worker")
    reader = approver_beside(address, token_file=folder / "worker", approver_token_file=folder / "reader")
    assert reader is not None
    with pytest.raises(NotAnApprover, match="role approver"):
        await reader.check()
    with pytest.raises(TokenUnreadable):
        approver_beside(address, approver_token_file=folder / "none")
    # The environment's token is the worker's: nobody decides under it.
    monkeypatch.setenv("DHP_TOKEN", (folder / "boss").read_text())
    assert approver_beside(address) is None
    with pytest.raises(Unauthenticated):
        await Approver(address, token=None, name="Ada").check()
