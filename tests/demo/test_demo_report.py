"""Each claim of the demo: it holds for a good run, and a run that went otherwise is told."""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dhp_client.demo.dataset import csv_of, result_of, row_of
from dhp_client.demo.report import KILLED, Evidence, Request, checks, takeover

PAGES = [f"http://127.0.0.1:1/{name}" for name in ("one", "two", "three", "four")]
BODIES = {page: f"<title>{page}</title>".encode() for page in PAGES}
KILL_AT = 3


def request(event: str, page: str, worker: str, at_ms: int = 0) -> Request:
    sha256 = hashlib.sha256(BODIES[page]).hexdigest() if event == "finished" else ""
    return msgspec.convert({"at_ms": at_ms, "event": event, "page": page, "worker": worker, "sha256": sha256}, Request)


def good_run() -> Evidence:
    requests = []
    for page in PAGES[: KILL_AT - 1]:
        requests += [request("begun", page, "a"), request("finished", page, "a")]
    requests.append(request("begun", PAGES[KILL_AT - 1], "a"))
    requests.append(request("cut", PAGES[KILL_AT - 1], "a"))
    for page in PAGES[KILL_AT - 1 :]:
        requests += [request("begun", page, "b"), request("finished", page, "b", at_ms=1_350)]
    result = result_of([row_of(page, 200, BODIES[page]) for page in PAGES])
    return Evidence(
        urls=PAGES,
        kill_at=KILL_AT,
        graceful=False,
        worker="a",
        standby="b",
        worker_exit_code=KILLED,
        requests=requests,
        records=[
            {"type": "dispatched", "fence": 0},
            {"type": "claimed", "fence": 1, "worker": "a"},
            {"type": "checkpointed", "fence": 1},
            {"type": "checkpointed", "fence": 1},
            {"type": "orphaned", "fence": 2, "worker": "a"},
            {"type": "claimed", "fence": 3, "worker": "b"},
            {"type": "checkpointed", "fence": 3},
            {"type": "checkpointed", "fence": 3},
            {"type": "completed", "fence": 3, "worker": "b"},
        ],
        status="completed",
        seq=len(PAGES),
        failures=1,
        result=result,
        csv=csv_of(result["rows"]),
        killed_at_ms=1_000,
        claimed_at_ms=1_300,
    )


def changed(**members: Any) -> Evidence:
    return msgspec.structs.replace(good_run(), **members)


def claims_not_so(evidence: Evidence) -> list[str]:
    return [check.claim for check in checks(evidence) if not check.ok]


def test_every_claim_of_a_good_run_is_so() -> None:
    assert claims_not_so(good_run()) == []


def test_every_claim_of_a_good_graceful_run_is_so() -> None:
    records = good_run().records
    records[4] = {"type": "released", "fence": 2, "worker": "a"}
    assert claims_not_so(changed(graceful=True, worker_exit_code=0, failures=0, records=records)) == []


def test_takeover_is_told_from_the_kill_to_the_claim_and_to_the_first_page() -> None:
    told = takeover(good_run())
    assert (told.claim_ms, told.first_page_ms) == (300, 350)


def without_result(run: Evidence) -> Evidence:
    return msgspec.structs.replace(run, result=None, csv=csv_of([]))


def rows_changed(run: Evidence, **members: Any) -> Evidence:
    assert run.result is not None
    rows: list[Any] = [{**run.result["rows"][0], **members}, *run.result["rows"][1:]]
    return msgspec.structs.replace(run, result=result_of(rows), csv=csv_of(rows))


def requests_and(run: Evidence, *more: Request) -> Evidence:
    return msgspec.structs.replace(run, requests=[*run.requests, *more])


def without_request(run: Evidence, event: str, page: str, worker: str) -> Evidence:
    kept = [r for r in run.requests if (r.event, r.page, r.worker) != (event, page, worker)]
    return msgspec.structs.replace(run, requests=kept)


def records_changed(run: Evidence, at: int, record: dict[str, Any]) -> Evidence:
    return msgspec.structs.replace(run, records=[*run.records[:at], record, *run.records[at + 1 :]])


FAULTS: dict[str, tuple[Callable[[Evidence], Evidence], str]] = {
    "the worker ended by itself": (
        lambda run: msgspec.structs.replace(run, worker_exit_code=0),
        "middle of its request",
    ),
    "the request had been answered": (
        lambda run: requests_and(run, request("finished", PAGES[2], "a")),
        "middle of its request",
    ),
    "the standby began anew": (lambda run: requests_and(run, request("begun", PAGES[0], "b")), "went on at page 3"),
    "the standby left a page out": (lambda run: without_request(run, "begun", PAGES[2], "b"), "went on at page 3"),
    "a finished page was asked for again": (
        lambda run: requests_and(run, request("begun", PAGES[0], "a")),
        "no finished page a second time",
    ),
    "a page was finished twice": (
        lambda run: requests_and(run, request("finished", PAGES[3], "b")),
        "no finished page a second time",
    ),
    "a page was never finished": (
        lambda run: without_request(run, "finished", PAGES[3], "b"),
        "no finished page a second time",
    ),
    "there is no result": (without_result, "a row for each page"),
    "it is dead": (lambda run: msgspec.structs.replace(run, status="dead"), "a row for each page"),
    "a page wasn't found": (lambda run: rows_changed(run, status=404), "answered with 200"),
    "a row is of another page": (lambda run: rows_changed(run, url="http://elsewhere/"), "a row for each page"),
    "a row isn't what was sent": (lambda run: rows_changed(run, sha256="0" * 64), "as it was sent"),
    "the file is another one": (lambda run: msgspec.structs.replace(run, csv=b"url\r\n"), "CSV file"),
    "a checkpoint is missing": (lambda run: msgspec.structs.replace(run, seq=3), "one checkpoint"),
    "the worker claimed again": (
        lambda run: records_changed(run, 5, {"type": "claimed", "fence": 3, "worker": "a"}),
        "history",
    ),
    "it was handed back": (
        lambda run: records_changed(run, 4, {"type": "released", "fence": 2, "worker": "a"}),
        "history",
    ),
    "the fence fell": (lambda run: records_changed(run, 7, {"type": "checkpointed", "fence": 1}), "fence never fell"),
    "the fence stayed": (
        lambda run: records_changed(run, 5, {"type": "claimed", "fence": 1, "worker": "b"}),
        "fence never fell",
    ),
    "two attempts were spent": (lambda run: msgspec.structs.replace(run, failures=2), "cost one attempt"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_that_went_otherwise_is_told(fault: str) -> None:
    damage, claim = FAULTS[fault]
    assert any(claim in wrong for wrong in claims_not_so(damage(good_run())))


def test_a_graceful_run_that_cost_an_attempt_is_told() -> None:
    assert "handing back cost no attempt" in claims_not_so(changed(graceful=True))
