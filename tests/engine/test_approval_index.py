"""The index of approvals says the same as a look at all facts, and a page costs no more than a page."""

import random

from msgspec.structs import replace

from dhp_protocol.limits import Limits
from dhp_protocol.messages import Approvals
from dhpd.engine import positions
from dhpd.engine.approval_index import ApprovalIndex
from dhpd.engine.facts import ApprovalFacts, Handoff
from dhpd.engine.positions import CHUNK, Positions
from tests.engine.test_approvals import Office
from tests.engine.test_claim_queue import handoff


def test_positions_are_those_of_a_sorted_list_whatever_happens(rng: random.Random) -> None:
    found, known = Positions[str](), set[int]()
    for _ in range(20_000):
        position = rng.randrange(5_000)
        if position in known:
            found.discard(position)
            known.discard(position)
        elif rng.random() < 0.7:
            found.add(position, f"v{position}")
            known.add(position)
        else:
            found.discard(position)
    assert list(found.after(-1)) == [(each, f"v{each}") for each in sorted(known)]
    for after in range(-1, 5_001, 37):
        assert [each for each, _ in found.after(after)] == sorted(each for each in known if each > after)
    assert all((each in found) == (each in known) for each in range(5_000))
    assert found.first() == (min(known), f"v{min(known)}")
    assert max(len(chunk.values) for chunk in found._chunks) <= CHUNK
    for position in known:
        found.discard(position)
    assert not found
    assert (found._chunks, found._lasts) == ([], [])


def test_positions_that_come_in_order_fill_their_chunks() -> None:
    found: Positions[None] = Positions()
    for position in range(10 * positions.CHUNK):
        found.add(position, None)
    assert [len(chunk.positions) for chunk in found._chunks] == [CHUNK] * 10


def test_many_positions_added_at_once_are_as_if_added_one_by_one(rng: random.Random) -> None:
    found: Positions[str] = Positions()
    known: set[int] = set()
    for _ in range(60):
        first = rng.randrange(20_000)
        fresh = [each for each in range(first, first + rng.randrange(1_500), 2) if each not in known]
        if rng.random() < 0.2:
            rng.shuffle(fresh)
        found.add_all(fresh, [f"v{each}" for each in fresh])
        known.update(fresh)
        for gone in rng.sample(sorted(known), len(known) // 3):
            found.discard(gone)
            known.discard(gone)
    assert list(found.after(-1)) == [(each, f"v{each}") for each in sorted(known)]
    assert max(len(chunk.values) for chunk in found._chunks) <= CHUNK
    assert found._lasts == [chunk.positions[-1] for chunk in found._chunks]
    found.add_all([], [])
    assert len(list(found.after(-1))) == len(known)


def _random_facts(rng: random.Random, number: int, fresh: list[int]) -> Handoff:
    decisions = [None, None, "approved", "denied", "expired"]
    approvals = {
        f"a{place}": ApprovalFacts(f"a{place}", "pay", "", fresh.pop(), 1, "s", None, rng.choice(decisions))
        for place in range(rng.randrange(4))
    }
    status = rng.choice(["pending", "running", "suspended", "completed"])
    return replace(handoff(number), status=status, approvals=approvals or None)


def test_it_is_in_step_with_the_facts_for_changes_and_their_undo(rng: random.Random) -> None:
    index, fresh = ApprovalIndex(), list(range(5_000, 0, -1))
    facts: dict[int, Handoff | None] = {}
    past: list[tuple[int, Handoff | None]] = []
    for _ in range(1_000):
        number = rng.randrange(10)
        before = facts.get(number)
        if past and rng.random() < 0.3:
            number, after = past.pop()
            before = facts.get(number)
        else:
            past.append((number, before))
            after = None if rng.random() < 0.1 else _random_facts(rng, number, fresh)
        index.update(handoff(number).id, before, after)
        facts[number] = after
        for only_open in (False, True):
            wanted = sorted(
                (approval.details_position, each.id, approval.id)
                for each in facts.values()
                if each is not None and not each.final
                for approval in (each.approvals or {}).values()
                if approval.decision is None or not only_open
            )
            after_position = rng.randrange(-1, 1_000)
            assert list(index.after(after_position, only_open=only_open)) == [
                (owner, name) for position, owner, name in wanted if position > after_position
            ]


# --- pages ----------------------------------------------------------------------------------------------------------


def asked(world: Office, count: int, *, timeout_ms: int = 60_000) -> list[str]:
    held = [world.held() for _ in range(3)]
    return [world.ask(*held[number % 3], f"a{number}", timeout_ms=timeout_ms) for number in range(count)]


def test_open_ones_come_in_the_order_in_which_they_were_asked_for_over_all_work() -> None:
    world = Office()
    approvals = asked(world, 25)
    for approval in approvals[::3]:
        world.decide(approval)
    left = [approval for number, approval in enumerate(approvals) if number % 3]
    assert world.listed(status="open", limit=4) == left
    assert world.listed(limit=7) == approvals
    assert world.listed(status="approved", limit=2) == approvals[::3]


def test_a_filter_that_passes_over_many_gives_a_page_for_each_bit_of_the_way() -> None:
    world = Office(limits=Limits(max_open_approvals=1_000, max_page=10))
    approvals = asked(world, 600)
    for approval in (approvals[0], approvals[300], approvals[599]):
        world.decide(approval, "deny")
    assert world.run(Approvals(status="approved")).approvals == []
    first = world.run(Approvals(status="denied"))
    assert [view.approval for view in first.approvals] == [approvals[0]]
    assert first.next is not None
    assert world.listed(status="denied") == [approvals[0], approvals[300], approvals[599]]
    assert world.listed(status="approved") == []


def test_however_many_run_out_at_a_moment_none_of_them_is_shown_as_open() -> None:
    world = Office(limits=Limits(max_open_approvals=1_000, max_page=1_000))
    asked(world, 300, timeout_ms=5_000)
    fresh = asked(world, 5)
    world.jump(5_000)
    assert world.listed(status="open", limit=1_000) == fresh


def test_a_handoffs_own_come_in_pages_even_when_it_has_ended() -> None:
    world = Office()
    handoff_id, fence = world.held()
    approvals = [world.ask(handoff_id, fence, f"a{number}") for number in range(12)]
    world.decide(approvals[3])
    assert world.listed(handoff=handoff_id, limit=5) == approvals
    assert world.listed(handoff=handoff_id, status="open", limit=5) == approvals[:3] + approvals[4:]
    assert world.run(Approvals(handoff=handoff_id, limit=10)).next is not None
