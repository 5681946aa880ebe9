"""A token is a secret: whatever goes wrong, on either side, it stands nowhere but where it was put."""

import asyncio
import logging
import os
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import dhp_client
from dhpd.token_file import add_token
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import Refused, WireClient, frame

GUESS = "dhp_MARKER_a_token_that_nobody_knows"


class World:
    """A daemon that asks for a token, and all that has been said by it and to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "tokens.toml"
        self.token = add_token(self.file, "everything", ["admin"])
        self.daemon = DaemonProcess(
            folder / "data",
            listen=("127.0.0.1:0", f"unix:{folder}/dhpd.sock"),
            arguments=("--tokens", str(self.file)),
            env={"PYTHONASYNCIODEBUG": "1"},
        )
        self.said: list[str] = []

    @property
    def secrets(self) -> tuple[str, str]:
        return self.token, GUESS


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with made.daemon:
        yield made


def every_way_to_fail(world: World) -> None:
    """Each member of `hello` that could be wrong, with a token in it, and a token where none belongs. (Only an `op` is echoed.)"""
    for token in world.secrets:
        hello = {"op": "hello", "id": 1, "token": token}
        for members in (
            {"token": GUESS},
            {"tokn": token},
            {"token": [token]},
            {"token": {"x": token}},
            {"token": token * 40},
            {"session": token, "client": 5},
            {"id": [token]},
            {"op": "status", "handoff": token},
            {"op": "claim", "worker": "w", "kinds": [token]},
            {"op": "dispatch", "kind": "k", "inputs": {}, "handoff": token},
        ):
            tell(world, frame({**hello, **members}))
        text = frame(hello)
        tell(world, text.replace(b'"id": 1', b'"id":1,"token":"' + token.encode() + b'"'))  # Twice.
        tell(world, b"7" + text)  # A wrong length.
        tell(world, token.encode() + b"\n")
        tell(world, b'{"op":"hello","token":"' + token.encode() + b'\\ud800"}\n')
        tell(world, b'{"op":"hello","token":"' + token.encode() + b'\xff"}\n')
        tell(world, b'{"op":"hello","token":"' + token.encode() + b"\n")


def tell(world: World, data: bytes) -> None:
    with WireClient(world.daemon.tcp) as client:
        client.send_bytes(data)
        client.half_close()
        world.said.append(client.receive_until_closed().decode(errors="replace"))


async def clients_that_fail(world: World) -> None:
    for token in world.secrets:
        for settings in ({"token": token}, {"token": token, "name": "n" * 500}, {"token": token, "session": "s" * 500}):
            try:
                client = await dhp_client.connect(world.daemon.tcp, connect_timeout_ms=2_000, retry_ms=500, **settings)
                for call in (
                    client.status("0" * 64),
                    client.claim(kinds="x" * 300),
                    client.dispatch("k", {"x": 1e400}),
                ):
                    await call
            except Exception as error:
                note(world, error)
    client = await dhp_client.connect(world.daemon.tcp, token=world.token, retry_ms=300)
    world.daemon.kill()
    try:
        await client.list()
    except dhp_client.ClientError as error:
        note(world, error)
    world.said += [
        f"{client!r} {client._session!r} {client._session.connection!r}",
        str(vars(client._session.connection)),
    ]
    world.daemon.start()
    await client.close()


def note(world: World, error: BaseException) -> None:
    """An exception as logs and error reporters have it, with the reprs of what stood in its frames."""
    told = traceback.TracebackException.from_exception(error, capture_locals=False)
    world.said += ["".join(told.format()), repr(error), repr(getattr(error, "details", ""))]


def test_a_token_stands_nowhere_but_where_it_was_put(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    every_way_to_fail(world)
    asyncio.run(clients_that_fail(world), debug=True)
    told = with_commands(world)
    with WireClient(world.daemon.unix) as client:
        world.said += [str(client.call(op)) for op in ("stats", "health", "list")]
        handoff = client.dispatch()
        world.said.append(str(client.call("history", handoff=handoff)))
    with WireClient(world.daemon.tcp) as client:
        with pytest.raises(Refused):
            client.call("hello", token=GUESS)
        world.said.append(str(client.call("hello", token=world.token)))
    running = Path(f"/proc/{world.daemon.pid}/cmdline").read_text()
    information = (world.folder / "data" / "dhpd.json").read_text()
    world.daemon.terminate()
    with closing(sqlite3.connect(world.folder / "data" / "dhpd.sqlite")) as db:
        db.execute("pragma wal_checkpoint(truncate)")
    texts = [*world.said, *told, caplog.text, world.daemon.stderr, running, information]
    texts.append((world.folder / "data" / "dhpd.sqlite").read_bytes().decode("latin-1"))
    assert sum(map(len, texts)) > 20_000, "there was something to look through"
    for secret in world.secrets:
        for text in texts:
            assert secret not in text, f"{text[max(0, text.index(secret) - 300) :][:600]}"
    assert world.token not in world.file.read_text()


def with_commands(world: World) -> list[str]:
    """What the command says, and what everybody on the machine sees of it while it runs."""
    file = world.folder / "token"
    file.write_text(world.token)
    command = [sys.executable, "-m", "dhp_client.cli", "--connect", world.daemon.tcp]
    env = {**os.environ, "DHP_TOKEN_FILE": str(file)}
    seen = []
    with subprocess.Popen([*command, "watch"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as watching:
        assert watching.stdout is not None
        with WireClient(world.daemon.unix) as client:
            client.dispatch("seen")
            seen.append(Path(f"/proc/{watching.pid}/cmdline").read_text())
        watching.terminate()
        seen.append(watching.stdout.read().decode())
    refused = subprocess.run([*command, "list"], env={**os.environ, "DHP_TOKEN": GUESS}, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "This token isn't known here" in refused.stderr
    return [*seen, refused.stdout, refused.stderr]


def test_what_says_a_token_doesnt_show_it() -> None:
    connecting = dhp_client.connect("tcp://127.0.0.1:1", token=GUESS)
    assert GUESS not in f"{connecting!r} {connecting}"


async def test_a_file_may_hold_the_token(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(world.token + "\n")
    async with dhp_client.connect(world.daemon.tcp, token_file=file) as client:
        await client.list()
    monkeypatch.setenv("DHP_TOKEN_FILE", str(file))
    async with dhp_client.connect(world.daemon.tcp) as client:
        await client.list()
    monkeypatch.setenv("DHP_TOKEN", GUESS)  # What is said itself counts more than where it lies.
    with pytest.raises(dhp_client.Unauthenticated):
        await dhp_client.connect(world.daemon.tcp)
    with pytest.raises(dhp_client.TokenUnreadable, match="/none can't be read"):
        await dhp_client.connect(world.daemon.tcp, token_file="/none")
