"""What every store does."""

import pytest
from msgspec.structs import replace

from dhpd.engine.facts import CheckpointFacts
from dhpd.engine.journal import Extension
from dhpd.engine.lookups import ListLookup
from dhpd.engine.records import Checkpointed
from dhpd.store.backend import StoredRecord, StoreError

from .conftest import Kit
from .stories import EVERYTHING, Stories, long_life, name


def positions(records: list[StoredRecord]) -> list[int]:
    return [stored.position for stored in records]


# --- append and load ------------------------------------------------------------------------------------------------


async def test_a_new_store_is_empty(kit: Kit) -> None:
    loaded = await kit.store.load()
    assert (loaded.head, loaded.covered, loaded.purged_fence) == (0, 0, 0)
    assert (loaded.facts, loaded.tail, loaded.extensions) == ([], [], {})
    assert sum(loaded.counts.values()) == 0
    assert await kit.store.records_after(0, 10) == []
    assert await kit.store.handoffs(EVERYTHING) == ([], None)


async def test_what_was_appended_comes_back_in_order(kit: Kit) -> None:
    stories = Stories()
    long_life(stories, name(1))
    assert (await kit.append(stories.batch())).head == 10
    stories.dispatch(name(2), labels={"team": "rot"}, ancestors=(name(1),), not_before_ms=99)
    stories.claim(name(2))
    stories.fail(name(2))
    stories.claim(name(2))
    stories.orphan(name(2))
    await kit.append(stories.batch())
    await kit.reopen()
    loaded = await kit.store.load()
    assert loaded.head == 15
    assert [replace(entry, payload=None) for entry in loaded.tail] == [
        replace(entry, payload=None) for entry in stories.told
    ]


async def test_an_append_that_expects_another_head_is_refused_and_changes_nothing(kit: Kit) -> None:
    stories = Stories()
    stories.dispatch(name(1))
    await kit.append(stories.batch())
    for expected_head in (0, 2, 99):
        stranger = Stories(position=expected_head)
        stranger.dispatch(name(2))
        with pytest.raises(StoreError):
            await kit.store.append(stranger.batch(), expected_head)
    assert positions(await kit.store.records_after(0, 10)) == [1]
    stories.claim(name(1))
    assert (await kit.store.append(stories.batch(), 1)).head == 2


async def test_a_batch_without_records_leaves_the_head_where_it_is(kit: Kit) -> None:
    stories = Stories()
    stories.dispatch(name(1))
    await kit.append(stories.batch())
    assert (await kit.store.append(stories.batch(facts_of=[name(1)], covers=1), 1)).head == 1
    assert (await kit.store.load()).head == 1


async def test_settle_tells_the_head_on_disk(kit: Kit) -> None:
    assert await kit.store.settle() == 0
    stories = Stories()
    long_life(stories, name(1))
    await kit.append(stories.batch())
    assert await kit.store.settle() == 10
    assert len(await kit.store.records_after(0, 100)) == 10
    stories.dispatch(name(2))
    assert (await kit.store.append(stories.batch(), 10)).head == 11


# --- facts, written behind ------------------------------------------------------------------------------------------


async def test_a_start_gets_the_table_and_the_journal_after_what_it_covers(kit: Kit) -> None:
    stories = Stories()
    stories.dispatch(name(1))
    stories.claim(name(1))
    stories.dispatch(name(2))
    await kit.append(stories.batch())
    covered = stories.position
    in_table = dict(stories.facts)
    await kit.append(stories.batch(facts_of=[name(1), name(2)], covers=covered))
    stories.checkpoint(name(1), b"1")
    await kit.append(stories.batch())
    await kit.reopen()
    loaded = await kit.store.load()
    assert loaded.covered == covered
    assert {facts.id: facts for facts in loaded.facts} == in_table
    assert [entry.position for entry in loaded.tail] == [4]
    assert {status: count for status, count in loaded.counts.items() if count} == {"running": 1, "pending": 1}


