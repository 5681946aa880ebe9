"""The README does what it says: its programs are run, and its session by hand is typed, as printed."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import dhp_client.sync
from dhp_client.cli.main import COMMANDS

from ..client.waiting import until_blocking
from ..support.daemon_process import DaemonProcess

README = Path(__file__).parents[2] / "README.md"
PRINTED_PORT = "8471"
FINAL_LINE = "completed {'counted': 6}"

# `nc -N HOST PORT` for machines without it: the same bytes over the same kind of socket, half-closed at their end.
NC = f"""
nc() {{ {sys.executable} -c '
import shutil, socket, sys
with socket.create_connection((sys.argv[2], int(sys.argv[3]))) as s:
    s.sendall(sys.stdin.buffer.read())
    s.shutdown(socket.SHUT_WR)
    with s.makefile("rb") as replies:
        shutil.copyfileobj(replies, sys.stdout.buffer)
' "$@"; }}
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


def run_program(source: str, folder: Path) -> "subprocess.Popen[str]":
    program = folder / "program.py"
    program.write_text(source)
    environment = {name: value for name, value in os.environ.items() if name != "DHP_CONNECT"}
    return subprocess.Popen(
        [sys.executable, str(program)], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )


def stop_daemon(folder: Path) -> None:
    daemon = folder / ".dhp" / "dhpd.json"
    if daemon.exists():
        os.kill(msgspec.json.decode(daemon.read_bytes())["pid"], signal.SIGTERM)
        until_blocking(lambda: not daemon.exists(), "the daemon has ended")


@pytest.mark.parametrize("number", [0, 1], ids=["async", "sync"])
def test_a_program_goes_on_where_it_was_killed_and_runs_once(number: int, tmp_path: Path) -> None:
    source = blocks("python")[number]
    try:
        with run_program(source, tmp_path) as killed:
            assert killed.stdout is not None
            assert [killed.stdout.readline(), killed.stdout.readline()] == ["1\n", "2\n"]
            killed.kill()
        with run_program(source, tmp_path) as second:
            out, _ = second.communicate(timeout=60)
        *counted, result = out.splitlines()
        assert result == FINAL_LINE
        assert counted in (["3", "4", "5", "6"], ["2", "3", "4", "5", "6"])  # At most one step is done twice.
        with run_program(source, tmp_path) as third:
            out, _ = third.communicate(timeout=60)
        assert (third.returncode, out) == (0, f"{FINAL_LINE}\n")
    finally:
        stop_daemon(tmp_path)


@pytest.mark.parametrize("number", [0, 1], ids=["async", "sync"])
def test_a_program_in_a_second_terminal_waits_for_the_first(number: int, tmp_path: Path) -> None:
    source = blocks("python")[number]
    try:
        with run_program(source, tmp_path) as first:
            assert first.stdout is not None
            assert first.stdout.readline() == "1\n"
            with run_program(source, tmp_path) as second:
                assert second.communicate(timeout=60)[0] == f"{FINAL_LINE}\n"
            assert first.communicate(timeout=60)[0].splitlines()[-1] == FINAL_LINE
        assert (first.returncode, second.returncode) == (0, 0)
    finally:
        stop_daemon(tmp_path)


@pytest.mark.parametrize("number", [0, 1], ids=["async", "sync"])
def test_sigterm_hands_a_programs_work_back_and_dead_work_is_told(number: int, tmp_path: Path) -> None:
    source = blocks("python")[number]
    try:
        with run_program(source, tmp_path) as stopped:
            assert stopped.stdout is not None
            assert stopped.stdout.readline() == "1\n"
            stopped.terminate()
        assert stopped.returncode == 143
        with dhp_client.sync.connect(tmp_path / ".dhp") as client:
            (found,) = client.list(kind="count").handoffs
            assert (found.status, found.failures) == ("pending", 0)
            with client.claim(found.handoff) as task:
                task.fail("Broken", retry=False)
        with run_program(source, tmp_path) as last:
            assert last.communicate(timeout=60)[0] == "dead None\n"
        assert last.returncode == 0
    finally:
        stop_daemon(tmp_path)


def test_there_are_no_programs_but_those_that_are_run() -> None:
    assert len(blocks("python")) == 2


def test_the_session_by_hand_answers_as_printed(tmp_path: Path) -> None:
    lines = [line for block in blocks("console") for line in block.splitlines()]
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    with DaemonProcess(tmp_path / "by-hand") as daemon:
        script = "\n".join(command.replace(PRINTED_PORT, str(daemon.port)) for command in commands)
        shim = "" if shutil.which("nc") and _is_openbsd_netcat() else NC
        typed = subprocess.run(["bash", "-c", shim + script], capture_output=True, text=True, timeout=60)
    assert typed.stderr == ""
    replies = [line for line in lines if not line.startswith("$ ")]
    assert [_without_time(line) for line in typed.stdout.splitlines()] == [_without_time(line) for line in replies]


def test_the_daemon_of_the_session_is_where_it_is_looked_for() -> None:
    assert "dhpd --data ./by-hand" in README.read_text()
    shown = subprocess.run([sys.executable, "-m", "dhpd", "--help"], capture_output=True, text=True, timeout=30)
    assert f"127.0.0.1:{PRINTED_PORT}" in shown.stdout


def test_every_command_is_listed_and_no_other() -> None:
    (section,) = re.findall(r"^## On a terminal\n(.*?)^## ", README.read_text(), re.MULTILINE | re.DOTALL)
    listed = [name for line in section.splitlines() if line.startswith("| ") for name in re.findall(r"`(\S+)`", line)]
    assert sorted(listed) == sorted(COMMANDS)


def test_every_file_that_is_pointed_to_exists() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target


def _is_openbsd_netcat() -> bool:
    told = subprocess.run(["nc", "-h"], capture_output=True, text=True, timeout=10)
    return "OpenBSD" in told.stdout + told.stderr


def _without_time(line: str) -> str:
    return re.sub(r'"at":"[^"]+"', '"at":""', line)
