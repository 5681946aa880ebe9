"""What a shell offers for what was begun to be typed."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class

import dhp_client.sync
from dhp_client.cli import completing
from dhp_client.cli.main import dhp as group

from ..support.daemon_process import DaemonProcess
from .conftest import Dhp

Offered = Callable[..., list[str]]


@pytest.fixture
def offered(daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> Offered:
    """What one of the shells gets for a line; zsh and fish also get a line about each."""
    monkeypatch.setenv("DHP_CONNECT", daemon.address)

    def ask(line: str, shell: str = "bash") -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("COMP_LINE", line)
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words) - 1))
        made = get_completion_class(shell)
        assert made is not None
        return made(group, {}, "dhp", completing.VARIABLE).complete().splitlines()

    return ask


def test_commands_options_and_choices_are_completed(offered: Offered) -> None:
    assert offered("dhp redr") == ["plain,redrive"]
    assert offered("dhp top --int") == ["plain,--interval-ms"]
    assert offered("dhp list --status=pe") == ["plain,pending"]
    assert offered("dhp completion z") == ["plain,zsh"]
    assert "plain,--connect" in offered("dhp --connect tcp://127.0.0.1:1 status --co")


def test_ids_are_completed_by_their_beginning(offered: Offered, client: dhp_client.sync.Client) -> None:
    handoff = client.dispatch("tab.ids", {}).handoff
    assert f"plain,{handoff[:12]}" in offered(f"dhp status {handoff[:2].upper()}")
    assert offered(f"dhp status {handoff[:11]}") == [f"plain,{handoff[:12]}"]
    assert offered(f"dhp status {handoff[:13]}") == [f"plain,{handoff}"]
    assert offered(f"dhp status {handoff[:11]}", "zsh") == ["plain", handoff[:12], "tab.ids pending"]
    assert offered(f"dhp status {handoff[:11]}", "fish")[0].startswith(f"plain,{handoff[:12]}")
    assert offered(f"dhp --connect {os.environ['DHP_CONNECT']} watch {handoff[:11]}") == [f"plain,{handoff[:12]}"]


def test_a_command_is_offered_only_what_it_can_do_something_about(
    offered: Offered, client: dhp_client.sync.Client
) -> None:
    handoff = client.dispatch("tab.cancelled", {}).handoff
    client.cancel(handoff)
    assert offered(f"dhp ack {handoff[:11]}") == offered(f"dhp forget {handoff[:11]}") == [f"plain,{handoff[:12]}"]
    assert offered(f"dhp redrive {handoff[:11]}") == offered(f"dhp resume {handoff[:11]}") == []


def test_kinds_are_completed_also_behind_a_colon_where_bash_sees_a_new_word(
    offered: Offered, client: dhp_client.sync.Client
) -> None:
    client.dispatch("tab:kind:one", {})
    assert offered("dhp list --kind tab:k") == ["plain,kind:one"]
    assert offered("dhp list --kind tab:kind:o") == ["plain,one"]
    assert offered("dhp dispatch tab:k", "fish") == ["plain,tab:kind:one"]


def test_questions_are_completed_with_what_is_asked(offered: Offered, client: dhp_client.sync.Client) -> None:
    work = client.dispatch("tab.asks", {})
    with client.claim(work.handoff) as task:
        task.approval("pay\x1b[2J", None, timeout_ms=60_000, park=True)
    (asked,) = client.approvals(handoff=work.handoff).approvals
    short = asked.approval[:12] + asked.approval[64:73]
    assert offered(f"dhp approve {work.handoff[:4]}", "zsh") == ["plain", short, "pay\\u001b[2J"]
    assert offered(f"dhp deny {asked.approval[:70]}") == [f"plain,{asked.approval}"]


def test_where_nobody_answers_nothing_is_offered_and_nothing_is_said(
    offered: Offered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    monkeypatch.setattr(completing, "ANSWERED_WITHIN_MS", 200)
    (tmp_path / "empty").mkdir()
    for address in (f"tcp://127.0.0.1:{port}", "http://wrong", str(tmp_path / "empty"), str(tmp_path / "none")):
        assert offered(f"dhp --connect {address} status ") == []
    assert list(tmp_path.iterdir()) == [tmp_path / "empty"], "no daemon was started"
    assert list((tmp_path / "empty").iterdir()) == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("shell", completing.SHELLS)
def test_each_shell_gets_its_script(dhp: Dhp, shell: str) -> None:
    written = dhp("completion", shell)
    assert (written.code, written.err) == (0, "")
    assert f"{completing.VARIABLE}={shell}_complete" in written.out


def test_bash_completes_with_its_script(
    dhp: Dhp, daemon: DaemonProcess, client: dhp_client.sync.Client, tmp_path: Path
) -> None:
    handoff = client.dispatch("tab.bash", {}).handoff
    script = tmp_path / "dhp.bash"
    script.write_text(dhp("completion", "bash").out)
    line = f"dhp --connect {daemon.address} status {handoff[:11]}"
    bash = shutil.which("bash")
    assert bash is not None, "this needs bash"
    program = f"""
        dhp() {{ {sys.executable} -m dhp_client.cli "$@"; }}
        env() {{ export "${{@:1:$#-1}}"; "${{@: -1}}"; }}
        source {script}
        COMP_LINE='{line}  '; COMP_POINT={len(line)}; COMP_WORDS=({line.replace(":", " : ")}); COMP_CWORD=8
        _dhp_completion dhp
        echo "${{COMPREPLY[@]}}"
        complete -p dhp
    """
    done = subprocess.run([bash, "--norc", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout.splitlines(), done.stderr) == ([handoff[:12], "complete -o nosort -F _dhp_completion dhp"], "")
