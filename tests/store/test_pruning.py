"""What goes from a store: replaced checkpoints, and what was forgotten. Nothing else does."""

from collections.abc import Mapping
from typing import Any

import pytest

from dhpd.engine.facts import Handoff
from dhpd.engine.records import Checkpointed

from .conftest import Kit
from .stories import Stories, name


def nothing_in_use(handoff: str) -> None:
    """Nothing is in use."""


async def prune(kit: Kit, covered: int, in_use: Mapping[str, int] | None = None) -> int:
    """One round; how many records went. `in_use`: from which seq on checkpoints are read for an answer."""
    return sum([gone async for gone in kit.store.prune(covered, (in_use or {}).get)])


def working(stories: Stories, handoff: str, checkpoints: int, *, keep: int = 3, **members: Any) -> None:
    """A handoff that runs and has come so far. Its states are numbered."""
    stories.dispatch(handoff, keep_checkpoints=keep, **members)
    stories.claim(handoff)
    for number in range(1, checkpoints + 1):
        stories.checkpoint(handoff, b"%d" % number)


async def written(kit: Kit, stories: Stories) -> int:
    """All that was told is on disk and in the table of facts; gives how far that is."""
    await kit.append(stories.batch(facts_of=list(stories.facts), covers=stories.position))
    return stories.position


async def seqs(kit: Kit, facts: Handoff) -> list[int]:
    return [checkpoint.seq for checkpoint in await kit.store.checkpoints_of(facts.position, 0, 1_000)]


async def types(kit: Kit, facts: Handoff) -> list[str]:
    return [str(type(stored.record).__name__) for stored in await kit.store.records_of(facts.position, 0, 1_000)]


# --- checkpoints ----------------------------------------------------------------------------------------------------


async def test_the_newest_checkpoints_are_kept_and_all_other_records(kit: Kit) -> None:
    stories = Stories()
    working(stories, name(1), 6)
    stories.release(name(1))
    stories.claim(name(1), "bob")
    for _ in range(4):
        stories.checkpoint(name(1), b"more")
    stories.complete(name(1))
    working(stories, name(2), 3)
    covered = await written(kit, stories)
    assert await prune(kit, covered) == 7
    one, two = stories.facts[name(1)], stories.facts[name(2)]
    assert await seqs(kit, one) == [8, 9, 10]
    assert await types(kit, one) == ["Dispatched", "Claimed", "Released", "Claimed", *["Checkpointed"] * 3, "Completed"]
    numbers = [stored.record.n for stored in await kit.store.records_of(one.position, 0, 100)]
    assert numbers == [1, 2, 9, 10, 12, 13, 14, 15], "gaps are where checkpoints were"
    assert await seqs(kit, two) == [1, 2, 3], "that many are kept"
    assert await prune(kit, covered) == 0


@pytest.mark.parametrize("keep", [1, 2, 16, 40])
async def test_as_many_as_were_asked_for_are_kept(kit: Kit, keep: int) -> None:
    stories = Stories()
    working(stories, name(1), 40, keep=keep)
    stories.complete(name(1))
    covered = await written(kit, stories)
    assert await prune(kit, covered) == 40 - keep
    assert await seqs(kit, stories.facts[name(1)]) == list(range(41 - keep, 41))
    payloads = await kit.store.payloads([stories.facts[name(1)].checkpoint.position])  # type: ignore[union-attr]
    assert list(payloads.values()) == [b"40"]


async def test_what_a_start_has_to_replay_stays_until_the_table_has_it(kit: Kit) -> None:
    stories = Stories()
    working(stories, name(1), 12)
    covered = 7  # Checkpoint 5.
    await kit.append(stories.batch(facts_of=[name(1)], covers=covered))
    assert await prune(kit, covered) == 5
    assert await seqs(kit, stories.facts[name(1)]) == list(range(6, 13))
    loaded = await kit.store.load()
    assert [entry.position for entry in loaded.tail] == list(range(8, 15))
    await kit.append(stories.batch(facts_of=[name(1)], covers=stories.position))
    assert await prune(kit, stories.position) == 4
    assert await seqs(kit, stories.facts[name(1)]) == [10, 11, 12]


async def test_it_goes_by_what_the_table_knows_not_by_later_records(kit: Kit) -> None:
    stories = Stories()
    working(stories, name(1), 6)
    covered = await written(kit, stories)
    for _ in range(6):
        stories.checkpoint(name(1), b"later")
    await kit.append(stories.batch())
    assert await prune(kit, covered) == 3
    assert await seqs(kit, stories.facts[name(1)]) == list(range(4, 13))


