"""Answers that are read from the journal: whole, byte for byte, and cut to what fits a frame."""

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from dhp_protocol.errors import CheckpointConflict, OutOfOrder, StoreUnavailable
from dhp_protocol.replies import ActivityView, CheckpointReply, reply_body
from dhpd.engine.lookups import (
    CheckpointsLookup,
    ClaimLookup,
    HistoryLookup,
    LastCheckpointLookup,
    ListLookup,
    Lookup,
    ResultLookup,
)
from dhpd.engine.views import LeaseView
from dhpd.engine.writing import OlderCheckpoint
from dhpd.store.reading import resolve

from .conftest import Kit
from .stories import Stories, long_life, name

FRAME_BYTES = 1 << 20
LEASE = LeaseView(77, ActivityView(repeats=1_000_000, ago_ms=1_000_000_000))


async def read(kit: Kit, lookup: Lookup, frame_bytes: int = FRAME_BYTES) -> Any:
    answer = await resolve(lookup, kit.store, frame_bytes, lambda handoff, fence: LEASE)
    assert len(reply_body(1, answer)) <= frame_bytes, "it fits a frame"
    return answer


@pytest.fixture
async def stories(kit: Kit) -> Stories:
    stories = Stories()
    long_life(stories, name(1))
    await kit.append(stories.batch(facts_of=[name(1)], covers=stories.position))
    return stories


async def test_a_grant_shows_the_intent_and_the_newest_state(kit: Kit, stories: Stories) -> None:
    facts = stories.facts[name(1)]
    lookup = ClaimLookup(facts.id, 5, 3, 9_000, "orphaned", facts.number, facts.checkpoint)
    grant = await read(kit, lookup)
    assert (grant.fence, grant.attempt, grant.was, grant.lease.heartbeat_ms) == (5, 3, "orphaned", 3_000)
    assert (bytes(grant.intent), grant.checkpoint.seq, bytes(grant.checkpoint.state)) == (b"{}", 5, b"55555")


async def test_the_newest_checkpoint_and_the_result(kit: Kit, stories: Stories) -> None:
    facts = stories.facts[name(1)]
    assert facts.checkpoint is not None
    newest = await read(kit, LastCheckpointLookup(facts.checkpoint))
    assert (newest.checkpoint.seq, bytes(newest.checkpoint.state)) == (5, b"55555")
    result = await read(kit, ResultLookup(facts.result_position))
    assert (result.status, bytes(result.result)) == ("completed", b'"done"')


@pytest.mark.parametrize("limit", [1, 2, 5, 9])
async def test_pages_of_checkpoints_and_records_join(kit: Kit, stories: Stories, limit: int) -> None:
    facts = stories.facts[name(1)]
    seqs: list[int] = []
    after: int | None = 0
    while after is not None:
        page = await read(kit, CheckpointsLookup(facts.position, facts.checkpoint, after, limit))
        seqs += [checkpoint.seq for checkpoint in page.checkpoints]
        after = page.next
    assert seqs == [1, 2, 3, 4, 5]
    numbers: list[int] = []
    after = 0
    while after is not None:
        page = await read(kit, HistoryLookup(facts.position, facts.n, after, limit))
        numbers += [record["n"] for record in page.records]
        after = page.next
    assert numbers == list(range(1, 11))


async def test_a_page_is_cut_to_fit_a_frame_and_the_next_goes_on(kit: Kit) -> None:
    frame_bytes = 12_000
    stories = Stories()
    stories.dispatch(name(1))
    stories.claim(name(1))
    for _ in range(10):
        stories.checkpoint(name(1), b'"%s"' % (b"x" * 4_000))
    for number in range(2, 80):
        stories.dispatch(name(number), labels={"long": "x" * 200})
    await kit.append(stories.batch(facts_of=stories.facts, covers=stories.position))
    facts = stories.facts[name(1)]
    page = await read(kit, CheckpointsLookup(facts.position, facts.checkpoint, 0, 100), frame_bytes)
    assert [checkpoint.seq for checkpoint in page.checkpoints] == [1, 2]
    assert page.next == 2
    lookup = ListLookup(stories.position, 0, 1_000, UNSET, UNSET, UNSET, UNSET)
    seen: list[str] = []
    after: int | None = 0
    while after is not None:
        listed = await read(kit, msgspec.structs.replace(lookup, after=after), 40_000)
        assert 0 < len(listed.handoffs) < 79
        seen += [status.handoff for status in listed.handoffs]
        after = listed.next
    assert seen == list(map(name, range(1, 80)))


