"""A daemon that no test hurts, a client of it, and a kind of work of each test's own; another daemon that asks for tokens."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import dhp_client
from dhpd.token_file import add_token
from tests.support.daemon_process import DaemonProcess

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("a2a") / "data") as running:
        yield running


@pytest.fixture
async def client(daemon: DaemonProcess) -> AsyncIterator[dhp_client.Client]:
    async with dhp_client.connect(daemon.address) as connected:
        yield connected


@pytest.fixture
def kind() -> str:
    return f"a2a-{next(_numbers)}"


class Guarded:
    """A daemon that asks for tokens, and files with one of the bridge's and one of an approver's."""

    def __init__(self, folder: Path) -> None:
        tokens = folder / "tokens.toml"
        self.bridge = self._token(tokens, "bridge", ["dispatcher"])
        self.worker = self._token(tokens, "worker", ["worker"])
        self.person = self._token(tokens, "ada", ["approver"])
        self.daemon = DaemonProcess(folder / "data", arguments=["--tokens", str(tokens)])

    @staticmethod
    def _token(tokens: Path, name: str, roles: Any) -> Path:
        file = tokens.parent / f"{name}.token"
        file.write_text(add_token(tokens, name, roles))
        return file


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    with made.daemon:
        yield made
