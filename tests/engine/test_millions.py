"""What makes a million live handoffs bearable: shared parts, nothing for the garbage collector to walk through."""

import gc
from collections.abc import Callable

from msgspec.structs import replace

from dhpd.engine.budget import Budget
from dhpd.engine.facts import RUNNING, CheckpointFacts, Handoff, Hold
from dhpd.engine.leases import Leases
from dhpd.engine.ledger import Ledger
from dhpd.engine.sessions import Sessions
from dhpd.engine.sharing import MAX_SHARED, SharedParts
from tests.engine.test_claim_queue import handoff

NOW_MS = 1_000_000
MANY = 2_000


def copy(text: str) -> str:
    """An equal string that is another object."""
    return "".join(list(text))


def held(number: int) -> Handoff:
    hold = Hold(copy("ada"), copy("session"), 1, 100_000 + number, NOW_MS, "pending", f"nonce-{number}", False)
    return replace(handoff(number), status=RUNNING, fence=1, attempt=1, hold=hold)


def tracked_more(work: Callable[[], object]) -> int:
    """How many more objects the garbage collector has to walk through after `work`."""
    gc.collect()
    before = len(gc.get_objects())
    kept = work()
    gc.collect()
    after = len(gc.get_objects())
    del kept
    return after - before


def test_a_pending_handoff_is_nothing_for_the_garbage_collector() -> None:
    def work() -> Ledger:
        ledger = Ledger()
        for number in range(MANY):
            ledger.put(handoff(number).id, handoff(number), NOW_MS)
        return ledger

    assert tracked_more(work) < MANY / 10


def test_a_delayed_handoff_is_nothing_for_the_garbage_collector() -> None:
    def work() -> Ledger:
        ledger = Ledger()
        ledger.take_up((replace(handoff(number), not_before_ms=NOW_MS + 10**6) for number in range(MANY)), NOW_MS)
        return ledger

    assert tracked_more(work) < MANY / 10


def test_a_running_handoff_is_nothing_for_the_garbage_collector() -> None:
    def work() -> tuple[Ledger, Leases, Sessions]:
        ledger, leases, sessions = Ledger(), Leases(), Sessions(lambda: "fresh")
        for number in range(MANY):
            facts = held(number)
            ledger.put(facts.id, facts, NOW_MS)
            sessions.attach(leases.grant(facts, 0))
        return ledger, leases, sessions

    assert tracked_more(work) < MANY / 10


def test_equal_parts_of_new_work_are_one_object() -> None:
    ledger = Ledger()
    for number in range(2):
        facts = replace(
            handoff(number, kind=copy("work")), budget=Budget(max_steps=10**6), labels={copy("team"): copy("red")}
        )
        ledger.put(facts.id, facts, NOW_MS)
    one, other = ledger
    assert one.kind is other.kind
    assert one.budget is other.budget
    assert one.labels is other.labels
    assert (other.kind, other.budget, other.labels) == ("work", Budget(max_steps=10**6), {"team": "red"})


def test_equal_parts_of_new_holds_are_one_object() -> None:
    ledger = Ledger()
    for number in range(2):
        ledger.put(handoff(number).id, handoff(number), NOW_MS)
        ledger.put(handoff(number).id, held(number), NOW_MS)
    one, other = (facts.hold for facts in ledger)
    assert one is not None
    assert other is not None
    assert one.worker is other.worker
    assert one.session is other.session
    assert (one.ttl_ms, other.ttl_ms) == (100_000, 100_001)


def test_what_is_not_equal_stays_as_it_is() -> None:
    several = [
        replace(handoff(1, kind="a"), budget=Budget(max_attempts=1), labels={"a": "b", "c": "d"}),
        replace(handoff(2, kind="b"), budget=Budget(max_attempts=2), labels={"c": "d", "a": "b"}),
        replace(held(3), checkpoint=CheckpointFacts(1, "hash", 10**6, NOW_MS + 1), first_claimed_at_ms=NOW_MS + 2),
        replace(held(4), checkpoint=CheckpointFacts(1, "hash", 4, 0), first_claimed_at_ms=NOW_MS),
    ]
    before = [replace(facts) for facts in several]
    labels = [list(facts.labels or {}) for facts in several]
    SharedParts().in_new(several)
    assert several == before
    assert [list(facts.labels or {}) for facts in several] == labels


def test_parts_that_are_all_different_are_not_remembered_for_ever() -> None:
    shared = SharedParts()
    shared.in_new(handoff(number, kind=f"kind-{number}") for number in range(3 * MAX_SHARED))
    assert len(shared._known) <= MAX_SHARED


def test_a_hold_finds_its_own_lease_while_others_of_its_handoff_are_still_there() -> None:
    """The end of a hold may not be on disk yet when the next one begins, and the ends come to the disk in any order."""
    leases = Leases()
    holds = [
        replace(facts, fence=fence, hold=replace(facts.hold, fence=fence))
        for fence in (1, 3, 5)
        if (facts := held(7)).hold
    ]
    granted = [leases.grant(facts, 0) for facts in holds]
    name = holds[0].id
    assert [leases.get(name, fence) for fence in (1, 2, 3, 5)] == [granted[0], None, granted[1], granted[2]]
    assert len(leases) == 3
    assert leases.drop(name, 3) is granted[1]
    assert leases.drop(name, 3) is None
    assert [leases.get(name, fence) for fence in (1, 3, 5)] == [granted[0], None, granted[2]]
    assert leases.drop(name, 5) is granted[2]
    assert leases.get(name, 1) is granted[0]
    assert leases.drop(name, 1) is granted[0]
    assert len(leases) == 0
    assert leases.next_ms() is None
