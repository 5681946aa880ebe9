"""The contract against a real daemon: kill -9, restarts, nobody up, and everyone who comes too late."""

import json
import threading
from typing import Any, get_args

import pytest

from dhp_protocol import messages
from tests.daemon.conftest import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

DAY_MS = 86_400_000
ASKED: dict[str, Any] = {"action": "pay", "details": {"usd": 1, "to": "ada"}, "timeout_ms": DAY_MS}


def held(client: WireClient, **members: Any) -> dict[str, Any]:
    """A fresh handoff's id and fence, as members of a request."""
    handoff = client.dispatch(**members)
    granted = client.claim(handoff=handoff, ttl_ms=60_000)
    return {"handoff": handoff, "fence": granted["fence"]}


def why_resumed(client: WireClient, handoff: str) -> list[str]:
    return [record["why"] for record in client.history(handoff) if record["type"] == "resumed"]


# --- every operation that takes a fence -------------------------------------------------------------------------------

SAMPLES: dict[str, dict[str, Any]] = {
    "checkpoint": {"state": 1},
    "complete": {"result": 1},
    "fail": {"error": {"type": "Late"}},
    "effect_begin": {"step": "send"},
    "effect_done": {"step": "begun", "result": 1},
    "approval_request": ASKED,
    "activity": {"digest": "turning a page"},
    "spend": {"steps": 1},
    "check_capability": {"domain": "net", "resource": "x"},
}
"""The members that an operation needs beside the handoff and the fence."""


def operations_with_a_fence() -> list[str]:
    requests = get_args(messages.AnyRequest)
    return [str(request.__struct_config__.tag) for request in requests if "fence" in request.__struct_fields__]


def assert_all_refused(client: WireClient, hold: dict[str, Any], why: str) -> None:
    before = client.history(hold["handoff"])
    for op in operations_with_a_fence():
        refusal = client.refused(op, **hold, **SAMPLES.get(op, {}))
        assert (refusal.code, refusal.details["why"]) == ("lease_lost", why), op
    assert client.history(hold["handoff"]) == before


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_worker_that_was_fenced_out_is_refused_by_every_operation(
    daemon: DaemonProcess, connect: Connect, client: WireClient, taken_over: bool
) -> None:
    client.call("watch")
    handoff = client.dispatch(capabilities={"net": ["*"]})
    lost = {"handoff": handoff, "fence": client.claim(handoff=handoff, ttl_ms=500)["fence"]}
    client.call("effect_begin", **lost, step="begun")
    client.await_record("orphaned")
    why, holder = "expired", lost
    if taken_over:
        why, holder = "superseded", {**lost, "fence": client.claim(handoff=handoff, ttl_ms=60_000)["fence"]}
    for one in (client, connect()):
        assert_all_refused(one, lost, why)
    daemon.restart()
    late = connect()
    assert_all_refused(late, lost, why)
    if taken_over:  # The rightful holder isn't harmed.
        assert late.call("checkpoint", **holder, state=1)["seq"] == 1


# --- effects ---------------------------------------------------------------------------------------------------------------


def test_an_effect_begun_before_a_crash_is_in_doubt_for_the_standby_and_a_finished_one_stays_done(
    daemon: DaemonProcess, connect: Connect
) -> None:
    client = connect()
    hold = held(client)
    keys = {step: client.call("effect_begin", **hold, step=step)["idempotency_key"] for step in ("begun", "done")}
    client.call("effect_done", **hold, step="done", result={"receipt": 7})
    daemon.kill()
    daemon.start()
    client = connect()
    assert client.call("effect_begin", **hold, step="begun")["state"] == "new"  # To its own fence nothing has changed.
    client.call("release", **hold)
    standby = {**hold, "fence": client.claim(handoff=hold["handoff"], ttl_ms=60_000)["fence"]}
    for _ in range(2):
        begun = client.call("effect_begin", **standby, step="begun")
        done = client.call("effect_begin", **standby, step="done")
        assert (begun["state"], begun["idempotency_key"]) == ("in_doubt", keys["begun"])
        assert (done["state"], done["idempotency_key"], done["result"]) == ("done", keys["done"], {"receipt": 7})
        daemon.restart()
        client = connect()
    client.call("effect_done", **standby, step="begun", result=1)
    assert client.refused("effect_done", **hold, step="begun", result=1).code == "lease_lost"
    assert [effect["state"] for effect in client.call("effects", handoff=hold["handoff"])["effects"]] == ["done"] * 2


