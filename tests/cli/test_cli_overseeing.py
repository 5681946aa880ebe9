"""The commands of `dhp` that change work from outside, against a real daemon."""

import json
from pathlib import Path

import pytest

import dhp_client
import dhp_client.sync

from ..support.daemon_process import DaemonProcess
from ..support.wire_client import WireClient
from .conftest import Dhp


def test_work_is_put_aside_and_taken_up_again(dhp: Dhp) -> None:
    handoff = dhp("dispatch", "cli.suspend").out.strip()
    assert dhp("suspend", handoff, "--wake-ms", "600000", "--reason", "later").out == "suspended\n"
    status = dhp("status", handoff, "--json").json
    assert (status["status"], status["reason"]) == ("suspended", "later")
    again = dhp("suspend", handoff)
    assert (again.code, again.out) == (1, "")
    assert dhp("resume", handoff, "--json").json == {"status": "pending"}


def test_dead_work_is_brought_back_with_more_of_what_it_lacked(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    budget = '{"max_usd": 0.3, "max_steps": 5}'
    handoff = dhp("dispatch", "cli.redrive", "--budget", budget, "--max-attempts", "7").out.strip()
    with client.claim(handoff) as task, pytest.raises(dhp_client.BudgetExceeded):
        task.checkpoint("dear", usd="0.4")
    refused = dhp("redrive", handoff)
    assert (refused.code, "max_usd" in refused.err) == (1, True)
    assert dhp("redrive", handoff[:12], "--add", "max_usd=0.10", "--add", "max_steps=1").out == "pending\n"
    lines = dict(line.split() for line in dhp("budget-add", handoff, "max_usd=0.1").out.splitlines())
    assert (lines["max_usd"], lines["max_steps"], lines["max_attempts"]) == ("0.5", "6", "7")


def test_what_may_be_touched_is_dispatched(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = dhp("dispatch", "cli.capable", "--capabilities", '{"http": ["https://example.org/*"]}').out.strip()
    with client.claim(handoff) as task:
        task.require("http", "https://example.org/a")
        task.complete(None)


def test_a_cap_of_the_parent_is_named_with_the_parent(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    parent = client.dispatch("cli.parent", {}, budget={"max_usd": "0.5"}).handoff
    child = client.dispatch("cli.child", {}, parent=parent).handoff
    with client.claim(child) as task, pytest.raises(dhp_client.BudgetExceeded):
        task.spend(usd="0.75")
    refused = dhp("redrive", child)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert parent in refused.err


def test_what_has_ended_is_forgotten(dhp: Dhp) -> None:
    handoff = dhp("dispatch", "cli.forget").out.strip()
    assert dhp("forget", handoff).code == 1
    assert dhp("cancel", handoff).code == 0
    assert json.loads(dhp("forget", handoff, "--json").out) == {"handoff": handoff, "forgotten": True}
    assert dhp("status", handoff).code == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("budget-add", "0" * 64), "Missing argument"),
        (("budget-add", "0" * 64, "max_steps"), "max_usd=0.50"),
        (("budget-add", "0" * 64, "max_steps=1.5"), "whole number"),
        (("redrive", "0" * 64, "--add", "max_steps=1", "--add", "max_steps=2"), "each cap once"),
        (("budget-add", "0" * 64, "usd=0.1"), "There is no cap 'usd'; max_usd? The caps are max_steps, max_usd,"),
        (("redrive", "0" * 64, "--add", "wallclock=5"), "max_wallclock_ms?"),
        (("redrive", "0" * 64, "--add", "flights=1"), "no cap 'flights'. The caps are"),
        (("dispatch", "k", "--budget", '{"max_step": 1}'), "max_steps?"),
        (("approve", "me"), "no approval's id"),
        (("approvals", "--status", "maybe"), "maybe"),
        (("dispatch", "k", "--budget", "[]"), "no JSON object"),
    ],
)
def test_wrong_usage_is_told(dhp: Dhp, arguments: tuple[str, ...], told: str) -> None:
    wrong = dhp(*arguments)
    assert (wrong.code, wrong.out) == (2, "")
    assert told in wrong.err


def test_drain_waits_for_what_is_held_if_asked(tmp_path: Path, dhp: Dhp) -> None:
    with DaemonProcess(tmp_path / "data") as daemon, WireClient(daemon.tcp) as worker:
        handoff = worker.dispatch()
        hold = {"handoff": handoff, "fence": worker.claim(ttl_ms=600_000)["fence"]}
        there = ("--connect", daemon.address)
        assert dhp("drain", *there).out == "draining, 1 held\n"
        waited = dhp("drain", "--timeout-ms", "300", *there)
        assert (waited.code, waited.out) == (4, "draining, 1 held still\n")
        worker.call("complete", **hold, result=None)
        waited = dhp("drain", "--wait", "--json", *there)
        assert (waited.code, waited.json) == (0, {"leases": 0})
