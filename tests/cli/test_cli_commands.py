"""Each command of `dhp` against a real daemon: what it writes for people, what it writes as JSON, and its exit code."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import dhp_client
import dhp_client.sync

from ..support.daemon_process import DaemonProcess
from .conftest import Dhp

UNKNOWN = "0" * 64


def complete(client: dhp_client.sync.Client, kind: str, result: object) -> None:
    with client.claim(kinds=kind, wait_ms=5_000) as task:
        task.checkpoint({"half": True})
        task.complete(result)


def test_dispatch_writes_the_id_and_the_same_intent_again_is_the_same(dhp: Dhp) -> None:
    first = dhp("dispatch", "cli.same", "--inputs", '{"n": 1}')
    again = dhp("dispatch", "cli.same", "--inputs", '{"n": 1.0}', "--json")
    assert first.code == again.code == 0
    assert again.json == {"handoff": first.out.strip(), "created": False, "status": "pending"}


@pytest.mark.parametrize("ending", ["dead", "cancelled"])
def test_dispatch_of_what_has_ended_without_a_result_says_what_to_do(
    dhp: Dhp, client: dhp_client.sync.Client, ending: str
) -> None:
    made = dhp("dispatch", "cli.ended", "--key", ending)
    handoff = made.out.strip()
    if ending == "dead":
        with client.claim(handoff) as task:
            task.fail("Broken", "for good", retry=False)
    else:
        client.cancel(handoff, "not wanted")
    again = dhp("dispatch", "cli.ended", "--key", ending)
    assert (again.code, again.out) == (0, made.out)
    assert f"it is {ending} already (" in again.err
    assert "another --key makes new work of it" in again.err
    assert made.err == ""


def test_dispatch_takes_every_member(dhp: Dhp, tmp_path: Path) -> None:
    inputs, schema = tmp_path / "inputs.json", tmp_path / "schema.json"
    inputs.write_text('{\n  "n": 1\n}\n')
    schema.write_text('{"type": "object"}')
    dispatched = dhp(
        *("dispatch", "cli.all", "--inputs", f"@{inputs}", "--schema", str(schema), "--key", "k", "--priority", "7"),
        *("--delay-ms", "60000", "--label", "team=a=b", "--label", "x=", "--max-attempts", "2"),
    )
    status = dhp("status", dispatched.out.strip(), "--json").json
    assert (status["kind"], status["priority"], status["budget"]["max_attempts"]) == ("cli.all", 7, 2)
    assert status["labels"] == {"team": "a=b", "x": ""}


def test_dispatch_reads_inputs_from_standard_input(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    assert dhp("dispatch", "cli.stdin", "--inputs", "-", stdin=b'{"text":\n"\\u00e4"}').code == 0
    with client.claim(kinds="cli.stdin", wait_ms=5_000) as task:
        assert task.inputs == {"text": "ä"}
        task.complete(None)


def test_dispatch_and_wait_writes_the_result(daemon: DaemonProcess, client: dhp_client.sync.Client) -> None:
    command = [sys.executable, "-m", "dhp_client.cli", "--connect", daemon.address]
    with subprocess.Popen([*command, "dispatch", "cli.wait", "--wait"], stdout=subprocess.PIPE) as waiting:
        complete(client, "cli.wait", {"answer": 42})
        out, _ = waiting.communicate(timeout=30)
    assert (waiting.returncode, json.loads(out)) == (0, {"answer": 42})


def test_status_shows_how_it_stands(dhp: Dhp) -> None:
    handoff = dhp("dispatch", "cli.status").out.strip()
    shown = dhp("status", handoff)
    assert shown.code == 0
    lines = dict(line.split(maxsplit=1) for line in shown.out.splitlines())
    assert (lines["handoff"], lines["kind"], lines["status"]) == (handoff, "cli.status", "pending")
    assert dhp("status", handoff, "--json").json["holder"] is None


def test_status_shows_what_is_used_and_left_of_each_cap_and_what_a_cap_refused(
    dhp: Dhp, client: dhp_client.sync.Client
) -> None:
    budget = '{"max_usd": 0.3, "max_steps": 5, "stall_ms": 60000}'
    handoff = dhp("dispatch", "cli.status-caps", "--budget", budget).out.strip()
    with client.claim(handoff) as task:
        task.checkpoint("cheap", usd="0.1", steps=2)
        with pytest.raises(dhp_client.BudgetExceeded):
            task.checkpoint("dear", usd="0.4")
    lines = dict(line.split(maxsplit=1) for line in dhp("status", handoff).out.splitlines())
    assert lines["max_usd"] == "0.3 (0.1 used, 0.2 left)"
    assert lines["max_steps"] == "5 (2 used, 3 left)"
    assert lines["max_attempts"] == "3 (0 used, 3 left)"
    assert lines["stall_ms"] == "60000"
    assert lines["reason"] == "max_usd: 0.1 of 0.3 used, 0.4 asked"
    assert lines["kept"] == "steps 1, usd 0.4, seq 2"


def test_status_shows_until_when_work_sleeps(dhp: Dhp) -> None:
    handoff = dhp("dispatch", "cli.status-sleep").out.strip()
    dhp("suspend", handoff, "--wake-ms", "600000", "--reason", "later")
    wake_at = dhp("status", handoff, "--json").json["wake_at"]
    lines = dict(line.split(maxsplit=1) for line in dhp("status", handoff).out.splitlines())
    assert (lines["status"], lines["wake_at"], lines["reason"]) == ("suspended", wake_at, "later")


def test_the_answer_that_was_refused_last_is_told(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    schema = {"type": "integer"}
    handoff = client.dispatch("cli.refused", {}, output_schema=schema, budget={"max_invalid_results": 1}).handoff
    with client.claim(handoff) as task, pytest.raises(dhp_client.ResultInvalid):
        task.complete("seven")
    never = dhp("result", handoff)
    assert (never.code, never.out) == (1, "")
    assert 'its last answer, which was refused: "seven"' in never.err
    assert dhp("result", handoff, "--json").json == {"handoff": handoff, "status": "dead", "refused": "seven"}


def test_a_unique_beginning_of_an_id_will_do(dhp: Dhp) -> None:
    handoff = dhp("dispatch", "cli.prefix").out.strip()
    assert dhp("status", handoff[:8].upper(), "--json").json["handoff"] == handoff
    unknown = dhp("status", "0" * 12)
    assert (unknown.code, "begins with 000000000000" in unknown.err) == (1, True)


def test_list_is_a_table_or_lines_of_json(dhp: Dhp) -> None:
    ids = [dhp("dispatch", "cli.list", "--key", str(n), "--label", f"n={n}").out.strip() for n in range(3)]
    table = dhp("list", "--kind", "cli.list").out.splitlines()
    assert table[0].split() == ["HANDOFF", "KIND", "STATUS", "HOLDER", "SEQ", "FAILURES", "UPDATED"]
    assert [line.split()[0] for line in table[1:]] == [handoff[:12] for handoff in ids]
    assert [row["handoff"] for row in dhp("list", "--kind", "cli.list", "--json").json_lines] == ids
    assert [row["handoff"] for row in dhp("list", "--kind", "cli.list", "--newest", "--json").json_lines] == ids[::-1]
    assert [row["handoff"] for row in dhp("list", "--label", "n=1", "--json").json_lines] == ids[1:2]
    assert dhp("list", "--kind", "cli.list", "--status", "dead", "--json").out == ""


def test_list_says_when_there_are_more(dhp: Dhp) -> None:
    for n in range(3):
        dhp("dispatch", "cli.more", "--key", str(n))
    cut = dhp("list", "--kind", "cli.more", "--limit", "2", "--json")
    assert (len(cut.json_lines), "raise --limit" in cut.err) == (2, True)
    whole = dhp("list", "--kind", "cli.more", "--limit", "3", "--json")
    assert (len(whole.json_lines), whole.err) == (3, "")


def test_list_by_worker_shows_what_it_holds(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = dhp("dispatch", "cli.held").out.strip()
    with client.claim(kinds="cli.held", worker="cli-holder", wait_ms=5_000):
        assert [row["handoff"] for row in dhp("list", "--worker", "cli-holder", "--json").json_lines] == [handoff]


def test_result_is_written_as_json(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = dhp("dispatch", "cli.result").out.strip()
    complete(client, "cli.result", {"a": [1.5, None]})
    assert dhp("result", handoff).out == '{"a":[1.5,null]}\n'
    assert dhp("result", handoff, "--json").json == {
        "handoff": handoff,
        "status": "completed",
        "result": {"a": [1.5, None]},
    }


def test_a_result_that_is_not_there_yet_is_exit_code_4(dhp: Dhp) -> None:
    handoff = dhp("dispatch", "cli.not-yet").out.strip()
    for arguments in ((), ("--wait-ms", "50")):
        early = dhp("result", handoff, *arguments)
        assert (early.code, early.out) == (4, "")
        assert "no result yet" in early.err
    assert dhp("result", handoff, "--json").json == {"handoff": handoff, "status": "pending"}
    dhp("suspend", handoff, "--reason", "the room is too warm")
    assert "it is suspended (the room is too warm), there is no result yet" in dhp("result", handoff).err


def test_a_result_that_will_never_be_there_is_exit_code_1(dhp: Dhp) -> None:
    handoff = dhp("dispatch", "cli.never").out.strip()
    dhp("cancel", handoff, "--reason", "not needed")
    never = dhp("result", handoff)
    assert (never.code, never.out) == (1, "")
    assert "cancelled" in never.err


def test_state_is_that_of_the_last_checkpoint(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = dhp("dispatch", "cli.state").out.strip()
    early = dhp("state", handoff)
    assert (early.code, early.out, early.err) == (4, "", "dhp: it has no checkpoint yet.\n")
    complete(client, "cli.state", 1)
    assert dhp("state", handoff).out == '{"half":true}\n'
    told = dhp("state", handoff, "--json").json
    assert (told["handoff"], told["seq"], told["state"]) == (handoff, 1, {"half": True})


def test_history_tells_all_in_order(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = dhp("dispatch", "cli.history").out.strip()
    complete(client, "cli.history", 1)
    types = ["dispatched", "claimed", "checkpointed", "completed"]
    assert [record["type"] for record in dhp("history", handoff, "--json").json_lines] == types
    lines = dhp("history", handoff).out.splitlines()
    assert [line.split()[2] for line in lines] == types


def test_cancel_and_ack_end_it_and_are_told(dhp: Dhp) -> None:
    handoff = dhp("dispatch", "cli.cancel").out.strip()
    early = dhp("ack", handoff)
    assert (early.code, early.err.count("\n")) == (1, 1)
    assert dhp("cancel", handoff).out == "cancelled\n"
    assert dhp("cancel", handoff, "--json").json == {"status": "cancelled"}
    assert dhp("ack", handoff).code == 0
    assert dhp("status", handoff, "--json").json["acked"] is True


def test_watch_of_one_handoff_ends_with_it(daemon: DaemonProcess, dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = dhp("dispatch", "cli.watch").out.strip()
    command = [sys.executable, "-m", "dhp_client.cli", "watch", handoff, "--json", "--connect", daemon.address]
    with subprocess.Popen([*command, "--after", "0"], stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        complete(client, "cli.watch", 1)
        rest = [json.loads(line) for line in watching.stdout]
    assert watching.returncode == 0
    told = [first, *rest]
    assert {event["handoff"] for event in told} == {handoff}
    types = ["dispatched", "claimed", "checkpointed", "completed"]
    assert [event["record"]["type"] for event in told] == types
    ended = dhp("watch", handoff)
    assert (ended.code, ended.out, "completed already" in ended.err) == (0, "", True)
    assert len(dhp("watch", handoff, "--after", "0").out.splitlines()) == len(types)


def test_watch_tells_what_is_gone(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = client.dispatch("cli.watch-pruned", {}, keep_checkpoints=1).handoff
    with client.claim(handoff) as task:
        for number in range(3):
            task.checkpoint(number)
        task.complete(None)
    while len(client.history(handoff).records) > 4:
        pass
    last = client.history(handoff).records[-2]["position"]
    lines = dhp("watch", handoff, "--after", "0").out.splitlines()
    assert lines[2] == f"lagged: records up to position {last - 1} are gone that weren't shown."
    assert dhp("watch", handoff, "--after", "0", "--json").json_lines[2] == {"lagged": last - 1}


def test_watch_of_a_kind_ends_quietly_with_ctrl_c(daemon: DaemonProcess, dhp: Dhp) -> None:
    dhp("dispatch", "cli.other-kind")
    handoff = dhp("dispatch", "cli.watch-kind").out.strip()
    command = [sys.executable, "-m", "dhp_client.cli", "watch", "--kind", "cli.watch-kind", "--after", "0", "--json"]
    with subprocess.Popen(
        [*command, "--connect", daemon.address], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as watching:
        assert watching.stdout is not None
        lines = map(json.loads, iter(watching.stdout.readline, b""))
        shown = next(line for line in lines if "lagged" not in line)  # Of other kinds something may have been pruned.
        assert shown["handoff"] == handoff
        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate(timeout=30)
    assert (watching.returncode, err.strip()) == (130, b"")


def test_stats_and_health_are_facts(dhp: Dhp) -> None:
    assert "handoffs" in dhp("stats").out
    assert dhp("stats", "--json").json["durable_position"] >= 0
    health = dhp("health")
    assert (health.code, health.out.split()[:2]) == (0, ["status", "ok"])
    assert dhp("--json", "health").json["status"] == "ok"


@pytest.mark.parametrize("command", ["status", "result", "watch", "history", "cancel", "ack"])
def test_an_unknown_id_is_one_sentence_and_exit_code_1(dhp: Dhp, command: str) -> None:
    unknown = dhp(command, UNKNOWN)
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err.startswith("dhp: ")
    assert unknown.err.count("\n") == 1


def test_what_the_daemon_refuses_is_told_as_it_says_it(dhp: Dhp) -> None:
    refused = dhp("dispatch", "no blanks, please")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "kind" in refused.err
    as_json = dhp("--json", "dispatch", "no blanks, please")
    assert (as_json.code, as_json.out) == (1, "")
    error = json.loads(as_json.err)["error"]
    assert (error["code"], error["retry"], error["details"]) == ("invalid_request", "no", {"member": "kind"})


def test_what_changes_something_answers_in_json_where_it_is_asked_to(
    dhp: Dhp, client: dhp_client.sync.Client, tmp_path: Path
) -> None:
    made = client.dispatch("cli.json", {}, budget={"max_usd": 1})
    handoff, bundle = made.handoff, tmp_path / "bundle"

    def told(*arguments: str) -> object:
        ran = dhp(*arguments, "--json")
        assert (ran.code, ran.err) == (0, ""), arguments
        return ran.json

    assert told("suspend", handoff) == {"status": "suspended", "duplicate": False}
    assert told("resume", handoff) == {"status": "pending"}
    with client.claim(handoff) as task, pytest.raises(ConnectionError):
        task.effect("charge", _breaks)
    assert told("effect-done", handoff, "charge", "--result", "7") == {
        "handoff": handoff,
        "step": "charge",
        "result": 7,
    }
    with client.claim(handoff, wait_ms=60_000) as task:
        task.fail("Broken", retry=False)
    assert told("redrive", handoff, "--add", "max_usd=1") == {"status": "pending"}
    budget = told("budget-add", handoff, "max_usd=0.5")
    assert isinstance(budget, dict)
    assert budget["budget"]["max_usd"] == 2.5
    assert told("cancel", handoff) == {"status": "cancelled"}
    assert told("ack", handoff) == {"handoff": handoff, "acked": True}
    exported = told("export", handoff, str(bundle))
    assert exported == {
        "handoff": handoff,
        "file": str(bundle),
        "lines": bundle.read_bytes().count(b"\n"),
        "bytes": bundle.stat().st_size,
    }
    assert told("forget", handoff) == {"handoff": handoff, "forgotten": True}
    imported = told("import", str(bundle))
    assert isinstance(imported, dict)
    assert (imported["handoff"], imported["created"]) == (handoff, True)


def _breaks(key: str) -> None:
    raise ConnectionError("the line went dead")