# --- approvals -------------------------------------------------------------------------------------------------------------


def test_approvals_survive_a_crash_before_and_after_their_decision(daemon: DaemonProcess, connect: Connect) -> None:
    worker = connect(session="worker")
    hold = held(worker)
    approval = worker.call("approval_request", **hold, **ASKED)["approval"]
    daemon.restart()
    worker, person = connect(session="worker"), connect()
    (view,) = person.call("approvals", status="open")["approvals"]
    assert (view["approval"], view["action"], view["details"]) == (approval, "pay", ASKED["details"])
    assert worker.call("approval_request", **hold, **ASKED)["approval"] == approval
    assert worker.refused("approval_decide", approval=approval, decision="approve").code == "forbidden"
    decided = person.call("approval_decide", approval=approval, decision="approve", note="fine")
    assert (decided["decision"], decided["note"]) == ("approved", "fine")
    daemon.restart()
    worker, person = connect(session="worker"), connect()
    refusal = person.refused("approval_decide", approval=approval, decision="deny")
    assert (refusal.code, refusal.details["decision"]) == ("already_decided", "approved")
    assert worker.call("approval_wait", approval=approval)["decision"] == "approved"
    assert worker.call("effect_begin", **hold, step="pay", approval=approval)["state"] == "new"
    daemon.restart()
    worker = connect(session="worker")
    assert worker.refused("effect_begin", **hold, step="pay twice", approval=approval).code == "wrong_state"


def test_a_waiting_worker_hears_the_decision_and_nobody_is_held_up_meanwhile(
    client: WireClient, connect: Connect
) -> None:
    worker = connect(session="worker")
    hold = held(worker)
    approval = worker.call("approval_request", **hold, **ASKED)["approval"]
    waiting = worker.send("approval_wait", approval=approval, wait_ms=600_000)
    worker.pump()
    assert not worker.answered(waiting)
    assert worker.call("checkpoint", **hold, state=1)["seq"] == 1
    client.call("approval_decide", approval=approval, decision="deny", note="too dear")
    said = worker.result(waiting)
    assert (said["decision"], said["note"]) == ("denied", "too dear")


def test_long_details_are_asked_about_in_order_and_are_bound_as_short_ones_are(connect: Connect) -> None:
    worker = connect(session="worker")
    hold = held(worker)
    long = {"action": "pay", "timeout_ms": DAY_MS, "details": {f"{n:04}": n for n in reversed(range(3_000))}}
    asked = worker.send("approval_request", **hold, **long)
    completed = worker.send("complete", **hold, result=1)  # Sent later, so it comes later.
    approval = worker.result(asked)["approval"]
    assert worker.result(completed)["duplicate"] is False
    assert worker.call("approval_wait", approval=approval)["decision"] == "cancelled"
    (view,) = worker.call("approvals", handoff=hold["handoff"])["approvals"]
    assert view["details"] == long["details"]
    assert list(view["details"]) == sorted(long["details"])
    refusal = worker.refused("approval_request", **hold, **long)
    assert refusal.code == "lease_lost"


@pytest.mark.parametrize("size", [100, 20_000])
def test_details_without_a_canonical_form_are_refused_at_any_length(connect: Connect, size: int) -> None:
    worker = connect()
    hold = held(worker)
    body = json.dumps({"op": "approval_request", "id": "x", **hold, "action": "a", "timeout_ms": 1})[:-1]
    worker.send_bytes(f'{body},"details":{{"a":1,"a":"{"x" * size}"}}}}\n'.encode())
    error = worker.reply("x")["error"]
    assert (error["code"], error["details"]["member"]) == ("invalid_request", "details")