async def test_of_the_ended_ones_a_start_gets_those_that_the_tail_speaks_of(kit: Kit) -> None:
    stories = Stories()
    for number in (1, 2):
        long_life(stories, name(number))
    stories.dispatch(name(3))
    await kit.append(stories.batch(facts_of=[name(1), name(2), name(3)], covers=13))
    loaded = await kit.store.load()
    assert {facts.id for facts in loaded.facts} == {name(2), name(3)}
    assert {entry.handoff for entry in loaded.tail} == {name(2), name(3)}
    assert loaded.counts["completed"] == 2


async def test_a_start_gets_the_ancestors_of_dead_children_and_of_no_others(kit: Kit) -> None:
    stories = Stories()
    family = (name(1), name(2))
    stories.dispatch(name(1))
    stories.dispatch(name(2), ancestors=(name(1),))
    for dead in (name(3), name(4)):
        stories.dispatch(dead, ancestors=family if dead == name(3) else ())
        stories.claim(dead)
        stories.die(dead)
    await kit.append(stories.batch(facts_of=[name(number) for number in (1, 2, 3, 4)], covers=stories.position))
    assert (await kit.store.load()).dead_children == {name(3): family}
    stories.forget(name(3))
    await kit.append(stories.batch())
    assert (await kit.store.load()).dead_children == {}


async def test_facts_are_replaced_by_newer_ones(kit: Kit) -> None:
    stories = Stories()
    stories.dispatch(name(1))
    await kit.append(stories.batch(facts_of=[name(1)]))
    stories.claim(name(1))
    await kit.append(stories.batch(facts_of=[name(1)]))
    assert await kit.store.facts_of([name(1)]) == [stories.facts[name(1)]]
    assert (await kit.store.load()).counts.get("pending", 0) == 0


async def test_facts_of_what_the_table_has_not_are_left_out(kit: Kit) -> None:
    stories = Stories()
    stories.dispatch(name(1))
    stories.dispatch(name(2))
    await kit.append(stories.batch(facts_of=[name(2)]))
    assert await kit.store.facts_of([name(1), name(2), name(3)]) == [stories.facts[name(2)]]
    assert await kit.store.facts_of([]) == []


async def test_every_member_of_the_facts_survives(kit: Kit) -> None:
    stories = Stories()
    long_life(stories, name(1))
    facts = stories.facts[name(1)] = replace(
        stories.facts[name(1)],
        labels={"é": "🙂", "": ""},
        ancestors=(name(7), name(8)),
        reason='quote " and \\ and \n',
        not_before_ms=2**53 - 1,
        steps=2**53 - 1,
        has_schema=True,
        acked=True,
    )
    await kit.append(stories.batch(facts_of=[name(1)]))
    await kit.reopen()
    assert await kit.store.facts_of([name(1)]) == [facts]


# --- extensions -----------------------------------------------------------------------------------------------------


async def test_extensions_are_kept_replaced_and_freed(kit: Kit) -> None:
    stories = Stories()
    first, second = Extension(name(1), 1, 5_000), Extension(name(2), 3, 6_000)
    await kit.append(stories.batch(extended=[first, second]))
    await kit.reopen()
    assert (await kit.store.load()).extensions == {name(1): first, name(2): second}
    newer = Extension(name(1), 5, 7_000)
    await kit.append(stories.batch(extended=[newer], freed=[name(2), name(3)]))
    assert (await kit.store.load()).extensions == {name(1): newer}


async def test_an_extension_that_is_freed_in_the_batch_that_brings_it_is_gone(kit: Kit) -> None:
    stories = Stories()
    await kit.append(stories.batch(extended=[Extension(name(1), 1, 5_000)], freed=[name(1)]))
    assert (await kit.store.load()).extensions == {}


# --- one handoff's records ------------------------------------------------------------------------------------------


@pytest.fixture
async def two_lives(kit: Kit) -> Stories:
    """Two long lives whose records alternate, and are spread over batches."""
    alone = Stories()
    long_life(alone, name(1))
    stories = Stories()
    steps = ["dispatch", "claim", b"1", b"22", b"333", "release", "claim", b"4444", b"55555", "complete"]
    for step in steps:
        for handoff in (name(1), name(2)):
            if isinstance(step, bytes):
                stories.checkpoint(handoff, step)
            else:
                getattr(stories, step)(handoff)
        await kit.append(stories.batch())
    return stories


