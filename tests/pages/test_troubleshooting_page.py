"""The page on what goes wrong: a daemon is brought into each state, and answers as printed; no error and no exit code is left out.

`dhp` runs in this process, as a function; the quick start runs the real command.
"""

import contextlib
import errno
import itertools
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import dhp_client
from dhp_client.cli.main import exit_code
from dhp_protocol.errors import ERROR_BY_CODE
from dhpd.store import schema
from dhpd.token_file import add_token

from ..support.daemon_process import DaemonProcess
from ..support.fault_shim import Calls, FaultShim, compiled
from ..support.wire_client import WireClient
from .blocks import ROOT, every_block, table
from .terminals import PRINTED_PORT, fits, steps

PAGE = "docs/troubleshooting.md"
TEXT = (ROOT / PAGE).read_text()
LISTEN = ("unix:./dhpd.sock", f"127.0.0.1:{PRINTED_PORT}")


class Stage:
    """The daemon, and the directory in which commands are typed."""

    def __init__(self, folder: Path, daemon: DaemonProcess, shim: FaultShim, client: WireClient) -> None:
        self.folder = folder
        self.daemon = daemon
        self.shim = shim
        self.client = client

    def set(self) -> None:
        """Work in every state that the page begins with."""
        client, work = self.client, self.client.dispatch
        work("report", inputs={"month": "May"})
        dead = work("parse", inputs={"page": 12}, budget={"max_attempts": 1})
        held = {"handoff": dead, "fence": client.claim("parse", worker="parser-1")["fence"]}
        client.call("checkpoint", **held, state={"line": 40})
        client.call("fail", **held, error={"type": "BadPage", "message": "no title"})
        asking = work("payment", inputs={"to": "Ada"})
        held = {"handoff": asking, "fence": client.claim("payment", worker="payer")["fence"]}
        question = {"action": "pay", "details": {"to": "Ada", "usd": 900}, "timeout_ms": 86_400_000}
        approval = client.call("approval_request", **held, **question)["approval"]
        client.call("suspend", **held, approval=approval)
        work("train", inputs={"on": "whales"})
        client.claim("train", worker="gpu-3", ttl_ms=3_600_000)
        doubtful = work("order", inputs={"number": 4711})
        held = {"handoff": doubtful, "fence": client.claim("order")["fence"]}
        client.call("effect_begin", **held, step="charge")
        client.call("fail", **held, error={"type": "ConnectionError", "message": "the line went dead"}, delay_ms=0)
        (self.folder / "reader.token").write_text(add_token(self.folder / "tokens.toml", "reader", ["reader"]))

    @contextlib.contextmanager
    def newer_store(self) -> Iterator[None]:
        (self.folder / "newer").mkdir()
        with contextlib.closing(sqlite3.connect(self.folder / "newer" / "dhpd.sqlite")) as db:
            db.executescript(
                f"create table t (x); pragma application_id = {schema.APPLICATION_ID}; pragma user_version = 99;"
            )
        yield

    @contextlib.contextmanager
    def broken_store(self) -> Iterator[None]:
        """A page of the file holds something else."""
        (self.folder / "broken").mkdir()
        backup = self.folder / "broken" / "dhpd.sqlite"
        with contextlib.closing(sqlite3.connect(self.daemon.data / "dhpd.sqlite")) as db:
            db.execute("vacuum into ?", [str(backup)])
        with backup.open("r+b") as file:
            file.seek(4096)
            file.write(b"x" * 4096)
        yield

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        with self.shim.fails(Calls.ALLOCATE, "/dhpd.ballast", errno.ENOSPC):
            with self.shim.fails(Calls.WRITE, "-wal", errno.ENOSPC, most=1):
                self.client.reply(self.client.send("dispatch", kind="filling", inputs={}))
            while self.client.call("health")["status"] != "disk_full":
                pass
            message = self.client.refused("dispatch", kind="filling", inputs={}).error["message"]
            assert message in " ".join(TEXT.split())
            yield
        while self.client.call("health")["status"] != "ok":
            pass


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    library = compiled(tmp_path)
    if library is None:
        pytest.skip("there is no C compiler to make the shim with")
    shim = FaultShim(library, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DHP_CONNECT", "unix:./dhpd.sock")
    monkeypatch.delenv("DHP_TOKEN", raising=False)
    monkeypatch.delenv("DHP_TOKEN_FILE", raising=False)
    add_token(tmp_path / "tokens.toml", "workers", ["worker"])
    listen = [address.replace(PRINTED_PORT, "0") for address in LISTEN]
    env = {**shim.env, "DHPD_BALLAST_BYTES": str(1024 * 1024)}
    with (
        DaemonProcess(Path("data"), listen=listen, arguments=["--tokens", "tokens.toml"], env=env) as daemon,
        WireClient(daemon.unix) as client,
    ):
        staged = Stage(tmp_path, daemon, shim, client)
        staged.set()
        yield staged


class Typist:
    """Types commands on the stage: `dhp` is a function, all else goes to a shell."""

    def __init__(self, stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = stage.folder
        self._port = str(stage.daemon.port)
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self._code = 0

    def answer(self, command: str) -> str:
        """What it writes, on both outputs."""
        if command == "echo $?":
            return f"{self._code}\n"
        command = command.replace(PRINTED_PORT, self._port)
        words = shlex.split(command)
        variables = dict(word.split("=", 1) for word in itertools.takewhile(ASSIGNMENT.match, words))
        name, *arguments = words[len(variables) :]
        said = self._run_dhp(arguments, variables) if name == "dhp" else self._run(command)
        return said.replace(self._port, PRINTED_PORT)

    def _run_dhp(self, arguments: list[str], variables: dict[str, str]) -> str:
        self._capsys.readouterr()
        with self._monkeypatch.context() as changed:
            for variable, value in variables.items():
                changed.setenv(variable, value)
            self._code = exit_code(arguments)
        return "".join(self._capsys.readouterr())

    def _run(self, command: str) -> str:
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        self._code = ran.returncode
        return ran.stdout


ASSIGNMENT = re.compile(r"[A-Z_]+=")


def test_each_state_is_told_as_printed(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started, *blocks = every_block(PAGE)
    options = [word for address in LISTEN for word in ("--listen", address)]
    assert started.text == f"$ dhpd --data ./data {' '.join(options)} --tokens tokens.toml\n"
    states: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "The store is of a newer version": stage.newer_store,
        "The store is broken": stage.broken_store,
        "Its disk is full": stage.full_disk,
    }
    typist = Typist(stage, capsys, monkeypatch)
    for it in blocks:
        with states.get(it.section, contextlib.nullcontext)():
            for step in steps(it.text):
                said = typist.answer(step.typed)
                assert fits(said, step.printed), f"{it}: {step.typed}\n{said}"


def test_every_error_that_a_daemon_answers_is_told() -> None:
    assert {row[0].strip("`"): row[1].strip("`") for row in table(TEXT, "Error codes")} == {
        code: error.__name__ for code, error in ERROR_BY_CODE.items()
    }


def test_every_error_of_the_clients_own_is_told() -> None:
    told = {name for row in table(TEXT, "The client's own errors") for name in re.findall(r"`(\w+)`", row[0])}
    exceptions = [getattr(dhp_client, name) for name in dhp_client.__all__]
    assert told == {
        error.__name__ for error in exceptions if isinstance(error, type) and issubclass(error, dhp_client.ClientError)
    }


def test_every_why_of_a_lost_lease_is_told() -> None:
    (rule,) = re.findall(r"^\| the fence is \| `why` \|\n(.*?)\n\n", SPEC, re.MULTILINE | re.DOTALL)
    whys = {why for line in rule.splitlines() for why in re.findall(r"`(\w+)`", line.split("|")[2])}
    told = {why for row in table(TEXT, "LeaseLost", "###") for why in re.findall(r"`(\w+)`", row[0])}
    assert told == whys


SPEC = (ROOT / "protocol" / "SPEC.md").read_text("utf-8")
