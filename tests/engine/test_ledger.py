"""The ledger: every index says the same, for a change and for its undo alike."""

import random
from collections import deque

import pytest
from msgspec.structs import replace

from dhpd.engine.facts import STATUSES, Handoff, Hold, Status
from dhpd.engine.ledger import MAX_COLD_HANDOFFS, MAX_ENDED_NONCES, Ledger
from tests.engine.test_claim_queue import handoff

NOW_MS = 1_000_000


def in_status(facts: Handoff, status: Status, *, fence: int = 1, nonce: str | None = None) -> Handoff:
    hold = Hold("ada", "s", fence, 6_000, NOW_MS, "pending", nonce, False)
    return replace(facts, status=status, hold=hold if status == "running" else None, fence=fence)


def put(ledger: Ledger, facts: Handoff) -> Handoff:
    ledger.put(facts.id, facts, NOW_MS)
    return facts


def ripen(ledger: Ledger, wall_ms: int) -> None:
    """All that is due by the wall clock is done."""
    for facts in ledger.wall_due(wall_ms):
        assert facts is not None, "it is one of few"
        ledger.ripen(facts, wall_ms)
        ledger.mind(facts, wall_ms)


def test_counts_follow_every_change_and_its_undo() -> None:
    ledger = Ledger()
    one = put(ledger, handoff(1))
    put(ledger, in_status(one, "running"))
    assert (ledger.counts["pending"], ledger.counts["running"]) == (0, 1)
    put(ledger, one)
    assert (ledger.counts["pending"], ledger.counts["running"]) == (1, 0)
    ledger.put(one.id, None, NOW_MS)
    assert sum(ledger.counts.values()) == 0
    assert ledger.get(one.id) is None


def test_what_is_read_from_the_store_was_counted_already() -> None:
    ledger = Ledger()
    ledger.counts["completed"] = 1
    one = in_status(handoff(1), "completed")
    ledger.admit(one, NOW_MS)
    assert ledger.counts["completed"] == 1
    assert ledger.get(one.id) is one


def test_delays_mature_in_their_order_and_only_when_they_are_over() -> None:
    ledger = Ledger()
    late = put(ledger, replace(handoff(1), not_before_ms=NOW_MS + 20))
    early = put(ledger, replace(handoff(2), not_before_ms=NOW_MS + 10))
    ripen(ledger, NOW_MS + 9)
    assert ledger.freed == []
    assert ledger.next_wall_ms() == NOW_MS + 10
    ripen(ledger, NOW_MS + 10)
    assert ledger.freed == [early.id]
    ripen(ledger, NOW_MS + 20)
    assert ledger.freed == [early.id, late.id]
    assert ledger.next_wall_ms() is None


def test_a_delay_of_what_has_been_claimed_meanwhile_frees_nothing() -> None:
    ledger = Ledger()
    one = put(ledger, replace(handoff(1), not_before_ms=NOW_MS + 10))
    put(ledger, in_status(one, "running"))
    ripen(ledger, NOW_MS + 10)
    assert ledger.freed == []


def test_a_delay_that_counts_no_more_is_not_kept() -> None:
    ledger = Ledger()
    for number in range(1_000):
        one = put(ledger, replace(handoff(number), not_before_ms=NOW_MS + 10**9))
        put(ledger, in_status(one, "cancelled"))
    assert ledger.next_wall_ms() is None


def test_descendants_are_those_that_have_not_ended() -> None:
    ledger = Ledger()
    parent = put(ledger, handoff(1))
    child = put(ledger, replace(handoff(2), ancestors=(parent.id,)))
    grandchild = put(ledger, replace(handoff(3), ancestors=(parent.id, child.id)))
    put(ledger, in_status(child, "completed"))
    assert [*ledger.descendants(parent.id)] == [*ledger.descendants(child.id)] == [grandchild.id]
    put(ledger, child)
    assert {*ledger.descendants(parent.id)} == {child.id, grandchild.id}
    ledger.put(grandchild.id, None, NOW_MS)
    assert ([*ledger.descendants(parent.id)], [*ledger.descendants(child.id)]) == ([child.id], [])


# --- the table of facts ---------------------------------------------------------------------------------------------


def test_the_table_covers_all_before_the_oldest_that_it_lacks() -> None:
    ledger = Ledger()
    for number in (1, 2, 3):
        put(ledger, handoff(number))
        ledger.mark_dirty(handoff(number).id, number, lease_ms=number * 100)
    assert ledger.dirty_since_ms() == 100
    facts, taken, covers = ledger.take_dirty(2, position=3)
    assert ([found.number for found in facts], covers) == ([1, 2], 2)
    assert ledger.dirty_since_ms() == 300
    ledger.mark_dirty_again(taken, durable=3)
    facts, _, covers = ledger.take_dirty(9, position=3)
    assert (sorted(found.number for found in facts), covers) == ([1, 2, 3], 3)
    assert ledger.dirty_since_ms() is None


def test_one_that_changed_again_while_its_facts_were_on_the_way_is_lacking_from_the_older_change_on() -> None:
    ledger = Ledger()
    one, two = put(ledger, handoff(1)), put(ledger, handoff(2))
    ledger.mark_dirty(one.id, 1, 100)
    _, taken, _ = ledger.take_dirty(9, position=1)
    ledger.mark_dirty(two.id, 2, 200)
    ledger.mark_dirty(one.id, 3, 300)
    ledger.mark_dirty_again(taken, durable=3)
    _, _, covers = ledger.take_dirty(1, position=3)
    assert covers == 1, "the first taken was `one`, and `two` is lacking from 2 on"