async def test_what_is_in_use_is_spared_until_it_no_longer_is(kit: Kit) -> None:
    stories = Stories()
    for number in (1, 2):
        working(stories, name(number), 9)
    covered = await written(kit, stories)
    assert await prune(kit, covered, {name(1): 1}) == 6
    assert await seqs(kit, stories.facts[name(1)]) == list(range(1, 10))
    assert await seqs(kit, stories.facts[name(2)]) == [7, 8, 9]
    assert await prune(kit, covered, {name(1): 5}) == 4
    assert await seqs(kit, stories.facts[name(1)]) == [5, 6, 7, 8, 9]
    assert await prune(kit, covered, {name(1): 9}) == 2, "what is in use is among those that are kept"
    assert await seqs(kit, stories.facts[name(1)]) == [7, 8, 9]


async def test_a_checkpoint_that_a_redrive_brought_is_a_record_that_stays(kit: Kit) -> None:
    stories = Stories()
    working(stories, name(1), 4)
    stories.die(name(1))
    stories.come_back(name(1), b"what a cap had refused")
    stories.claim(name(1))
    for _ in range(5):
        stories.checkpoint(name(1), b"more")
    stories.complete(name(1))
    covered = await written(kit, stories)
    assert await prune(kit, covered) == 6
    facts = stories.facts[name(1)]
    assert facts.seq == 10
    assert await seqs(kit, facts) == [5, 8, 9, 10]
    assert "Redriven" in await types(kit, facts)
    assert await prune(kit, covered) == 0


async def test_after_a_start_pruning_goes_on_with_what_was_left(kit: Kit) -> None:
    stories = Stories()
    working(stories, name(1), 30)
    stories.complete(name(1))
    covered = await written(kit, stories)
    await kit.reopen()
    assert (await kit.store.load()).tail == []
    assert await prune(kit, covered) == 27
    await kit.reopen()
    assert await seqs(kit, stories.facts[name(1)]) == [28, 29, 30]
    assert await prune(kit, covered) == 0


async def test_a_pruned_handoff_goes_on(kit: Kit) -> None:
    stories = Stories()
    working(stories, name(1), 10)
    await prune(kit, await written(kit, stories))
    for _ in range(5):
        stories.checkpoint(name(1), b"more")
    stories.complete(name(1))
    await prune(kit, await written(kit, stories))
    await kit.reopen()
    assert await seqs(kit, stories.facts[name(1)]) == [13, 14, 15]
    kept = [stored.record for stored in await kit.store.records_of(stories.position, 0, 100)]
    told = [record for _, record in stories.records_of(name(1))]
    assert kept == [record for record in told if not isinstance(record, Checkpointed) or record.seq > 12]


# --- what was forgotten ---------------------------------------------------------------------------------------------


def ended(stories: Stories, handoff: str, **members: Any) -> None:
    working(stories, handoff, 2, **members)
    stories.complete(handoff)
    stories.ack(handoff)


async def test_the_record_that_forgets_takes_the_facts_along_and_raises_the_purged_fence(kit: Kit) -> None:
    stories = Stories()
    for number in (1, 2):
        ended(stories, name(number))
    await written(kit, stories)
    fence = stories.facts[name(1)].fence
    forgotten = stories.forget(name(1))
    await kit.append(stories.batch())
    for _ in range(2):
        assert await kit.store.facts_of([name(1), name(2)]) == [stories.facts[name(2)]]
        loaded = await kit.store.load()
        assert loaded.purged_fence == fence
        assert loaded.counts.get("completed") == 1
        assert [(entry.position, entry.handoff) for entry in loaded.tail] == [(forgotten.position, name(1))]
        await kit.reopen()


async def test_the_purged_fence_never_falls(kit: Kit) -> None:
    stories = Stories()
    ended(stories, name(1))
    for number in (2, 3):
        stories.dispatch(name(number))
    for _ in range(3):
        stories.claim(name(2))
        stories.release(name(2))
    stories.claim(name(2))
    stories.complete(name(2))
    fence = stories.facts[name(2)].fence
    assert fence > stories.facts[name(1)].fence
    for number in (2, 1):
        stories.forget(name(number))
        await kit.append(stories.batch())
    assert (await kit.store.load()).purged_fence == fence