def test_a_decision_stands_in_line_behind_what_was_sent_before_it(daemon: DaemonProcess, connect: Connect) -> None:
    """Requests about one handoff keep their order, though this one names it by its approval alone."""
    worker = connect(session="worker")
    hold = held(worker)
    approval = worker.call("approval_request", **hold, **ASKED)["approval"]
    daemon.restart()
    person = connect()
    kept = held(person, key="another")
    long = {"action": "x", "timeout_ms": DAY_MS, "details": "y" * 20_000}
    asked = person.send("approval_request", **hold, **long)  # Takes a while; the fence is anyone's without tokens.
    decided = person.send("approval_decide", approval=approval, decision="approve")
    first, second = person.result(asked), person.result(decided)
    assert second["decision"] == "approved"
    types = [(r["type"], r["approval"]) for r in person.history(hold["handoff"]) if r["type"].startswith("approval")]
    assert types[1:] == [("approval_requested", first["approval"]), ("approval_decided", approval)]
    person.call("release", **kept)


# --- suspension --------------------------------------------------------------------------------------------------------------


def test_a_sleep_that_ends_while_the_daemon_is_down_ends_at_its_start(daemon: DaemonProcess, connect: Connect) -> None:
    client = connect()
    hold = held(client)
    later = held(client, key="later")
    client.call("suspend", **hold, wake_ms=0)
    client.call("suspend", **later, wake_ms=DAY_MS)
    daemon.kill()
    daemon.start()
    client = connect()
    granted = client.claim(handoff=hold["handoff"], wait_ms=600_000)
    assert granted["fence"] == hold["fence"] + 3
    assert why_resumed(client, hold["handoff"]) == ["wake"]
    assert client.status(later["handoff"])["status"] == "suspended"


def test_a_sleep_begun_before_a_crash_ends_at_its_moment(daemon: DaemonProcess, connect: Connect) -> None:
    client = connect()
    hold = held(client)
    client.call("suspend", **hold, wake_ms=1_500)
    daemon.restart()
    client = connect()
    assert client.claim(handoff=hold["handoff"], wait_ms=600_000)["handoff"] == hold["handoff"]
    records = client.history(hold["handoff"])
    wake_at = next(record["wake_at"] for record in records if record["type"] == "suspended")
    assert next(record["at"] for record in records if record["type"] == "resumed") >= wake_at


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_work_comes_back_when_a_person_decided_while_no_worker_was_up(
    daemon: DaemonProcess, connect: Connect, decision: str
) -> None:
    with WireClient(daemon.tcp) as worker:
        hold = held(worker)
        approval = worker.call("approval_request", **hold, **ASKED)["approval"]
        assert worker.call("suspend", **hold, approval=approval)["status"] == "suspended"
    daemon.restart()
    with WireClient(daemon.tcp) as person:
        assert person.status(hold["handoff"])["status"] == "suspended"
        person.call("approval_decide", approval=approval, decision=decision)
    daemon.restart()
    client = connect()
    assert client.claim(ttl_ms=60_000)["handoff"] == hold["handoff"]
    assert why_resumed(client, hold["handoff"]) == ["approval"]
    told = {"approve": "approved", "deny": "denied"}[decision]
    assert client.call("approval_wait", approval=approval)["decision"] == told


def test_a_worker_whose_work_is_suspended_from_outside_hears_of_it(client: WireClient, connect: Connect) -> None:
    worker = connect(session="worker")
    hold = held(worker)
    client.call("suspend", handoff=hold["handoff"], reason="not now")
    event = worker.event()
    assert (event["event"], event["fence"], event["why"]) == ("lease_lost", hold["fence"], "suspended")
    assert worker.refused("checkpoint", **hold, state=1).details["why"] == "suspended"
    assert client.call("resume", handoff=hold["handoff"])["status"] == "pending"


# --- capabilities ----------------------------------------------------------------------------------------------------------


