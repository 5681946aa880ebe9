"""A handoff moves from one daemon to another over real sockets: whole, once, and nobody works on it in two places."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bundles import Line, encoded, exported, forged, with_payload, with_record
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

from .conftest import assert_no_mistake


@pytest.fixture
def target(tmp_path: Path) -> Iterator[DaemonProcess]:
    """Another daemon."""
    with DaemonProcess(tmp_path / "target") as running:
        yield running
    assert_no_mistake(running)


@pytest.fixture
def there(target: DaemonProcess) -> Iterator[WireClient]:
    with WireClient(target.tcp) as client:
        yield client


def half_done(client: WireClient, **members: Any) -> tuple[str, int]:
    """Work that has come to its third checkpoint."""
    handoff = client.dispatch(inputs={"pages": [1, 2, 3, 4]}, **members)
    fence: int = client.claim(handoff=handoff, worker="early", ttl_ms=60_000)["fence"]
    for done in range(3):
        client.call("checkpoint", handoff=handoff, fence=fence, state={"done": done}, usd=0.5)
    return handoff, fence


def test_work_goes_on_elsewhere_from_its_checkpoint(client: WireClient, there: WireClient) -> None:
    handoff, late = half_done(client, labels={"team": "é"}, budget={"max_steps": 10})
    client.call("effect_begin", handoff=handoff, fence=late, step="mail")
    client.call("effect_done", handoff=handoff, fence=late, step="mail", result={"id": 7})
    lines = exported(client, handoff)
    told = there.call("import", records=lines)
    assert (told["handoff"], told["created"]) == (handoff, True)
    here, moved = client.status(handoff), there.status(handoff)
    assert (here["status"], here["reason"]) == ("suspended", "exported")
    assert (moved["status"], moved["reason"], moved["lease_left_ms"]) == ("suspended", "imported", None)
    assert moved["fence"] >= here["fence"]
    same = ("kind", "attempt", "seq", "steps", "usd", "failures", "budget", "labels", "priority", "created_at")
    assert [moved[name] for name in same] == [here[name] for name in same]
    assert there.call("claim", worker="b", kinds=["work"])["handoff"] is None
    there.call("resume", handoff=handoff)
    grant = there.claim(worker="b")
    assert grant["fence"] > late
    assert (grant["checkpoint"]["seq"], grant["checkpoint"]["state"]) == (3, {"done": 2})
    assert there.call("effect_begin", handoff=handoff, fence=grant["fence"], step="mail")["result"] == {"id": 7}
    there.call("complete", handoff=handoff, fence=grant["fence"], result={"pages": 4})
    assert there.call("result", handoff=handoff)["result"] == {"pages": 4}


def test_the_source_runs_it_no_more_unless_told_with_force(client: WireClient, connect: Any, there: WireClient) -> None:
    worker = connect(session="worker")
    handoff, late = half_done(worker)
    client.call("export", handoff=handoff)
    event = worker.event()
    assert (event["event"], event["handoff"], event["why"]) == ("lease_lost", handoff, "suspended")
    for op, members in (("checkpoint", {"state": 1}), ("complete", {"result": 1}), ("release", {})):
        assert worker.refused(op, handoff=handoff, fence=late, **members).details["why"] == "suspended"
    assert client.refused("resume", handoff=handoff).code == "wrong_state"
    assert client.call("claim", worker="w", kinds=["work"])["handoff"] is None
    client.call("resume", handoff=handoff, force=True)
    assert client.claim(handoff=handoff)["checkpoint"]["seq"] == 3


def test_a_late_writer_of_the_source_is_refused_at_the_target(client: WireClient, there: WireClient) -> None:
    handoff, late = half_done(client)
    there.call("import", records=exported(client, handoff))
    assert there.refused("checkpoint", handoff=handoff, fence=late, state=1).code == "lease_lost"
    there.call("resume", handoff=handoff)
    fence = there.claim(handoff=handoff)["fence"]
    assert there.refused("complete", handoff=handoff, fence=late, result=1).details["why"] == "superseded"
    there.call("complete", handoff=handoff, fence=fence, result=2)


def test_final_work_keeps_its_result_and_its_history(client: WireClient, there: WireClient) -> None:
    handoff, fence = half_done(client)
    client.call("complete", handoff=handoff, fence=fence, result={"ok": [1.50, "é"]})
    client.call("ack", handoff=handoff)
    before = client.status(handoff)
    lines = exported(client, handoff)
    assert {**client.status(handoff), "position": 0, "updated_at": ""} == {**before, "position": 0, "updated_at": ""}
    there.call("import", records=lines)
    assert there.call("result", handoff=handoff)["result"] == {"ok": [1.5, "é"]}
    assert (
        there.call("checkpoints", handoff=handoff)["checkpoints"]
        == client.call("checkpoints", handoff=handoff)["checkpoints"]
    )
    mine, theirs = client.history(handoff), there.history(handoff)
    for record in (*mine, *theirs):
        del record["position"]
    assert mine[:-1] == theirs[:-1]
    assert [mine[-1]["type"], theirs[-1]["type"]] == ["exported", "imported"]


def test_it_survives_a_kill_on_both_sides(
    daemon: DaemonProcess, client: WireClient, target: DaemonProcess, there: WireClient
) -> None:
    handoff, _ = half_done(client)
    there.call("import", records=exported(client, handoff))
    before = there.status(handoff)
    daemon.kill()
    target.kill()
    daemon.start()
    target.start()
    with WireClient(daemon.tcp) as again, WireClient(target.tcp) as there_again:
        assert again.status(handoff)["reason"] == "exported"
        assert there_again.status(handoff) == before
        there_again.call("resume", handoff=handoff)
        assert there_again.claim(handoff=handoff)["checkpoint"]["state"] == {"done": 2}


def test_it_comes_back_longer(client: WireClient, there: WireClient) -> None:
    handoff, _ = half_done(client)
    there.call("import", records=exported(client, handoff))
    there.call("resume", handoff=handoff)
    fence = there.claim(handoff=handoff)["fence"]
    there.call("checkpoint", handoff=handoff, fence=fence, state={"done": 3})
    back = client.call("import", records=exported(there, handoff))
    assert (back["created"], back["taken"]) == (False, 4)
    assert client.call("last_checkpoint", handoff=handoff)["checkpoint"]["state"] == {"done": 3}
    client.call("resume", handoff=handoff)
    grant = client.claim(handoff=handoff)
    assert grant["fence"] > fence


def test_parts_belong_to_their_connection(target: DaemonProcess, client: WireClient, there: WireClient) -> None:
    handoff, _ = half_done(client)
    lines = exported(client, handoff)
    for line in lines[:-1]:
        reply = there.call("import", records=[line])
        assert set(reply) == {"id", "ok"}
    assert there.refused("status", handoff=handoff).code == "not_found"
    with WireClient(target.tcp) as other:
        assert other.refused("import", records=lines[-1:]).details["line"] == 1
    assert there.call("import", records=lines[-1:])["created"]


def test_parts_that_are_sent_at_once_are_taken_in_order(client: WireClient, there: WireClient) -> None:
    handoff, _ = half_done(client)
    lines = exported(client, handoff)
    sent = [there.send("import", records=[line]) for line in lines]
    asked = there.send("status", handoff=handoff)
    assert there.result(sent[-1])["created"]
    assert there.result(asked)["status"] == "suspended", "it was asked about after it had come"
    for number in sent[:-1]:
        there.result(number)


def test_only_so_many_bundles_are_on_their_way_in(target: DaemonProcess, client: WireClient, there: WireClient) -> None:
    handoff, _ = half_done(client)
    lines = exported(client, handoff)
    others = [WireClient(target.tcp) for _ in range(8)]
    for other in others:
        other.call("import", records=lines[:1])
    assert there.refused("import", records=lines).code == "overloaded"
    assert others[0].call("import", records=lines[1:])["created"]
    assert not there.call("import", records=lines)["created"]
    for other in others:
        other.close()


def test_a_connection_that_ends_in_the_middle_leaves_nothing(
    target: DaemonProcess, client: WireClient, there: WireClient
) -> None:
    handoff, _ = half_done(client)
    lines = exported(client, handoff)
    with WireClient(target.tcp) as other:
        other.call("import", records=lines[:-1])
        other.reset()
    assert there.refused("status", handoff=handoff).code == "not_found"
    assert there.call("import", records=lines)["created"]


@pytest.mark.parametrize("damage", ["changed", "missing", "doubled", "swapped", "after the end", "no envelope"])
def test_a_damaged_bundle_is_refused_by_its_line_and_changes_nothing(
    client: WireClient, there: WireClient, damage: str
) -> None:
    handoff, _ = half_done(client)
    lines = exported(client, handoff)
    wrong = 4
    match damage:
        case "changed":
            lines[3]["record"]["steps"] = 9
        case "missing":
            del lines[3]
        case "doubled":
            lines.insert(3, lines[2])
        case "swapped":
            lines[3], lines[4] = lines[4], lines[3]
        case "after the end":
            lines.append(lines[3])
            wrong = len(lines)
        case "no envelope":
            del lines[0]
            wrong = 1
    refusal = there.refused("import", records=lines)
    assert (refusal.code, refusal.details) == ("invalid_request", {"member": "records", "line": wrong})
    assert there.refused("status", handoff=handoff).code == "not_found"
    assert there.call("stats")["records"] == 0


def test_a_forged_budget_is_refused(client: WireClient, there: WireClient) -> None:
    handoff, _ = half_done(client, budget={"max_steps": 10})
    lines = exported(client, handoff)
    refusal = there.refused(
        "import", records=with_record(lines, 2, lambda record: record["budget"].update(max_steps=10_000))
    )
    assert (refusal.code, refusal.details["line"]) == ("invalid_request", 2)


def test_a_schema_and_a_result_are_looked_at_as_they_would_be_here(client: WireClient, there: WireClient) -> None:
    handoff = client.dispatch(output_schema={"type": "object", "required": ["sum"]})
    fence = client.claim()["fence"]
    client.call("complete", handoff=handoff, fence=fence, result={"sum": 1})
    lines = exported(client, handoff)
    number = next(number for number, line in enumerate(lines, 1) if line.get("record", {}).get("type") == "completed")
    unfit = forged([*lines[: number - 1], with_payload(lines[number - 1], '{"total":1}'), *lines[number:]])
    refusal = there.refused("import", records=unfit)
    assert (refusal.code, refusal.details["line"]) == ("invalid_request", number)
    assert there.call("import", records=lines)["created"]


def test_large_states_make_pages_that_fit_frames(client: WireClient, there: WireClient) -> None:
    handoff = client.dispatch()
    fence = client.claim(ttl_ms=60_000)["fence"]
    states = ['"' * 700_000, {"text": "x" * 900_000}, {"é": ["\\" * 400_000]}]
    for state in states:
        client.call("checkpoint", handoff=handoff, fence=fence, state=state)
    pages: list[list[Line]] = []
    page: dict[str, Any] = {"next": None}
    while not pages or page["next"] is not None:
        after = {} if page["next"] is None else {"after": page["next"]}
        page = client.call("export", handoff=handoff, **after)
        pages.append(page["records"])
    assert len(pages) >= 3
    for lines in pages:
        told = there.call("import", records=lines)
    assert told["created"]
    kept = there.call("checkpoints", handoff=handoff, limit=1)
    assert kept["checkpoints"][0]["state"] == states[0]
    there.call("resume", handoff=handoff)
    assert there.claim()["checkpoint"]["state"] == states[2]


def test_a_bundle_outlives_other_programs_that_read_and_write_it(client: WireClient, there: WireClient) -> None:
    """Spaces, escapes and the order of members are a JSON library's own business."""
    handoff = client.dispatch(inputs={"a": "é"}, labels={"é": "ü"})
    fence = client.claim()["fence"]
    client.call("checkpoint", handoff=handoff, fence=fence, state={"x": "ü"})
    lines = [json.loads(json.dumps(line, sort_keys=True, indent=1)) for line in exported(client, handoff)]
    assert there.call("import", records=lines)["created"]
    there.call("resume", handoff=handoff)
    assert there.claim()["checkpoint"]["state"] == {"x": "ü"}


def test_two_connections_bring_the_same_at_once(target: DaemonProcess, client: WireClient, there: WireClient) -> None:
    handoff, _ = half_done(client)
    lines = exported(client, handoff)
    told: list[bool] = []

    def bring_in() -> None:
        with WireClient(target.tcp) as other:
            told.append(other.call("import", records=lines)["created"])

    threads = [threading.Thread(target=bring_in) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == [False, False, False, True]
    assert [record["type"] for record in there.history(handoff)].count("imported") == 1


def test_a_bundle_beyond_the_bounds_is_refused(tmp_path: Path, client: WireClient) -> None:
    handoff, _ = half_done(client)
    lines = exported(client, handoff)
    size = sum(len(line) for line in encoded(lines))
    environment = {"DHPD_MAX_BUNDLE_BYTES": str(size // 2)}
    with DaemonProcess(tmp_path / "small", env=environment) as small, WireClient(small.tcp) as other:
        assert other.call("hello")["limits"]["max_bundle_bytes"] == size // 2
        refusal = other.refused("import", records=lines)
        assert (refusal.code, refusal.details["limit"]) == ("too_large", size // 2)
        assert_no_mistake(small)