async def test_all_its_records_go_once_the_table_covers_them_and_nothing_else_does(kit: Kit) -> None:
    stories = Stories()
    ended(stories, name(1))
    ended(stories, name(2))
    await written(kit, stories)
    stories.forget(name(1))
    await kit.append(stories.batch())
    assert await prune(kit, 12) == 0, "the record that forgets it isn't covered"
    assert {stored.handoff for stored in await kit.store.records_after(0, 100)} == {name(1), name(2)}
    await kit.append(stories.batch(covers=stories.position))
    assert await prune(kit, stories.position) == 7
    assert {stored.handoff for stored in await kit.store.records_after(0, 100)} == {name(2)}
    assert len(await kit.store.records_of(stories.facts[name(2)].position, 0, 100)) == 6
    await kit.reopen()
    loaded = await kit.store.load()
    assert (loaded.head, loaded.tail) == (stories.position, []), "a position is never given out again"
    stories.dispatch(name(3))
    assert (await kit.append(stories.batch())).head == stories.position


async def test_of_one_that_was_pruned_before_nothing_is_left_either(kit: Kit) -> None:
    stories = Stories()
    working(stories, name(1), 8)
    stories.release(name(1))
    stories.claim(name(1))
    stories.checkpoint(name(1), b"9")
    stories.complete(name(1))
    assert await prune(kit, await written(kit, stories)) == 6
    stories.forget(name(1))
    await kit.append(stories.batch(covers=stories.position))
    await prune(kit, stories.position)
    assert await kit.store.records_after(0, 100) == []


@pytest.mark.parametrize("together", [True, False])
async def test_dispatched_anew_it_is_another_one(kit: Kit, together: bool) -> None:
    stories = Stories()
    ended(stories, name(1))
    await written(kit, stories)
    stories.forget(name(1))
    if not together:
        await kit.append(stories.batch())
    stories.dispatch(name(1))
    stories.claim(name(1))
    await kit.append(stories.batch(facts_of=[name(1)], covers=stories.position))
    assert await kit.store.facts_of([name(1)]) == [stories.facts[name(1)]]
    assert await prune(kit, stories.position) == 7
    await kit.reopen()
    loaded = await kit.store.load()
    assert loaded.facts == [stories.facts[name(1)]]
    assert await types(kit, stories.facts[name(1)]) == ["Dispatched", "Claimed"]


# --- what retention may look at -------------------------------------------------------------------------------------


async def test_only_what_was_acknowledged_until_then_is_told_longest_ago_first(kit: Kit) -> None:
    stories = Stories()
    for number in (1, 2, 3, 4):
        working(stories, name(number), 0)
        stories.complete(name(number))
    for number in (3, 1, 2):
        stories.ack(name(number))
    await written(kit, stories)
    acked = {number: stories.facts[name(number)].acked_at_ms for number in (3, 1, 2)}
    assert [facts.id for facts in await kit.store.acked_before(acked[2], (0, 0), 10)] == [name(3), name(1), name(2)]
    assert [facts.id for facts in await kit.store.acked_before(acked[2] - 1, (0, 0), 10)] == [name(3), name(1)]
    assert await kit.store.acked_before(acked[3] - 1, (0, 0), 10) == []
    (first,) = await kit.store.acked_before(acked[2], (0, 0), 1)
    after = (first.acked_at_ms, first.number)
    assert [facts.id for facts in await kit.store.acked_before(acked[2], after, 10)] == [name(1), name(2)]


async def test_a_parent_is_not_told_while_a_child_is_there(kit: Kit) -> None:
    stories = Stories()
    ended(stories, name(1))
    ended(stories, name(2), ancestors=(name(1),))
    await written(kit, stories)
    assert [facts.id for facts in await kit.store.acked_before(10_000, (0, 0), 10)] == [name(2)]
    stories.forget(name(2))
    await kit.append(stories.batch())
    assert [facts.id for facts in await kit.store.acked_before(10_000, (0, 0), 10)] == [name(1)]


async def test_what_came_back_after_its_ack_is_not_told(kit: Kit) -> None:
    stories = Stories()
    working(stories, name(1), 1)
    stories.die(name(1))
    stories.ack(name(1))
    await written(kit, stories)
    assert len(await kit.store.acked_before(10_000, (0, 0), 10)) == 1
    stories.come_back(name(1), b"state")
    await written(kit, stories)
    assert await kit.store.acked_before(10_000, (0, 0), 10) == []
