"""What the demo claims, checked one by one against what is known.

Pure: takes the log of requests, the handoff's history, its result and the file on disk, and says what is so.
"""

import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

import msgspec

from dhp_client.checks import Check

from .dataset import Result

KILLED = -9


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the request log. `cut`: the client went away before it had the whole answer."""

    at_ms: int
    event: Literal["begun", "finished", "cut"]
    page: str
    worker: str
    sha256: str = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run leaves behind. Pages count from 1; times are milliseconds since the epoch."""

    urls: list[str]
    kill_at: int
    graceful: bool
    worker: str
    standby: str
    worker_exit_code: int
    requests: list[Request]
    records: list[dict[str, Any]]
    status: str
    seq: int
    failures: int
    result: Result | None
    csv: bytes
    killed_at_ms: int
    claimed_at_ms: int


class Takeover(msgspec.Struct, frozen=True):
    """From the kill to the standby's claim, and to the first page that it finished (None: it finished none)."""

    claim_ms: int
    first_page_ms: int | None


def checks(evidence: Evidence) -> list[Check]:
    """Every claim of the demo, in the order of events."""
    return [check(evidence) for check in _CHECKS]


def takeover(evidence: Evidence) -> Takeover:
    """How long it took."""
    by_standby = (r for r in evidence.requests if r.event == "finished" and r.worker == evidence.standby)
    first = next(by_standby, None)
    return Takeover(
        claim_ms=evidence.claimed_at_ms - evidence.killed_at_ms,
        first_page_ms=None if first is None else first.at_ms - evidence.killed_at_ms,
    )


def _ended_mid_request(evidence: Evidence) -> Check:
    page = evidence.urls[evidence.kill_at - 1]
    begun = page in _pages(evidence, "begun", evidence.worker)
    finished = page in _pages(evidence, "finished", evidence.worker)
    expected = 0 if evidence.graceful else KILLED
    how = "handed the work back on SIGTERM" if evidence.graceful else "was killed by kill -9"
    return Check(
        begun and not finished and evidence.worker_exit_code == expected,
        f"{evidence.worker} {how} in the middle of its request for page {evidence.kill_at}",
        f"request {'begun' if begun else 'not begun'}, {'finished' if finished else 'never finished'}, "
        f"exit code {evidence.worker_exit_code}",
    )


def _went_on_there(evidence: Evidence) -> Check:
    asked = _pages(evidence, "begun", evidence.standby)
    first = evidence.urls.index(asked[0]) + 1 if asked and asked[0] in evidence.urls else None
    return Check(
        asked == evidence.urls[evidence.kill_at - 1 :],
        f"{evidence.standby} went on at page {evidence.kill_at} and fetched the rest in order",
        f"{len(asked)} requests, the first for page {first}",
    )


def _none_twice(evidence: Evidence) -> Check:
    finished: set[str] = set()
    again: list[str] = []
    for request in evidence.requests:
        if request.event == "finished" and request.page not in finished:
            finished.add(request.page)
        elif request.event != "cut" and request.page in finished:
            again.append(request.page)
    found = f"pages finished: {len(finished)}, requests cut off: {_cut_off(evidence)}"
    return Check(
        not again and finished == set(evidence.urls),
        "every page was fetched, and no finished page a second time",
        found + (f", again: {', '.join(dict.fromkeys(again))}" if again else ""),
    )


def _rows_complete(evidence: Evidence) -> Check:
    rows = [] if evidence.result is None else evidence.result["rows"]
    odd = [f"page {number}: {row['status']}" for number, row in enumerate(rows, start=1) if row["status"] != 200]
    return Check(
        evidence.status == "completed" and [row["url"] for row in rows] == evidence.urls and not odd,
        "the work is completed, with a row for each page, each answered with 200",
        f"{evidence.status}, {len(rows)} rows" + (f", {'; '.join(odd[:5])}" if odd else ""),
    )


def _rows_as_served(evidence: Evidence) -> Check:
    served = {request.page: request.sha256 for request in evidence.requests if request.event == "finished"}
    rows = [] if evidence.result is None else evidence.result["rows"]
    same = sum(served.get(row["url"]) == row["sha256"] for row in rows)
    return Check(
        same == len(evidence.urls),
        "each row's SHA-256 is that of the page as it was sent, whoever fetched it",
        f"{same} of {len(evidence.urls)}",
    )


def _csv_named(evidence: Evidence) -> Check:
    digest = hashlib.sha256(evidence.csv).hexdigest()
    named = "" if evidence.result is None else evidence.result["csv_sha256"]
    return Check(digest == named, "the CSV file is the one that the result names", f"sha256 {digest[:16]}…")


def _all_kept(evidence: Evidence) -> Check:
    pages = len(evidence.urls)
    return Check(evidence.seq == pages, "one checkpoint was kept for each page", f"{evidence.seq} of {pages}")


def _history(evidence: Evidence) -> Check:
    told = [(record["type"], record.get("worker")) for record in evidence.records if record["type"] != "checkpointed"]
    handed = "released" if evidence.graceful else "orphaned"
    expected = [
        ("dispatched", None),
        ("claimed", evidence.worker),
        (handed, evidence.worker),
        ("claimed", evidence.standby),
        ("completed", evidence.standby),
    ]
    return Check(
        told == expected,
        f"its history tells the same: claimed, {handed}, claimed, completed",
        ", ".join(f"{kind} ({worker})" if worker else kind for kind, worker in told),
    )


def _fences(evidence: Evidence) -> Check:
    fences = [record["fence"] for record in evidence.records]
    claims = [record["fence"] for record in evidence.records if record["type"] == "claimed"]
    rising = all(a <= b for a, b in pairwise(fences)) and all(a < b for a, b in pairwise(claims))
    return Check(
        bool(fences) and rising,
        "the fence never fell, and rose with the second claim",
        "claims under " + ", ".join(str(fence) for fence in claims),
    )


def _cost(evidence: Evidence) -> Check:
    expected = 0 if evidence.graceful else 1
    claim = "handing back cost no attempt" if evidence.graceful else "the kill cost one attempt"
    return Check(evidence.failures == expected, claim, f"failures: {evidence.failures}")


_CHECKS: Sequence[Callable[[Evidence], Check]] = (
    _ended_mid_request,
    _went_on_there,
    _none_twice,
    _rows_complete,
    _rows_as_served,
    _csv_named,
    _all_kept,
    _history,
    _fences,
    _cost,
)


def _pages(evidence: Evidence, event: str, worker: str) -> list[str]:
    return [request.page for request in evidence.requests if request.event == event and request.worker == worker]


def _cut_off(evidence: Evidence) -> int:
    begun = sum(request.event == "begun" for request in evidence.requests)
    return begun - sum(request.event == "finished" for request in evidence.requests)
