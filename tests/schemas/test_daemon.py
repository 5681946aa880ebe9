"""Output schemas over real sockets: refused at dispatch, judged at complete, and nobody else is held up."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dhp_protocol.intent import Intent, canonical_intent, handoff_id
from tests.support.daemon_process import DaemonProcess
from tests.support.sandbox_processes import alive, has_worked, workers
from tests.support.wire_client import Refused, WireClient

from .conftest import Connect

HANG = {"type": "object", "properties": {"s": {"pattern": "^(a+)+$"}}}
HANGING_RESULT = {"s": "a" * 40 + "!"}
PATTERN = {"properties": {"code": {"type": "string", "pattern": r"^[A-Z]\d$"}}, "required": ["code"]}
PLAIN = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def dispatch(client: WireClient, schema: Any, **inputs: Any) -> str:
    return str(client.call("dispatch", kind="k", inputs=inputs, output_schema=schema)["handoff"])


def claimed(client: WireClient, schema: Any, **inputs: Any) -> dict[str, Any]:
    """A fresh handoff under this schema, held; its handoff and fence, as a write takes them."""
    handoff = dispatch(client, schema, **inputs)
    fence = client.call("claim", worker="w", handoff=handoff, ttl_ms=600_000)["fence"]
    return {"handoff": handoff, "fence": fence}


def wait_for(condition: Any) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until, "it doesn't come about"
        time.sleep(0.01)


REFUSED: list[tuple[Any, str, str]] = [
    ({"properties": {"n": {"$ref": "http://127.0.0.1:9/"}}}, "/properties/n/$ref", "$ref"),
    ({"properties": {"n": {"minLength": -1}}}, "/properties/n/minLength", "minLength"),
    ({"properties": {"n": {"pattern": "("}}}, "/properties/n/pattern", "pattern"),
    ({"items": [{"type": "string"}], "pattern": "a"}, "/items", "items"),
    ({"$ref": "#"}, "/$ref", "$ref"),
    ({"title": "x" * 20_000, "dependencies": {}}, "/dependencies", "dependencies"),
]
"""Found at once, by the worker, and after the intent was named off the loop."""


def test_a_schema_that_can_not_be_enforced_is_refused_at_dispatch(client: WireClient) -> None:
    for schema, path, rule in REFUSED:
        with pytest.raises(Refused) as refusal:
            dispatch(client, schema)
        assert refusal.value.code == "schema_invalid"
        assert refusal.value.details == {"path": path, "rule": rule}
        assert refusal.value.error["retry"] == "no"
    assert client.call("list")["handoffs"] == []


@pytest.mark.parametrize(
    ("schema", "bad", "path", "rule", "good"),
    [
        (PLAIN, {"n": "1"}, "/n", "type", {"n": 1}),
        (PATTERN, {"code": "a1"}, "/code", "pattern", {"code": "A1"}),
        ({"maxItems": 5_000, "description": "x" * 20_000}, [1] * 5_001, "", "maxItems", [1] * 5_000),
        (False, 1, "", "false", None),
    ],
    ids=["here", "by the worker", "long", "false"],
)
def test_a_result_that_does_not_fit_is_told_why_and_may_be_mended(
    client: WireClient, schema: Any, bad: Any, path: str, rule: str, good: Any
) -> None:
    held = claimed(client, schema)
    with pytest.raises(Refused) as refusal:
        client.call("complete", **held, result=bad)
    assert refusal.value.code == "result_invalid"
    assert (refusal.value.details["path"], refusal.value.details["rule"]) == (path, rule)
    if schema is not False:
        assert client.call("complete", **held, result=good)["duplicate"] is False
        assert client.call("complete", **held, result=good)["duplicate"] is True


def test_results_are_judged_after_a_restart(daemon: DaemonProcess, connect: Connect) -> None:
    for schema in (PLAIN, PATTERN):
        held = claimed(connect(), schema)
        daemon.restart()
        with pytest.raises(Refused) as refusal:
            connect().call("complete", **held, result={})
        assert refusal.value.details["rule"] == "required"


def test_numbers_of_a_schema_are_the_doubles_of_its_canonical_form(daemon: DaemonProcess) -> None:
    with WireClient(daemon.tcp, counted=False) as client:
        request_id, data = client.framed("dispatch", kind="k", inputs={}, output_schema={"const": "NUMBER"})
        client.send_bytes(data.replace(b'"NUMBER"', b"0.1000000000000000055"))
        handoff = client.result(request_id)["handoff"]
        held = {"handoff": handoff, "fence": client.call("claim", worker="w", handoff=handoff)["fence"]}
        request_id, data = client.framed("complete", **held, result="NUMBER")
        client.send_bytes(data.replace(b'"NUMBER"', b"0.1000000000000000055"))
        assert client.reply(request_id)["error"]["details"]["rule"] == "const"
        assert client.call("complete", **held, result=0.1)["duplicate"] is False


def test_a_late_writer_hears_that_it_is_late_whatever_its_result_is_like(client: WireClient) -> None:
    held = claimed(client, HANG)
    with pytest.raises(Refused) as refusal:
        client.call("complete", handoff=held["handoff"], fence=held["fence"] + 1, result=HANGING_RESULT)
    assert refusal.value.code == "lease_lost"


def test_while_a_result_hangs_others_are_served(daemon: DaemonProcess, connect: Connect) -> None:
    attacker, other = connect(), connect()
    held = claimed(attacker, HANG)
    hanging = attacker.send("complete", **held, result=HANGING_RESULT)
    wait_for(lambda: any(map(has_worked, workers(daemon.pid))))
    same = attacker.send("ping")
    other.call("ping")
    assert dispatch(other, PLAIN)
    held_by_other = claimed(other, PLAIN, of="other")
    assert other.call("complete", **held_by_other, result={"n": 1})["duplicate"] is False
    assert attacker.reply(same)["ok"] is True
    assert any(map(has_worked, workers(daemon.pid))), "all of that while the worker was at it"
    assert not attacker.answered(hanging)
    assert attacker.reply(hanging)["error"]["details"]["rule"] == "limit"
    assert attacker.call("complete", **held, result={"s": "a"})["duplicate"] is False


def test_what_stands_behind_a_slow_check_about_one_handoff_keeps_its_order(client: WireClient) -> None:
    held = claimed(client, PATTERN)
    sent = [
        client.framed("complete", **held, result={"code": "bad"}),
        client.framed("checkpoint", **held, state={"at": 1}),
        client.framed("complete", **held, result={"code": "A1"}),
        client.framed("checkpoint", **held, state={"at": 2}),
        client.framed("status", handoff=held["handoff"]),
    ]
    client.send_bytes(b"".join(data for _, data in sent))
    bad, first, good, late, status = [client.reply(request_id) for request_id, _ in sent]
    assert bad["error"]["code"] == "result_invalid"
    assert first["seq"] == 1
    assert good["ok"] is True
    assert late["error"]["code"] == "lease_lost"
    assert status["status"] == "completed"


def test_what_stands_behind_a_dispatch_whose_schema_is_being_checked_finds_it_done(client: WireClient) -> None:
    request = {"kind": "k", "inputs": {}, "output_schema": PATTERN}
    schema = msgspec.Raw(json.dumps(PATTERN).encode())
    handoff = handoff_id(canonical_intent(Intent(kind="k", inputs=msgspec.Raw(b"{}"), output_schema=schema)))
    sent = [
        client.framed("dispatch", **request),
        client.framed("claim", worker="w", handoff=handoff),
        client.framed("complete", handoff=handoff, fence=1, result={"code": "B2"}),
        client.framed("result", handoff=handoff),
    ]
    client.send_bytes(b"".join(data for _, data in sent))
    dispatched, granted, completed, result = [client.reply(request_id) for request_id, _ in sent]
    assert (dispatched["handoff"], dispatched["created"]) == (handoff, True)
    assert granted["fence"] == 1
    assert completed["ok"] is True
    assert result["result"] == {"code": "B2"}


def test_a_slow_dispatch_holds_up_no_other_on_its_connection(client: WireClient) -> None:
    slow = client.framed("dispatch", kind="k", inputs={"of": "slow"}, output_schema=PATTERN)
    quick = client.framed("dispatch", kind="k", inputs={"of": "quick"}, output_schema=PLAIN)
    client.send_bytes(slow[1] + quick[1])
    assert client.reply(quick[0])["created"] is True
    assert not client.answered(slow[0]), "the worker had to be started for it"
    assert client.reply(slow[0])["created"] is True


def test_a_worker_that_is_killed_costs_nobody_anything(daemon: DaemonProcess, client: WireClient) -> None:
    held = claimed(client, PATTERN)
    (worker,) = workers(daemon.pid)
    os.kill(worker, signal.SIGKILL)
    assert client.call("complete", **held, result={"code": "A1"})["duplicate"] is False


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_no_worker_outlives_its_daemon(daemon: DaemonProcess, client: WireClient, end: str) -> None:
    dispatch(client, PATTERN)
    (worker,) = workers(daemon.pid)
    getattr(daemon, end)()
    wait_for(lambda: not alive(worker))


def test_the_worker_imports_nothing_from_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the current directory')")
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        with DaemonProcess(tmp_path / "data", env={"PYTHONSAFEPATH": "1"}) as daemon, WireClient(daemon.tcp) as client:
            assert dispatch(client, PATTERN)
    finally:
        os.chdir(before)


DEAR = {"items": {"anyOf": [{"type": "string", "pattern": "^(a|aa)+$"}, {"minimum": 5}]}}
DEAR_RESULT = ["a" * 100 + "b", *range(30_000)]
LONG_RESULT = {"n": 1, "s": "x" * 6_000}
"""Too long to be judged on the event loop, and judged in a moment."""


def test_an_honest_result_is_judged_before_dear_ones_that_came_earlier(connect: Connect) -> None:
    honest = connect()
    held = claimed(honest, {"properties": {"n": {"type": "integer"}}})
    strangers = [connect() for _ in range(5)]
    dear = []
    for number, stranger in enumerate(strangers):
        works = [claimed(stranger, DEAR, of=[number, which]) for which in range(4)]
        dear.append([stranger.send("complete", **work, result=DEAR_RESULT) for work in works])
    assert honest.call("complete", **held, result=LONG_RESULT)["duplicate"] is False
    answered = [stranger.answered(sent) for stranger, each in zip(strangers, dear, strict=True) for sent in each]
    assert sum(answered) <= 1, "what was in progress, perhaps"


def test_a_lease_is_not_lost_while_its_result_waits_for_its_verdict(daemon: DaemonProcess, connect: Connect) -> None:
    honest, stranger = connect(), connect()
    handoff = dispatch(honest, HANG)
    hanging = stranger.send("complete", **claimed(stranger, HANG, of="stranger"), result=HANGING_RESULT)
    wait_for(lambda: any(map(has_worked, workers(daemon.pid))))
    fence = honest.call("claim", worker="w", handoff=handoff, ttl_ms=2_000)["fence"]
    refused = honest.reply(honest.send("complete", handoff=handoff, fence=fence, result=HANGING_RESULT))
    assert refused["error"]["details"]["rule"] == "limit", "seconds later, and not lease_lost"
    assert honest.call("complete", handoff=handoff, fence=fence, result={"s": "a"})["duplicate"] is False
    assert stranger.reply(hanging)["error"]["details"]["rule"] == "limit"
    types = [record["type"] for record in honest.call("history", handoff=handoff)["records"]]
    assert types == ["dispatched", "claimed", "result_refused", "completed"]


def test_a_cancel_ends_a_hold_whose_result_waits_for_its_verdict(daemon: DaemonProcess, connect: Connect) -> None:
    worker, other = connect(), connect()
    held = claimed(worker, HANG)
    hanging = worker.send("complete", **held, result=HANGING_RESULT)
    wait_for(lambda: any(map(has_worked, workers(daemon.pid))))
    assert other.call("cancel", handoff=held["handoff"])["status"] == "cancelled"
    late = worker.reply(hanging)["error"]
    assert (late["code"], late["details"]["why"]) == ("lease_lost", "cancelled")
