"""`dhp conform` finds things: each of these faulty daemons fails exactly the points that name its fault."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dhp_client.addresses import parse_address
from dhp_client.conform.bench import Target, learn_terms
from dhp_client.conform.catalogue import chosen
from dhp_client.conform.run import outcomes
from tests.support.daemon_process import DaemonProcess

from .middleman import Message, Middleman, Rewrite, framed


def code_of(answer: Message) -> str:
    return str(answer.get("error", {}).get("code", ""))


def details_of(answer: Message) -> Message:
    details: Message = answer.get("error", {}).get("details", {})
    return details


def with_details(answer: Message, **changed: Any) -> Message:
    return {**answer, "error": {**answer["error"], "details": {**details_of(answer), **changed}}}


def forgets_to_raise_the_fence(request: Message, answer: Message) -> Message | None:
    """A suspension leaves the fence as it was."""
    return (
        {**answer, "fence": answer["fence"] - 1} if answer.get("status") == "suspended" and "fence" in answer else None
    )


def takes_late(op: str) -> Rewrite:
    """This operation doesn't look at the fence: whoever had it once may write."""

    def rewrite(request: Message, answer: Message) -> Message | None:
        if request.get("op") == op and code_of(answer) == "lease_lost" and details_of(answer)["why"] == "superseded":
            return {"id": answer["id"], "ok": True, "seq": 1, "sha256": "0" * 64, "duplicate": False}
        return None

    return rewrite


def ends_leases_late(request: Message, answer: Message) -> Message | None:
    """A lease ends when a scan finds it, not at its deadline."""
    if request.get("op") == "spend" and details_of(answer).get("why") == "expired":
        return {"id": answer["id"], "ok": True, "usd": 0, "steps": 1}
    return None


def numbers_are_doubles(request: Message, answer: Message) -> Message | None:
    """An id goes through a double."""
    request_id = answer.get("id")
    return {**answer, "id": int(float(request_id))} if isinstance(request_id, int) and abs(request_id) > 2**53 else None


def answers_bare(request: Message, answer: Message) -> bytes:
    """Every answer is in the bare form."""
    return framed(answer, counted=False)


def hashes_in_capitals(request: Message, answer: Message) -> Message | None:
    """A checkpoint's hash is told in capitals."""
    return {**answer, "sha256": answer["sha256"].upper()} if "sha256" in answer else None


def reads_and_writes_payloads(request: Message, answer: Message) -> Message | None:
    """A state is decoded and encoded again."""
    return answer if request.get("op") == "last_checkpoint" else None


def doubles_the_third_event() -> Rewrite:
    """A watch that goes from replay to following shows one record twice."""
    count = threading.local()

    def rewrite(request: Message, answer: Message) -> list[Message] | None:
        if answer.get("event") != "record":
            return None
        count.value = getattr(count, "value", 0) + 1
        return [answer, answer] if count.value == 3 else None

    return rewrite


def loses_the_third_event() -> Rewrite:
    """A watch that goes from replay to following leaves one record out."""
    doubles = doubles_the_third_event()

    def rewrite(request: Message, answer: Message) -> list[Message] | None:
        return [] if doubles(request, answer) is not None else None

    return rewrite


def drops_what_it_doesnt_know(request: Message, answer: Message) -> Message | None:
    """A claim's misspelt member is dropped in silence."""
    is_so = request.get("op") == "claim" and details_of(answer).get("member") == "wiat_ms"
    return {"id": answer["id"], "ok": True, "handoff": None} if is_so else None


def counts_no_tries(request: Message, answer: Message) -> Message | None:
    """Each result that doesn't fit leaves as many tries as before."""
    return with_details(answer, left=2) if code_of(answer) == "result_invalid" else None


def knows_no_duplicate(request: Message, answer: Message) -> Message | None:
    """complete sent again isn't told apart."""
    return {**answer, "duplicate": False} if request.get("op") == "complete" and answer.get("duplicate") else None


def lets_the_asker_decide(request: Message, answer: Message) -> Message | None:
    """Whoever asked for an approval may give it."""
    if request.get("op") == "approval_decide" and code_of(answer) == "forbidden":
        return {"id": answer["id"], "ok": True, "decision": "approved", "by": None, "note": None, "at": None}
    return None


def has_one_page(request: Message, answer: Message) -> Message | None:
    """A page tells that it is the last one."""
    return {**answer, "next": None} if answer.get("next") is not None else None


def keeps_one_order(request: Message, answer: Message) -> Message | None:
    """The newest aren't first, whatever was asked for."""
    return {**answer, "handoffs": answer["handoffs"][::-1]} if request.get("newest_first") else None