def test_capabilities_are_read_from_the_intent_again_after_a_crash(daemon: DaemonProcess, connect: Connect) -> None:
    client = connect()
    names = [f"r{number}/*" for number in range(1_000)]
    hold = held(client, capabilities={"fs": names})
    for _ in range(2):
        assert client.call("check_capability", **hold, domain="fs", resource="r999/x")["granted"] is True
        assert client.call("check_capability", **hold, domain="fs", resource="s/x")["granted"] is False
        daemon.restart()
        client = connect()
    recorded = [r["resource"] for r in client.history(hold["handoff"]) if r["type"] == "capability_checked"]
    assert recorded == ["r999/x", "s/x"] * 2


# --- cancel ------------------------------------------------------------------------------------------------------------------


def test_a_cancel_is_pushed_to_a_running_worker(client: WireClient, connect: Connect) -> None:
    worker = connect(session="worker")
    hold = held(worker)
    client.call("cancel", handoff=hold["handoff"], reason="no need")
    event = worker.event()  # It has asked for nothing since.
    assert event == {"event": "cancelled", **hold, "reason": "no need"}
    assert worker.refused("checkpoint", **hold, state=1).details["why"] == "cancelled"


@pytest.mark.parametrize("status", ["pending", "running", "suspended"])
def test_a_cancel_while_no_worker_is_up_holds(daemon: DaemonProcess, connect: Connect, status: str) -> None:
    with WireClient(daemon.tcp) as worker:
        worker.call("hello", session="worker")
        hold = held(worker)
        if status == "pending":
            worker.call("release", **hold)
        if status == "suspended":
            worker.call("suspend", **hold, wake_ms=0)
    with WireClient(daemon.tcp) as client:
        assert client.call("cancel", handoff=hold["handoff"], reason="no need")["status"] == "cancelled"
    daemon.restart()
    worker = connect(session="worker")
    assert worker.claim()["handoff"] is None
    assert worker.refused("claim", worker="w", handoff=hold["handoff"]).code == "not_claimable"
    assert worker.refused("complete", **hold, result=1).details["status"] == "cancelled"
    assert worker.status(hold["handoff"])["reason"] == "no need"


def test_cancel_racing_complete_has_one_outcome(daemon: DaemonProcess, connect: Connect) -> None:
    worker, client = connect(session="worker"), connect()
    holds = [held(worker, key=str(number)) for number in range(100)]
    start = threading.Barrier(2)
    told: dict[str, str] = {}

    def complete() -> None:
        start.wait()
        sent = [(hold["handoff"], worker.send("complete", **hold, result=hold["handoff"])) for hold in holds]
        for handoff, request in sent:
            reply = worker.reply(request)
            told[handoff] = "completed" if reply["ok"] else reply["error"]["details"]["why"]

    completing = threading.Thread(target=complete)
    completing.start()
    start.wait()
    # From the other end, so that they meet.
    sent = [(hold["handoff"], client.send("cancel", handoff=hold["handoff"])) for hold in reversed(holds)]
    cancels = {handoff: client.result(request)["status"] for handoff, request in sent}
    completing.join()
    assert cancels == told
    daemon.restart()
    client = connect()
    for handoff, status in told.items():
        result = client.call("result", handoff=handoff)
        assert (result["status"], result.get("result")) == (status, handoff if status == "completed" else None)
        ends = [r["type"] for r in client.history(handoff) if r["type"] in ("completed", "cancelled")]
        assert ends == [status]


# --- redrive ---------------------------------------------------------------------------------------------------------------


def test_dead_work_that_has_left_memory_comes_back_with_the_checkpoint_that_a_cap_refused(
    daemon: DaemonProcess, connect: Connect
) -> None:
    client = connect()
    hold = held(client, budget={"max_steps": 1})
    client.call("checkpoint", **hold, state="first")
    refusal = client.refused("checkpoint", **hold, state="paid for")
    assert refusal.code == "budget_exceeded"
    daemon.restart()
    client = connect()
    assert client.call("redrive", handoff=hold["handoff"], budget_add={"max_steps": 1})["status"] == "pending"
    granted = client.claim(handoff=hold["handoff"], ttl_ms=60_000)
    assert (granted["checkpoint"]["seq"], granted["checkpoint"]["state"]) == (2, "paid for")