async def test_one_that_is_larger_than_a_page_may_be_comes_alone(kit: Kit) -> None:
    stories = Stories()
    stories.dispatch(name(1))
    stories.claim(name(1))
    for _ in range(3):
        stories.checkpoint(name(1), b'"%s"' % (b"x" * 9_500))
    await kit.append(stories.batch())
    facts = stories.facts[name(1)]
    page = await read(kit, CheckpointsLookup(facts.position, facts.checkpoint, 1, 100), 10_000)
    assert ([checkpoint.seq for checkpoint in page.checkpoints], page.next) == ([2], 2)


async def test_a_record_is_shown_without_what_only_the_daemon_needs(kit: Kit) -> None:
    stories = Stories()
    stories.dispatch(name(1), ancestors=(name(7), name(8)), labels={"a": "b"}, not_before_ms=1_800_000_000_123)
    stories.claim(name(1))
    await kit.append(stories.batch())
    facts = stories.facts[name(1)]
    dispatched, claimed = (await read(kit, HistoryLookup(facts.position, facts.n, 0, 9))).records
    assert dispatched == {
        "n": 1,
        "position": 1,
        "type": "dispatched",
        "at": "1970-01-01T00:00:01.000Z",
        "fence": 0,
        "kind": "work",
        "priority": 5,
        "budget": {"max_attempts": 3, "max_invalid_results": 3, "max_stalls": 2},
        "bytes": 2,
        "parent": name(8),
        "labels": {"a": "b"},
        "not_before": "2027-01-15T08:00:00.123Z",
    }
    assert claimed.keys() == {"n", "position", "type", "at", "fence", "worker", "ttl_ms", "attempt", "was"}


async def test_a_list_tells_what_is_left_of_a_lease(kit: Kit, stories: Stories) -> None:
    (status,) = (await read(kit, ListLookup(9, 0, 10, UNSET, UNSET, UNSET, UNSET))).handoffs
    assert (status.lease_left_ms, status.activity) == (LEASE.left_ms, LEASE.activity)


# --- an older checkpoint sent again ---------------------------------------------------------------------------------


def older(stories: Stories, seq: int, sha256: str) -> OlderCheckpoint:
    return OlderCheckpoint(name(1), stories.facts[name(1)].position, seq, sha256, 6)


async def test_the_same_older_one_is_a_duplicate(kit: Kit, stories: Stories) -> None:
    for seq in range(1, 6):
        sha256 = f"{seq:064x}"
        assert await read(kit, older(stories, seq, sha256)) == CheckpointReply(seq=seq, sha256=sha256, duplicate=True)


async def test_another_one_under_its_number_is_a_conflict(kit: Kit, stories: Stories) -> None:
    with pytest.raises(CheckpointConflict) as caught:
        await read(kit, older(stories, 2, "f" * 64))
    assert caught.value.details == {"seq": 2, "expected": f"{2:064x}", "got": "f" * 64}


async def test_one_that_was_pruned_is_out_of_order(kit: Kit, stories: Stories) -> None:
    await kit.prune([3, 4])
    with pytest.raises(OutOfOrder) as caught:
        await read(kit, older(stories, 1, f"{1:064x}"))
    assert caught.value.details == {"seq": 1, "expected": 6, "first_kept": 3}


async def test_what_cannot_be_read_is_unavailable_and_never_made_up(kit: Kit, stories: Stories) -> None:
    with pytest.raises(StoreUnavailable):
        await read(kit, ResultLookup(99))