async def test_a_handoffs_records_come_oldest_first(kit: Kit, two_lives: Stories) -> None:
    for handoff in (name(1), name(2)):
        found = await kit.store.records_of(two_lives.facts[handoff].position, 0, 100)
        assert [(stored.position, stored.record) for stored in found] == two_lives.records_of(handoff)
        assert {stored.handoff for stored in found} == {handoff}


@pytest.mark.parametrize("limit", [1, 3, 4, 100])
async def test_pages_of_records_join_without_a_gap(kit: Kit, two_lives: Stories, limit: int) -> None:
    head = two_lives.facts[name(1)].position
    seen: list[StoredRecord] = []
    while page := await kit.store.records_of(head, seen[-1].record.n if seen else 0, limit):
        assert len(page) <= limit
        seen += page
    assert [stored.record.n for stored in seen] == list(range(1, 11))


async def test_records_up_to_an_older_head_are_those_of_then(kit: Kit, two_lives: Stories) -> None:
    records = two_lives.records_of(name(1))
    found = await kit.store.records_of(records[5][0], 2, 100)
    assert positions(found) == [position for position, _ in records[2:6]]


async def test_checkpoints_come_oldest_first_with_what_is_known_of_them(kit: Kit, two_lives: Stories) -> None:
    expected = [
        CheckpointFacts(record.seq, record.sha256, position, record.at_ms)
        for position, record in two_lives.records_of(name(1))
        if isinstance(record, Checkpointed)
    ]
    head = two_lives.facts[name(1)].position
    assert await kit.store.checkpoints_of(head, 0, 100) == expected
    assert await kit.store.checkpoints_of(head, 0, 2) == expected[:2]
    assert await kit.store.checkpoints_of(head, 2, 2) == expected[2:4]
    assert await kit.store.checkpoints_of(head, 4, 2) == expected[4:]
    assert await kit.store.checkpoints_of(head, 5, 2) == []


async def test_payloads_come_back_byte_for_byte_and_what_is_not_there_is_left_out(kit: Kit) -> None:
    stories = Stories()
    stories.dispatch(name(1))
    stories.claim(name(1))
    odd = [b'{ "a" : 1.0e2 }', "é🙂".encode(), b"0" * 100_000]
    entries = [stories.checkpoint(name(1), state) for state in odd]
    await kit.append(stories.batch())
    await kit.reopen()
    wanted = [entry.position for entry in entries]
    assert await kit.store.payloads([*wanted, 99]) == dict(zip(wanted, odd, strict=True))
    assert await kit.store.payloads([]) == {}


async def test_a_record_without_a_payload_has_none(kit: Kit) -> None:
    stories = Stories()
    stories.dispatch(name(1))
    claim = stories.claim(name(1))
    await kit.append(stories.batch())
    assert (await kit.store.payloads([claim.position])).get(claim.position) is None


# --- after pruning --------------------------------------------------------------------------------------------------


async def prune_checkpoints(kit: Kit, stories: Stories, handoff: str, *seqs: int) -> None:
    await kit.prune(
        position
        for position, record in stories.records_of(handoff)
        if isinstance(record, Checkpointed) and record.seq in seqs
    )


@pytest.mark.parametrize("pruned", [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4, 5)])
async def test_history_goes_around_pruned_checkpoints(kit: Kit, two_lives: Stories, pruned: tuple[int, ...]) -> None:
    await prune_checkpoints(kit, two_lives, name(1), *pruned)
    head = two_lives.facts[name(1)].position
    kept = [
        position
        for position, record in two_lives.records_of(name(1))
        if not (isinstance(record, Checkpointed) and record.seq in pruned)
    ]
    assert positions(await kit.store.records_of(head, 0, 100)) == kept
    walked: list[StoredRecord] = []
    while page := await kit.store.records_of(head, walked[-1].record.n if walked else 0, 2):
        walked += page
    assert positions(walked) == kept
    left = [seq for seq in range(1, 6) if seq not in pruned]
    assert [facts.seq for facts in await kit.store.checkpoints_of(head, 0, 100)] == left
    assert [facts.seq for facts in await kit.store.checkpoints_of(head, max(pruned), 1)] == left[:1]
    other = two_lives.facts[name(2)].position
    assert len(await kit.store.records_of(other, 0, 100)) == 10


