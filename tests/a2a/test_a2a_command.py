"""`dhp a2a`: what it is told wrongly it says in one sentence, and what it needs; that it serves is seen in test_a2a_streams."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dhp_client.cli import extras
from dhp_client.cli.main import exit_code
from dhp_client.cli.settings import FAILED, USAGE
from tests.support.daemon_process import DaemonProcess

from .conftest import Guarded

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def a2a(daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `dhp a2a` in this process, which ends at once: its exit code, and what it says on standard error."""

    def run(*arguments: str, connect: str = daemon.address) -> tuple[int, str]:
        capsys.readouterr()
        code = exit_code(["a2a", "--connect", connect, "--listen", "127.0.0.1:0", *arguments])
        return code, capsys.readouterr().err

    return run


def test_what_is_said_wrongly_is_told(a2a: Run, tmp_path: Path) -> None:
    card = tmp_path / "card.json"
    card.write_text(json.dumps({"skills": 1}))
    open_token = tmp_path / "token"
    open_token.write_text("a-token-that-is-long-enough")
    open_token.chmod(0o644)
    for arguments, why in (
        ([], "There is nothing to serve: name a kind of work with --kind"),
        (["--kind", "a b"], "'a b' is no kind"),
        (["--card", str(card)], "is no agent card"),
        (["--kind", "k", "--listen", "8472"], "'8472' is no address"),
        (["--kind", "k", "--listen", "0.0.0.0:0"], "0.0.0.0 can be reached from outside: add --http-token-file"),
        (["--kind", "k", "--http-token-file", str(open_token)], "is open to others (mode 0644): chmod 600 it."),
        (["--kind", "k", "--public-url", "x"], "'x' is no URL"),
        (["--kind", "k", "--budget", '{"max_dollars": 1}'], "There is no cap 'max_dollars'"),
        (["--kind", "k", "--approver-token-file", str(tmp_path / "none")], "can't be read"),
    ):
        code, said = a2a(*arguments)
        assert (code, why in said) == (USAGE, True), said


def test_callers_decide_at_a_daemon_with_tokens_by_an_approvers_token_alone(a2a: Run, guarded: Guarded) -> None:
    own = ("--kind", "k", "--token-file", str(guarded.bridge))
    for further, expected, why in (
        (["--callers-decide"], USAGE, "with --approver-token-file"),
        (["--approver-token-file", str(guarded.bridge)], FAILED, "is the one that asks"),
        (["--approver-token-file", str(guarded.worker)], FAILED, "no role to decide with"),
    ):
        code, said = a2a(*own, *further, connect=guarded.daemon.tcp)
        assert (code, why in said) == (expected, True), said


def test_without_its_extra_it_says_which(a2a: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.MODULES, "a2a", ("a2a", "no_such_module"))
    assert a2a("--kind", "k") == (USAGE, "dhp: This command needs the extra a2a: pip install 'dhpd[a2a]'\n")
