"""A daemon for all of these tests, and `dhp` as a function: arguments in, exit code and output out."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import dhp_client.sync
from dhp_client.cli.main import exit_code

from ..support.daemon_process import DaemonProcess


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Dhp = Callable[..., Ran]


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("cli") / "data") as running:
        yield running


@pytest.fixture
def dhp(
    daemon: DaemonProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """Runs `dhp` in this process, against the daemon unless --connect says otherwise."""
    monkeypatch.setenv("DHP_CONNECT", daemon.address)

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = exit_code(arguments)
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[dhp_client.sync.Client]:
    with dhp_client.sync.connect(daemon.address) as connected:
        yield connected