def test_after_an_undo_what_is_lacking_begins_no_later_than_the_next_position() -> None:
    ledger = Ledger()
    ghost = handoff(7)
    put(ledger, ghost)
    ledger.mark_dirty(ghost.id, 7, 100)
    ledger.put(ghost.id, None, NOW_MS)
    ledger.mark_dirty_again({}, durable=4)
    facts, _, covers = ledger.take_dirty(0, position=4)
    assert (facts, covers) == ([], 4)
    assert ledger.take_dirty(9, position=4)[0] == [], "there is no such handoff any more"


# --- memory ---------------------------------------------------------------------------------------------------------


def test_what_has_ended_leaves_memory_once_it_is_stored_and_there_are_too_many() -> None:
    ledger = Ledger()
    live = put(ledger, handoff(1))
    ended = [put(ledger, in_status(handoff(number), "completed")) for number in range(2, MAX_COLD_HANDOFFS + 12)]
    assert len(ledger) == len(ended) + 1
    for facts in ended:
        ledger.stored(facts, awaited=False)
    ledger.stored(live, awaited=False)
    assert len(ledger) == MAX_COLD_HANDOFFS + 1
    assert ledger.get(live.id) is live
    assert ledger.counts["completed"] == len(ended)
    assert ledger.get(ended[0].id) is None
    assert ledger.get(ended[-1].id) is ended[-1]


@pytest.mark.parametrize("reason", ["awaited", "changed since"])
def test_what_may_not_leave_stays(reason: str) -> None:
    ledger = Ledger()
    one = put(ledger, in_status(handoff(1), "completed"))
    if reason == "changed since":
        put(ledger, replace(one, acked=True))
    ledger.stored(one, awaited=reason == "awaited")
    for number in range(2, MAX_COLD_HANDOFFS + 4):
        ledger.admit(in_status(handoff(number), "completed"), NOW_MS)
    assert ledger.get(one.id) is not None


def test_what_was_stored_once_and_has_changed_since_stays_until_it_is_stored_again() -> None:
    ledger = Ledger()
    one = in_status(handoff(1), "completed")
    ledger.admit(one, NOW_MS)
    changed = put(ledger, replace(one, acked=True))
    for number in range(2, MAX_COLD_HANDOFFS + 4):
        ledger.admit(in_status(handoff(number), "completed"), NOW_MS)
    assert ledger.get(one.id) is changed
    ledger.stored(changed, awaited=False)
    for number in range(5_000, 5_000 + MAX_COLD_HANDOFFS):
        ledger.admit(in_status(handoff(number), "completed"), NOW_MS)
    assert ledger.get(one.id) is None


# --- nonces ---------------------------------------------------------------------------------------------------------


def test_a_nonce_is_known_from_the_grant_until_a_while_after_its_end() -> None:
    ledger = Ledger()
    running = put(ledger, in_status(handoff(1), "running", nonce="n1"))
    assert ledger.nonce("ada", "n1") == (running.id, 1)
    assert ledger.nonce("bob", "n1") is None
    put(ledger, replace(running, status="pending"))
    ledger.hold_ended(running, lease_ms=500)
    deque(ledger.forget_nonces(500))
    assert ledger.nonce("ada", "n1") is not None
    deque(ledger.forget_nonces(501))
    assert ledger.nonce("ada", "n1") is None


def test_a_nonce_that_was_granted_again_is_not_forgotten_with_its_older_grant() -> None:
    ledger = Ledger()
    older = put(ledger, in_status(handoff(1), "running", nonce="n1"))
    ledger.hold_ended(older, lease_ms=500)
    newer = put(ledger, in_status(handoff(2), "running", nonce="n1", fence=7))
    deque(ledger.forget_nonces(501))
    assert ledger.nonce("ada", "n1") == (newer.id, 7)


def test_ended_nonces_are_bounded() -> None:
    ledger = Ledger()
    for number in range(MAX_ENDED_NONCES + 10):
        facts = in_status(handoff(number), "running", nonce=f"n{number}")
        put(ledger, facts)
        ledger.hold_ended(facts, lease_ms=1)
    deque(ledger.forget_nonces(0))
    assert ledger.nonce("ada", "n9") is None
    assert ledger.nonce("ada", "n10") is not None


# --- at random ------------------------------------------------------------------------------------------------------


def test_indexes_agree_with_the_facts_whatever_changes(rng: random.Random) -> None:
    for _ in range(30):
        ledger = Ledger()
        wall_ms = NOW_MS
        for _ in range(150):
            wall_ms += rng.randrange(20)
            number = rng.randrange(12)
            facts = handoff(number, priority=number % 3)
            if rng.random() < 0.15 and ledger.get(facts.id) is not None:
                ledger.put(facts.id, None, wall_ms)
            else:
                ancestors = tuple(handoff(above).id for above in (number // 4, number // 2) if 0 < above < number)
                delay_ms = rng.choice([0, 0, 30])
                facts = in_status(replace(facts, ancestors=ancestors), rng.choice(STATUSES))
                facts = replace(facts, not_before_ms=wall_ms + delay_ms if facts.status == "pending" else 0)
                ledger.put(facts.id, facts, wall_ms)
            ripen(ledger, wall_ms)
            present = list(ledger)
            assert {s: sum(f.status == s for f in present) for s in STATUSES} == ledger.counts
            free = [
                f for f in present if f.status == "orphaned" or (f.status == "pending" and f.not_before_ms <= wall_ms)
            ]
            assert [f for f in present if ledger.queue.holds(f)] == free
            assert all(ledger.claimable(f, wall_ms) == (f in free) for f in present)
            for f in present:
                descendants = {d.id for d in present if f.id in d.ancestors and not d.final}
                assert {*ledger.descendants(f.id)} == descendants