async def test_a_replay_skips_what_was_pruned(kit: Kit, two_lives: Stories) -> None:
    await prune_checkpoints(kit, two_lives, name(1), 1, 2)
    assert len(await kit.store.records_after(0, 100)) == 18
    assert (await kit.store.load()).head == 20


# --- the whole journal ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_the_journal_is_replayed_page_by_page(kit: Kit, two_lives: Stories, limit: int) -> None:
    seen: list[StoredRecord] = []
    while page := await kit.store.records_after(seen[-1].position if seen else 0, limit):
        assert len(page) <= limit
        seen += page
    assert [(stored.position, stored.handoff, stored.record) for stored in seen] == [
        (entry.position, entry.handoff, entry.record) for entry in two_lives.told
    ]


async def test_a_replayed_record_tells_its_handoffs_kind_where_the_table_has_it(kit: Kit) -> None:
    stories = Stories()
    stories.dispatch(name(1), kind="known")
    stories.dispatch(name(2), kind="not yet")
    await kit.append(stories.batch(facts_of=[name(1)]))
    assert [stored.kind for stored in await kit.store.records_after(0, 10)] == ["known", None]


# --- lists ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def many(kit: Kit) -> Stories:
    """Twelve handoffs: kinds a and b by turns, every third labelled, every fourth held by ada, the sixth completed."""
    stories = Stories()
    for number in range(12):
        labels = {"team": "red", "n": str(number)} if number % 3 == 0 else None
        stories.dispatch(name(number), kind="ab"[number % 2], labels=labels)
    for number in range(0, 12, 4):
        stories.claim(name(number), "ada")
    stories.claim(name(6), "bob")
    stories.complete(name(6))
    await kit.append(stories.batch(facts_of=map(name, range(12)), covers=stories.position))
    return stories


async def listed(kit: Kit, limit: int = 1_000, **filters: str | bool) -> list[int]:
    """The numbers of all that is listed, page by page."""
    seen: list[int] = []
    lookup: ListLookup = replace(EVERYTHING, limit=limit, **filters)
    while True:
        page, after = await kit.store.handoffs(lookup)
        assert len(page) <= limit
        seen += [int(facts.id, 16) for facts in page]
        if after is None:
            return seen
        lookup = replace(lookup, after=after)


@pytest.mark.parametrize("limit", [1, 2, 5, 12, 13])
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"prefix": name(0)[:4]}, list(range(12))),
        ({"prefix": name(11)}, [11]),
        ({"prefix": name(11)[:63]}, list(range(12))),
        ({"prefix": "0001"}, []),
        ({"prefix": name(0)[:5], "worker": "ada"}, [0, 4, 8]),
        ({"prefix": name(0)[:5], "status": "completed"}, [6]),
        ({}, list(range(12))),
        ({"status": "running"}, [0, 4, 8]),
        ({"status": "completed"}, [6]),
        ({"status": "dead"}, []),
        ({"kind": "b"}, [1, 3, 5, 7, 9, 11]),
        ({"worker": "ada"}, [0, 4, 8]),
        ({"worker": "bob"}, []),
        ({"label": "team=red"}, [0, 3, 6, 9]),
        ({"label": "n=9"}, [9]),
        ({"label": "team=blue"}, []),
        ({"label": "n="}, []),
        ({"kind": "a", "label": "team=red"}, [0, 6]),
        ({"status": "running", "kind": "a", "worker": "ada", "label": "team=red"}, [0]),
    ],
    ids=str,
)
async def test_lists_are_filtered_and_paged(
    kit: Kit, many: Stories, filters: dict[str, str], expected: list[int], limit: int
) -> None:
    assert await listed(kit, limit, **filters) == expected
    assert await listed(kit, limit, newest_first=True, **filters) == expected[::-1]


async def test_a_label_may_hold_an_equals_sign_in_its_value(kit: Kit) -> None:
    stories = Stories()
    stories.dispatch(name(1), labels={"url": "http://x/?a=1"})
    await kit.append(stories.batch(facts_of=[name(1)]))
    assert await listed(kit, label="url=http://x/?a=1") == [1]