def hides_a_limit(request: Message, answer: Message) -> Message | None:
    """hello doesn't tell one of the limits."""
    if "limits" not in answer:
        return None
    return {**answer, "limits": {name: limit for name, limit in answer["limits"].items() if name != "max_effects"}}


def tells_no_retry(request: Message, answer: Message) -> Message | None:
    """An error doesn't tell whether trying again helps."""
    if code_of(answer) != "not_found":
        return None
    return {**answer, "error": {name: value for name, value in answer["error"].items() if name != "retry"}}


def adds_up_in_doubles(request: Message, answer: Message) -> Message | None:
    """Money is added up as doubles are."""
    if request.get("op") == "spend" and answer.get("usd") == 0.3:
        return {**answer, "usd": 0.1 + 0.2}
    return None


def blames_the_child(request: Message, answer: Message) -> Message | None:
    """A cap of an ancestor is told as the handoff's own."""
    return with_details(answer, whose=request["handoff"]) if code_of(answer) == "budget_exceeded" else None


def names_the_line_before(request: Message, answer: Message) -> Message | None:
    """The line of a bundle that was tampered with is counted from 0."""
    return with_details(answer, line=details_of(answer)["line"] - 1) if "line" in details_of(answer) else None


def is_no_json(request: Message, answer: Message) -> bytes | None:
    """A lone answer isn't JSON."""
    return b"{'ok': true}\n" if request.get("op") == "health" else None


FAULTS: list[tuple[Rewrite, tuple[str, ...], set[str]]] = [
    (
        forgets_to_raise_the_fence,
        ("fences/rises*", "fences/waking*"),
        {
            "fences/rises-by-1:-suspend-with-the-fence",
            "fences/rises-by-1:-suspend-pending-work",
            "fences/rises-by-1:-suspend-running-work",
            "fences/rises-by-1:-export-pending-work",
            "fences/rises-by-1:-export-running-work",
            "fences/rises-by-1:-resume",
            "fences/rises-by-1:-cancel-suspended-work",
        },
    ),
    (takes_late("checkpoint"), ("fences/late*", "fences/early*", "fences/every*"), {"fences/late:-checkpoint"}),
    (takes_late("effect_done"), ("fences/late*", "fences/any*"), {"fences/late:-effect-done"}),
    (ends_leases_late, ("leases/over*", "leases/a-status*"), {"leases/over-at-its-deadline:-spend"}),
    (numbers_are_doubles, ("requests/the-id*", "requests/an-*"), {"requests/the-id-is-echoed"}),
    (
        answers_bare,
        ("frames/a-*", "frames/p*", "frames/w*", "frames/e*"),
        {
            "frames/a-reply-has-the-form-of-its-request",
            "frames/pipelined-forms-are-kept-apart",
            "frames/empty-lines-are-skipped",
            "frames/what-is-no-frame-is-answered-in-the-last-form",
        },
    ),
    (
        hashes_in_capitals,
        ("checkpoints",),
        {
            "checkpoints/seqs-count-from-1",
            "checkpoints/a-wrong-hash-is-a-conflict",
            "checkpoints/payloads-are-kept-byte-for-byte",
        },
    ),
    (reads_and_writes_payloads, ("checkpoints",), {"checkpoints/payloads-are-kept-byte-for-byte"}),
    (
        doubles_the_third_event(),
        ("watch",),
        {
            "watch/a-watch-replays-without-gap-or-doubling",
            "watch/a-watch-follows-from-its-position",
            "watch/a-watch-shows-only-what-was-asked-for",
        },
    ),
    (
        loses_the_third_event(),
        ("watch/a-watch-[rf]*", "watch/a-connection*"),
        {"watch/a-watch-replays-without-gap-or-doubling", "watch/a-watch-follows-from-its-position"},
    ),
    (drops_what_it_doesnt_know, ("requests/unknown*",), {"requests/unknown-member:-claim"}),
    (
        counts_no_tries,
        ("ends/a-*", "ends/the-last*", "ends/complete*"),
        {"ends/a-result-that-doesnt-fit-can-be-mended", "ends/the-last-result-that-doesnt-fit-is-dead"},
    ),
    (
        knows_no_duplicate,
        ("ends/complete*", "ends/what-ended*", "ends/a-*"),
        {"ends/complete-again-with-the-same-bytes-is-a-duplicate"},
    ),
    (lets_the_asker_decide, ("approvals",), {"approvals/whoever-asked-or-holds-the-work-never-decides"}),
    (
        has_one_page,
        ("looking",),
        {"looking/pages-go-on-where-the-last-one-ended", "looking/a-list-turns-round-and-finds-beginnings"},
    ),
    (keeps_one_order, ("looking/a-list*",), {"looking/a-list-turns-round-and-finds-beginnings"}),
    (hides_a_limit, ("hello/hello*", "hello/a-*"), {"hello/hello-tells-every-limit"}),
    (
        tells_no_retry,
        ("requests/what*", "requests/an-*", "parents/a-parent*"),
        {
            "requests/what-there-isnt-is-not-found",
            "requests/an-error-echoes-the-id",
            "parents/a-parent-must-be-there-and-not-be-final",
        },
    ),
    (adds_up_in_doubles, ("budgets/m*", "budgets/s*"), {"budgets/money-may-be-reached-not-passed"}),
    (blames_the_child, ("parents", "budgets/s*"), {"parents/a-child-counts-against-its-ancestors-caps"}),
    (
        names_the_line_before,
        ("moving/a-*", "moving/what*"),
        {"moving/a-line-that-was-tampered-with-is-told-by-its-number"},
    ),
    (is_no_json, ("looking/h*", "looking/s*"), {"looking/health-tells-how-it-is"}),
]


