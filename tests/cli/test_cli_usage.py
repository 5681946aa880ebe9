"""Wrong usage, no daemon, and what is written for people."""

import importlib.metadata
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dhp_client.budgets import CAPS
from dhp_client.cli import command
from dhp_client.cli.main import COMMANDS
from dhp_client.cli.main import dhp as whole
from dhp_client.cli.printing import error_line, history_lines
from dhp_protocol.errors import BudgetExceeded, InvalidRequest

from ..support.daemon_process import DaemonProcess
from .conftest import Dhp


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("status",), "Missing argument"),
        (("status", "xyz"), "64 hex digits"),
        (("status", "abc"), "at least the first 8"),
        (("dispatch", "k", "--inputs", "{"), "is no JSON"),
        (("dispatch", "k", "--inputs", "Bob"), "write an object such as '{"),
        (("dispatch", "k", "--inputs", "@/nowhere/at-all"), "can't be read"),
        (("dispatch", "k", "--schema", "/nowhere/at-all"), "can't be read"),
        (("dispatch", "k", "--label", "x"), "name=value"),
        (("dispatch", "k", "--priority", "10"), "priority"),
        (("dispatch", "k", '{"n": 1}'), """write --inputs '{"n": 1}'"""),
        (("export",), "Missing argument"),
        (("import", "/nowhere/at-all"), "can't be read"),
        (("list", "--label", "=x"), "name=value"),
        (("list", "--status", "gone"), "gone"),
        (("--connect", "http://127.0.0.1/", "stats"), "tcp://"),
        (("stats", "--connect", ""), "The address is empty: "),
        (("stats", "--token-file", ""), "token file"),
        (("fly",), "No such command"),
        (("stat",), "Did you mean one of: 'state', 'stats', 'status'?"),
        (("demo", "--kill-at", "7", "--pages", "6"), "smaller number"),
        (("demo", "--pages", "100000"), "There are"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_told(dhp: Dhp, arguments: tuple[str, ...], told: str) -> None:
    wrong = dhp(*arguments)
    assert (wrong.code, wrong.out) == (2, "")
    assert told in wrong.err


def test_no_daemon_is_exit_code_3_and_one_sentence(dhp: Dhp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "REACHED_WITHIN_MS", 100)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    unreachable = dhp("--connect", f"tcp://127.0.0.1:{port}", "stats")
    assert (unreachable.code, unreachable.out, unreachable.err.count("\n")) == (3, "", 1)


def test_output_that_cannot_be_written_is_told_without_a_traceback(daemon: DaemonProcess) -> None:
    for arguments in (["stats"], ["--help"]):
        command = [sys.executable, "-m", "dhp_client.cli", "--connect", daemon.address, *arguments]
        with open("/dev/full", "wb") as full:
            failed = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=30)
        assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
        assert "couldn't be written: No space left on device" in failed.stderr


