"""The client with a token: said on every connection, shown nowhere, and refusals that are told instead of tried again."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dhp_client
from dhp_client import Forbidden, LeaseLost, Unauthenticated
from dhpd.token_file import add_token
from tests.support.daemon_process import DaemonProcess

NEVER_MS = 600_000
"""Who tries again for so long has to be told to stop."""


class Guarded:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "tokens.toml"
        self.admin = add_token(self.file, "admin", ["admin"])
        self.worker = add_token(self.file, "worker", ["worker", "dispatcher"])
        self.reader = add_token(self.file, "reader", ["reader"])
        self.process = DaemonProcess(folder / "data", arguments=("--tokens", str(self.file)))

    @property
    def address(self) -> str:
        return self.process.address

    def take_out(self, name: str) -> None:
        """The token is gone, and the daemon knows it soon."""
        tables = self.file.read_text().split("[[token]]")
        draft = self.file.with_suffix(".new")
        draft.write_text("[[token]]".join(table for table in tables if f'"{name}"' not in table))
        draft.replace(self.file)
        os.kill(self.process.pid, signal.SIGHUP)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    with made.process:
        yield made
    assert "Traceback" not in made.process.stderr


async def test_a_token_is_said_on_every_connection(guarded: Guarded) -> None:
    async with dhp_client.connect(guarded.address, token=guarded.worker) as client:
        handoff = (await client.dispatch("work", {})).handoff
        watch = client.watch(handoff, after=0)
        async with client.claim(handoff, ttl_ms=1_500) as task:
            # Renewed by the keep-alive's own connection: for longer than its ttl, seen from outside.
            for _ in range(3):
                await client.result(handoff, wait_ms=1_000)
            await task.complete({"done": True})
        assert [(await anext(watch)).type for _ in range(3)] == ["dispatched", "claimed", "completed"]
        await watch.aclose()


async def test_a_token_outlives_a_restart_of_the_daemon(guarded: Guarded) -> None:
    async with dhp_client.connect(guarded.address, token=guarded.worker) as client:
        handoff = (await client.dispatch("work", {})).handoff
        guarded.process.restart()
        assert (await client.status(handoff)).status == "pending"


@pytest.mark.parametrize(
    ("token", "told"),
    [(None, r"give token=, \$DHP_TOKEN, or --token-file"), ("a guess", "This token isn't known here")],
)
async def test_without_a_good_token_connecting_fails_at_once_and_says_what_to_give(
    guarded: Guarded, token: str | None, told: str
) -> None:
    with pytest.raises(Unauthenticated, match=told):
        await dhp_client.connect(guarded.address, token=token, connect_timeout_ms=NEVER_MS)


async def test_the_environment_may_hold_the_token(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DHP_TOKEN", guarded.reader)
    async with dhp_client.connect(guarded.address) as client:
        await client.list()
        with pytest.raises(Forbidden):
            await client.dispatch("work", {})
    async with dhp_client.connect(guarded.address, token=guarded.worker) as client:
        await client.dispatch("work", {})


async def test_a_daemon_that_asks_for_no_token_takes_one(
    shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DHP_TOKEN", "for another daemon")
    async with dhp_client.connect(shared_daemon.address) as client:
        await client.list()


async def test_what_the_role_forbids_is_raised_and_not_tried_again(guarded: Guarded) -> None:
    async with dhp_client.connect(guarded.address, token=guarded.reader, retry_ms=NEVER_MS) as client:
        with pytest.raises(Forbidden) as refused:
            await client.claim(kinds="work", wait_ms=NEVER_MS)
        assert refused.value.details["role"] == "worker"


async def test_another_tokens_session_is_forbidden_at_once(guarded: Guarded) -> None:
    async with dhp_client.connect(guarded.address, token=guarded.worker) as client:
        with pytest.raises(Forbidden):
            await dhp_client.connect(
                guarded.address, token=guarded.reader, session=client.session, connect_timeout_ms=NEVER_MS
            )


async def test_a_token_that_is_taken_away_ends_the_client(guarded: Guarded) -> None:
    async with dhp_client.connect(guarded.address, token=guarded.worker, retry_ms=NEVER_MS) as client:
        handoff = (await client.dispatch("work", {})).handoff
        await client.claim(handoff)
        guarded.take_out("worker")
        with pytest.raises((Unauthenticated, Forbidden)):
            await client.claim(kinds="nothing", wait_ms=NEVER_MS)
        for _ in range(2):
            with pytest.raises(Unauthenticated):
                await client.status(handoff)


async def test_a_token_that_is_taken_away_cancels_the_work(guarded: Guarded) -> None:
    async with dhp_client.connect(guarded.address, token=guarded.worker, in_doubt_ms=NEVER_MS) as client:
        handoff = (await client.dispatch("work", {})).handoff
        with pytest.raises(LeaseLost) as lost:
            await lose_the_token_at_work(guarded, client, handoff)
        assert lost.value.details["why"] == "unauthenticated"


async def lose_the_token_at_work(guarded: Guarded, client: dhp_client.Client, handoff: str) -> None:
    async with client.claim(handoff):
        guarded.take_out("worker")
        await asyncio.Event().wait()


def test_the_sync_client_takes_a_token(guarded: Guarded) -> None:
    with dhp_client.sync.connect(guarded.address, token=guarded.worker) as client:
        client.dispatch("work", {})
    with pytest.raises(Unauthenticated):
        dhp_client.sync.connect(guarded.address, token="a guess", connect_timeout_ms=NEVER_MS)


FORGETFUL = """
import sys, dhp_client
client = dhp_client.sync.connect(sys.argv[1], token=sys.argv[2])
task = client.claim(sys.argv[3], ttl_ms=600_000)
print(task.fence)
"""


async def test_a_program_that_ends_gives_back_what_it_held(guarded: Guarded) -> None:
    async with dhp_client.connect(guarded.address, token=guarded.worker) as client:
        handoff = (await client.dispatch("work", {})).handoff
        command = [sys.executable, "-c", FORGETFUL, guarded.address, guarded.worker, handoff]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, timeout=60)
        assert [record["type"] for record in (await client.history(handoff)).records][-1] == "released"


async def test_the_token_is_shown_nowhere(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    connecting = dhp_client.connect(guarded.address, token=guarded.worker)
    client = await connecting
    session = client._session
    shown: list[Any] = [connecting, client, session, session.connection]
    handoff = (await client.dispatch("work", {})).handoff
    task = await client.claim(handoff)
    assert session.keepalive is not None
    shown += [task, session.keepalive, session.keepalive._hello]
    guarded.take_out("worker")
    with pytest.raises((Unauthenticated, Forbidden)) as refused:
        await client.claim(kinds="nothing", wait_ms=NEVER_MS)
    shown.append(refused.value)
    await client.close()
    assert all(guarded.worker not in f"{thing!r} {thing}" for thing in shown)
    assert guarded.worker not in caplog.text


async def test_a_token_that_is_no_text_is_a_mistake_that_does_not_show_it(guarded: Guarded) -> None:
    with pytest.raises(TypeError) as wrong:
        await dhp_client.connect(guarded.address, token=b"secret")  # type: ignore[arg-type]
    assert "secret" not in str(wrong.value)


@pytest.mark.parametrize("where", ["before", "after", "environment"])
def test_the_command_takes_a_token_from_a_file_or_the_environment(guarded: Guarded, tmp_path: Path, where: str) -> None:
    file = tmp_path / "token"
    file.write_text(guarded.reader + "\n")
    option = ["--token-file", str(file)]
    arguments = {"before": [*option, "list"], "after": ["list", *option], "environment": ["list"]}[where]
    env = {**os.environ, **({"DHP_TOKEN": guarded.reader} if where == "environment" else {})}
    ended = run_dhp(guarded, arguments, env)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [(["list"], 1, "token"), (["list", "--token-file", "/none"], 2, "/none")],
)
def test_the_command_says_what_is_wrong_with_a_token(
    guarded: Guarded, arguments: list[str], code: int, said: str
) -> None:
    ended = run_dhp(guarded, arguments, dict(os.environ))
    assert ended.returncode == code
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def run_dhp(guarded: Guarded, arguments: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dhp_client.cli", *arguments]
    env = {**env, "DHP_CONNECT": guarded.address}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