@pytest.fixture(scope="module")
def terms_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("faults") / "data") as running:
        yield running


def failed(daemon: DaemonProcess, line: str, patterns: tuple[str, ...]) -> dict[str, str]:
    """The names of the points that fail, and what came."""
    points = chosen(patterns)
    assert len(points) > 1
    terms = learn_terms(Target(address=parse_address(daemon.tcp)))
    target = Target(address=parse_address(line), answer_within_ms=10_000)
    found = outcomes(points, target, terms, drains=False, all_points=False)
    return {one.name: str(one.came) for one in found if one.outcome == "failed"}


@pytest.mark.parametrize(
    ("rewrite", "patterns", "named"),
    FAULTS,
    ids=[f"{fault.__qualname__.split('.')[0]}-{n}" for n, (fault, _, _) in enumerate(FAULTS)],
)
def test_a_faulty_daemon_fails_the_points_that_name_its_fault(
    rewrite: Rewrite, patterns: tuple[str, ...], named: set[str], terms_daemon: DaemonProcess
) -> None:
    with Middleman(terms_daemon.tcp, rewrite) as line:
        assert failed(terms_daemon, line.address, patterns).keys() == named


def test_a_daemon_that_closes_where_it_should_go_on_is_found(terms_daemon: DaemonProcess) -> None:
    with Middleman(terms_daemon.tcp, lambda request, answer: None, closes_after="bad_json") as line:
        found = failed(terms_daemon, line.address, ("frames/len*", "frames/w*", "frames/a-l*", "frames/b*"))
    assert found.keys() == {
        "frames/len-0-is-bad-json",
        "frames/what-is-no-object-is-bad-json",
        "frames/what-isnt-utf8-is-bad-json",
        "frames/broken-json-is-bad-json",
    }


def test_a_daemon_that_falls_silent_is_given_up(terms_daemon: DaemonProcess) -> None:
    with Middleman(terms_daemon.tcp, lambda request, answer: []) as line:
        terms = learn_terms(Target(address=parse_address(terms_daemon.tcp)))
        target = Target(address=parse_address(line.address), answer_within_ms=100)
        points = chosen(("frames", "claims", "effects", "checkpoints"))
        found = list(outcomes(points, target, terms, drains=False, all_points=False))
    assert {one.outcome for one in found} == {"failed", "skipped"}
    assert found[-1].reason == "the daemon doesn't answer any more"


def test_a_line_that_changes_nothing_fails_nothing(terms_daemon: DaemonProcess) -> None:
    with Middleman(terms_daemon.tcp, lambda request, answer: None) as line:
        assert failed(terms_daemon, line.address, ("frames/a-r*", "checkpoints", "effects", "looking")) == {}


def test_a_failed_point_tells_what_was_expected_and_what_came(terms_daemon: DaemonProcess) -> None:
    with Middleman(terms_daemon.tcp, knows_no_duplicate) as line:
        target = Target(address=parse_address(line.address))
        points = chosen(("ends/complete*",))
        (outcome,) = outcomes(points, target, learn_terms(target), drains=False, all_points=False)
    assert (outcome.expected, outcome.came) == ("duplicate to be true", "false")
    assert outcome.section == "10 Promises and retries"
    assert outcome.left == []