def test_looking_where_nothing_is_leaves_nothing(dhp: Dhp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DHP_CONNECT")
    monkeypatch.chdir(tmp_path)
    looked = dhp("list")
    assert (looked.code, looked.out) == (3, "")
    assert "dispatch something here first" in looked.err
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_is_another_daemon_is_pointed_to_but_not_asked(
    dhp: Dhp, daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DHP_CONNECT")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "SERVICE_SOCKET", daemon.address)
    looked = dhp("list")
    assert (looked.code, looked.out, looked.err.count("\n")) == (3, "", 1)
    assert looked.err.endswith(f"One answers at {daemon.address}.\n")


def test_a_file_in_the_place_of_json_is_recognised(dhp: Dhp, tmp_path: Path) -> None:
    (tmp_path / "inputs.json").write_text("{}")
    wrong = dhp("dispatch", "k", "--inputs", str(tmp_path / "inputs.json"))
    assert (wrong.code, f"write @{tmp_path}/inputs.json" in " ".join(wrong.err.split())) == (2, True)


def test_help_is_there_without_a_daemon_and_names_every_command() -> None:
    command = [sys.executable, "-m", "dhp_client.cli", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=30)
    commands = {"dispatch", "status", "list", "result", "watch", "history", "cancel", "ack", "stats", "health", "demo"}
    commands |= {
        "export",
        "import",
        "effects",
        "effect-done",
        "spool",
        "suspend",
        "resume",
        "redrive",
        "budget-add",
        "drain",
        "forget",
        "approvals",
        "approve",
        "deny",
    }
    assert shown.returncode == 0
    assert commands <= set(shown.stdout.split())
    assert "..." not in shown.stdout.partition("Commands:")[2], "each is told in whole"


def test_every_command_shows_its_help_and_the_caps_are_listed_where_they_are_taken(dhp: Dhp) -> None:
    for name in COMMANDS:
        assert dhp(name, "--help").code == 0
    own, shared = (dhp("dispatch", "--help").out.index(option) for option in ("--inputs", "--ca-file"))
    assert own < shared
    for name in ("dispatch", "redrive", "budget-add"):
        listed = " ".join(dhp(name, "--help").out.split())
        assert ", ".join(CAPS) in listed


def test_every_command_takes_json_and_every_option_says_what_it_does() -> None:
    found = list(commands_in(whole))
    assert len(found) > len(COMMANDS), "those of spool and mcp are among them"
    for each in found:
        options = [option for option in each.params if isinstance(option, click.Option)]
        assert any("--json" in option.opts for option in options), each.name
        assert [option.name for option in options if not option.help] == [], each.name


def commands_in(start: click.Command) -> Iterator[click.Command]:
    yield start
    if isinstance(start, click.Group):
        for name in start.commands:
            yield from commands_in(start.commands[name])


def test_what_is_written_for_other_programs_is_json_where_that_is_asked(dhp: Dhp, tmp_path: Path) -> None:
    script = dhp("completion", "bash")
    assert dhp("completion", "bash", "--json").json == {"shell": "bash", "script": script.out.rstrip("\n")}
    assert dhp("--json", "mcp", "skill").json == {"skill": dhp("mcp", "skill").out}
    assert Path(dhp("mcp", "skill", "--json", "--into", str(tmp_path)).json["file"]).is_relative_to(tmp_path)


def test_what_a_refusals_sentence_leaves_out_is_told_behind_it() -> None:
    refused = BudgetExceeded(
        "This would pass max_usd (0.1 of 0.3 used).", cap="max_usd", limit=0.3, used=0.1, whose="abc"
    )
    assert error_line(refused) == "This would pass max_usd (0.1 of 0.3 used). (whose abc)"
    assert error_line(InvalidRequest("kind is too long.", member="kind")) == "kind is too long."


def test_the_version_is_told(dhp: Dhp) -> None:
    told = dhp("--version")
    assert (told.code, told.out) == (0, f"dhp, version {importlib.metadata.version('dhpd')}\n")


def test_checkpoints_in_a_row_are_drawn_together_but_not_across_fences() -> None:
    at = "2026-01-01T00:00:00Z"
    records = [
        {"n": n, "position": n, "type": kind, "at": at, "fence": fence, **more}
        for n, (kind, fence, more) in enumerate(
            [
                ("dispatched", 0, {"kind": "k", "labels": {}}),
                ("claimed", 1, {"worker": "a"}),
                ("checkpointed", 1, {"seq": 1}),
                ("checkpointed", 1, {"seq": 2}),
                ("checkpointed", 3, {"seq": 3}),
                ("completed", 3, {"bytes": 2}),
            ],
            start=1,
        )
    ]
    assert [" ".join(line.split()) for line in history_lines(records)] == [
        f"1 {at} dispatched fence 0 kind k",
        f"2 {at} claimed fence 1 worker a",
        f"3-4 {at} checkpointed fence 1 seq 1 to 2",
        f"5 {at} checkpointed fence 3 seq 3",
        f"6 {at} completed fence 3 bytes 2",
    ]
