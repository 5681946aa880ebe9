"""Export and import, as the engine decides them: what leaves, what may come in, and what is never taken on trust."""

import copy
import hashlib
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from dhp_protocol.errors import DHPError, Forbidden, InvalidRequest, LeaseLost, ResultInvalid, TooLarge, WrongState
from dhp_protocol.limits import Limits
from dhp_protocol.messages import (
    Ack,
    ApprovalDecide,
    ApprovalRequest,
    BudgetAdd,
    Cancel,
    CheckCapability,
    Checkpoint,
    Claim,
    Complete,
    EffectBegin,
    EffectDone,
    Export,
    Fail,
    Forget,
    GetResult,
    History,
    Import,
    Redrive,
    Release,
    Resume,
    Spend,
    Suspend,
    WorkError,
)
from dhp_protocol.replies import LeaseLostEvent
from dhpd.engine.arriving import Arrival
from dhpd.engine.facts import Handoff
from dhpd.engine.roles import Caller
from tests.protocol.vectors import Case, parameters
from tests.support.bundles import Line, encoded, forged, with_payload, with_record
from tests.support.engine_world import LIMITS, TTL_MS, World, memory


def export(world: World, handoff: str, *, on: int | None = None) -> list[Line]:
    """The lines of the whole bundle."""
    page = world.run(Export(handoff=handoff), on=on)
    lines = [json.loads(bytes(line)) for line in page.records]
    while page.next is not None:
        page = world.run(Export(handoff=handoff, after=page.next), on=on)
        lines += [json.loads(bytes(line)) for line in page.records]
    return lines


def bring_in(world: World, lines: list[Line]) -> Any:
    return world.run(Import(records=[Raw(line) for line in encoded(lines)]))


def refused(lines: list[Line], *, limits: Limits = LIMITS) -> DHPError:
    with pytest.raises(DHPError) as caught:
        Arrival(limits).take(encoded(lines))
    return caught.value


def attempted(lines: list[bytes]) -> tuple[Arrival, DHPError | None]:
    arrival = Arrival(LIMITS)
    try:
        arrival.take(lines)
    except DHPError as error:
        return arrival, error
    return arrival, None


def types(world: World, handoff: str) -> list[str]:
    return [record["type"] for record in history(world, handoff)]


def history(world: World, handoff: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = world.run(History(handoff=handoff, after=after, limit=1_000))
        records += page.records
        after = page.next
    return records


def eventful(world: World) -> tuple[str, int]:
    """A handoff to which nearly everything has happened, and that runs."""
    handoff, fence = world.held(
        budget=Raw(b'{"max_steps":6,"max_usd":5,"max_attempts":9,"max_invalid_results":5}'),
        output_schema=Raw(b'{"type":"integer"}'),
        capabilities=Raw(b'{"net":["a*"]}'),
        labels={"team": "\u00e9\U0001f600", "\uffff": "x"},
        priority=7,
    )
    world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b'{"at": "\xc3\xa9"}'), usd=Raw(b"0.1")))
    world.run(Release(handoff=handoff, fence=fence, reason="later"))
    fence = world.claim(handoff, "bob", nonce="n-1")
    world.run(Spend(handoff=handoff, fence=fence, usd=Raw(b"1.5"), steps=1, nonce="s-1"))
    approval = world.run(
        ApprovalRequest(handoff=handoff, fence=fence, action="pay", details=Raw(b'{"b":1,"a":2}'), timeout_ms=60_000)
    ).approval
    world.run(ApprovalDecide(approval=approval, decision="approve", note="yes"), on=world.connect("person"))
    world.run(EffectBegin(handoff=handoff, fence=fence, step="pay", approval=approval))
    world.run(EffectDone(handoff=handoff, fence=fence, step="pay", result=Raw(b'"paid"')))
    world.run(EffectBegin(handoff=handoff, fence=fence, step="mail"))
    world.run(CheckCapability(handoff=handoff, fence=fence, domain="net", resource="b"))
    world.run(Fail(handoff=handoff, fence=fence, error=WorkError("Boom", "it broke"), delay_ms=0))
    fence = world.claim(handoff)
    world.advance(TTL_MS)
    fence = world.claim(handoff)
    verdict = _unfit()
    with pytest.raises(DHPError):
        world.run(Complete(handoff=handoff, fence=fence, result=Raw(b'"no"')), verdict=verdict)
    world.run(BudgetAdd(handoff=handoff, add=Raw(b'{"max_usd":1}'), nonce="b-1"))
    world.run(Suspend(handoff=handoff, fence=fence, wake_ms=1_000))
    world.advance(1_000)
    fence = world.claim(handoff)
    with pytest.raises(DHPError):
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"[2]"), steps=100))
    world.run(Redrive(handoff=handoff, budget_add=Raw(b'{"max_steps":200}')))
    fence = world.claim(handoff)
    world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"[3]")))
    return handoff, fence


def _unfit() -> Any:
    return ResultInvalid("no", path="", rule="type")


DIFFERENT = (
    *("number", "position", "anchor", "n", "fence", "reason", "updated_at_ms", "exported_n", "acked_at_ms"),
    *(
        "hold",
        "checkpoint",
        "result_position",
        "refused_position",
        "kept",
        "effects",
        "approvals",
        "nonce_marks",
        "token",
    ),
)
"""Facts that another daemon may have otherwise, and those that are compared member by member."""


def comparable(facts: Handoff) -> dict[str, Any]:
    """What must be the same wherever the handoff is; positions and what only its daemon knows apart."""
    hold, checkpoint = facts.hold, facts.checkpoint
    return {
        "plain": {name: getattr(facts, name) for name in Handoff.__struct_fields__ if name not in DIFFERENT},
        "hold": hold and (hold.worker, hold.fence, hold.ttl_ms, hold.claimed_at_ms, hold.was, hold.ended),
        "checkpoint": checkpoint and (checkpoint.seq, checkpoint.sha256, checkpoint.at_ms),
        "kept": facts.kept and (facts.kept.steps, facts.kept.usd_nano, facts.kept.seq, facts.kept.sha256),
        "effects": {
            step: (each.begun_fence, bool(each.done_position), each.sha256)
            for step, each in (facts.effects or {}).items()
        },
        "approvals": {
            name: (each.action, each.details_sha256, each.decision, each.by, each.note, each.used_by, each.token)
            for name, each in (facts.approvals or {}).items()
        },
    }


# --- export ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["pending", "running", "orphaned", "suspended"])
def test_unfinished_work_is_put_aside_and_nothing_wakes_it(status: str) -> None:
    world = World()
    worker = world.connect("worker")
    handoff = world.dispatch()
    fence = 0
    if status != "pending":
        fence = world.claim(handoff, on=worker)
    if status == "orphaned":
        world.advance(TTL_MS)
    if status == "suspended":
        world.run(Suspend(handoff=handoff, wake_ms=5_000))
    before = world.facts(handoff)
    assert before.status == status
    export(world, handoff)
    facts = world.facts(handoff)
    assert (facts.status, facts.reason, facts.fence) == ("suspended", "exported", before.fence + 1)
    assert types(world, handoff)[-2:] == ["suspended", "exported"]
    world.advance(100_000)
    assert world.facts(handoff).status == "suspended"
    with pytest.raises(WrongState):
        world.run(Resume(handoff=handoff))
    assert world.run(Resume(handoff=handoff, force=True)).status == "pending"
    if status == "running":
        lost = [event for event in world.heard[worker] if isinstance(event, LeaseLostEvent)]
        assert [(event.fence, event.why) for event in lost] == [(fence, "suspended")]
        with pytest.raises(LeaseLost):
            world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")))


def test_a_second_export_changes_nothing_and_gives_the_same() -> None:
    world = World()
    handoff, _ = eventful(world)
    first = export(world, handoff)
    position = world.engine.journal.position
    assert export(world, handoff) == first
    assert world.engine.journal.position == position


def test_final_work_stays_as_it_is() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    before = world.facts(handoff)
    export(world, handoff)
    after = world.facts(handoff)
    assert (after.status, after.fence, after.hold) == (before.status, before.fence, before.hold)
    assert types(world, handoff)[-1] == "exported"


def test_only_an_admin_takes_live_work_away() -> None:
    world = World()
    reader = world.connect(caller=Caller("r", ("reader",)))
    handoff, fence = world.held()
    with pytest.raises(Forbidden):
        world.run(Export(handoff=handoff), on=reader)
    assert world.facts(handoff).status == "running"
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    assert export(world, handoff, on=reader)
    with pytest.raises(Forbidden):
        world.run(Import(records=[Raw(line) for line in encoded(export(world, handoff))]), on=reader)


def test_pages_show_what_was_there_when_the_first_was_asked_for() -> None:
    world = World()
    handoff, fence = world.held(keep_checkpoints=1_000)
    for number in range(40):
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b'"%s"' % (b"x" * 900)), steps=number))
    whole = export(world, handoff)
    world.max_frame_bytes = 8_192
    page = world.run(Export(handoff=handoff))
    lines = [json.loads(bytes(line)) for line in page.records]
    world.run(Resume(handoff=handoff, force=True))
    fence = world.claim(handoff)
    world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"7")))
    pages = 1
    while page.next is not None:
        page = world.run(Export(handoff=handoff, after=page.next))
        lines += [json.loads(bytes(line)) for line in page.records]
        pages += 1
    assert pages > 4
    assert lines == whole
    assert world.facts(handoff).status == "running"


@pytest.mark.parametrize("change", [(0, 1), (1, 500), (2, 0), (2, 500)])
def test_a_place_that_was_never_given_is_refused(change: tuple[int, int]) -> None:
    world = World()
    handoff, fence = world.held(keep_checkpoints=1_000)
    for _ in range(40):
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b'"%s"' % (b"x" * 900))))
    world.max_frame_bytes = 8_192
    place = world.run(Export(handoff=handoff)).next.split("-")
    place[change[0]] = str(int(place[change[0]]) + 1 if change == (0, 1) else change[1])
    with pytest.raises(InvalidRequest) as caught:
        world.run(Export(handoff=handoff, after="-".join(place)))
    assert caught.value.details["member"] == "after"


def test_running_work_is_not_exported_by_the_way_of_a_later_page() -> None:
    world = World()
    handoff, _ = world.held()
    number = world.facts(handoff).number
    with pytest.raises(InvalidRequest):
        world.run(Export(handoff=handoff, after=f"{number}-2-1-2-{'0' * 64}"))


def test_nothing_in_a_bundle_opens_a_session() -> None:
    world = World()
    worker = world.connect("secret-session")
    handoff = world.dispatch()
    world.claim(handoff, on=worker, nonce="secret-nonce")
    fence = world.facts(handoff).fence
    ask = ApprovalRequest(handoff=handoff, fence=fence, action="pay", details=Raw(b"1"), timeout_ms=1_000)
    approval = world.run(ask, on=worker).approval
    world.run(ApprovalDecide(approval=approval, decision="approve"), on=world.connect("secret-person"))
    world.run(BudgetAdd(handoff=handoff, add=Raw(b'{"max_attempts":1}'), nonce="secret-nonce"))
    world.run(Spend(handoff=handoff, fence=fence, usd=Raw(b"1"), nonce="secret-nonce"))
    capped, fence = world.held(budget=Raw(b'{"max_usd":1}'))
    with pytest.raises(DHPError):
        world.run(Spend(handoff=capped, fence=fence, usd=Raw(b"2"), nonce="secret-nonce"))
    for add in ('{"max_usd":9}', None):
        for each in (handoff, capped):
            assert "secret" not in json.dumps(export(world, each)), add
        if add is not None:
            world.run(Redrive(handoff=capped, budget_add=Raw(add.encode()), nonce="secret-nonce"))


# --- import ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["aside", "completed", "cancelled", "dead", "acked"])
def test_it_arrives_as_it_was_and_without_a_lease(end: str) -> None:
    source, target = World(), World()
    target.dispatch()  # Positions are others there.
    handoff, fence = eventful(source)
    match end:
        case "completed" | "acked":
            source.run(Complete(handoff=handoff, fence=fence, result=Raw(b"5")))
        case "cancelled":
            source.run(Cancel(handoff=handoff, reason="enough"))
        case "dead":
            with pytest.raises(DHPError):
                source.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"[4]"), usd=Raw(b"100")))
    if end == "acked":
        source.run(Ack(handoff=handoff))
    lines = export(source, handoff)
    told = bring_in(target, lines)
    assert (told.handoff, told.created, told.taken) == (handoff, True, len(lines) - 2)
    here, there = source.facts(handoff), target.facts(handoff)
    assert comparable(here) == comparable(there)
    assert there.fence >= here.fence
    assert there.reason == ("imported" if end == "aside" else here.reason)
    if there.status == "completed":
        assert source.run(_result(handoff)) == target.run(_result(handoff))
    mine, theirs = history(source, handoff), history(target, handoff)
    for record in (*mine, *theirs):
        del record["position"]
    assert mine[:-1] == theirs[:-1]
    assert (mine[-1]["type"], theirs[-1]["type"]) == ("exported", "imported")
    assert target.engine.leases.get(handoff, there.fence) is None
    before = memory(target.engine)
    target.restart()
    after = memory(target.engine)
    assert before["facts"][handoff] == after["facts"].get(handoff, before["facts"][handoff])


def _result(handoff: str) -> Any:
    return GetResult(handoff=handoff)


def test_it_goes_on_where_it_was() -> None:
    source, target = World(), World()
    handoff, late = eventful(source)
    bring_in(target, export(source, handoff))
    with pytest.raises(LeaseLost) as caught:
        target.run(Checkpoint(handoff=handoff, fence=late, state=Raw(b"9")))
    assert caught.value.details["why"] == "suspended"
    target.run(Resume(handoff=handoff))
    grant = target.run(_claim(handoff))
    assert grant.fence > late
    assert bytes(grant.checkpoint.state) == b"[3]"
    assert target.run(EffectBegin(handoff=handoff, fence=grant.fence, step="pay")).state == "done"
    assert target.run(EffectBegin(handoff=handoff, fence=grant.fence, step="mail")).state == "in_doubt"
    target.run(Complete(handoff=handoff, fence=grant.fence, result=Raw(b"5")))
    told = bring_in(source, export(target, handoff))
    assert (told.created, told.taken) == (False, 3)
    assert bytes(source.run(_result(handoff)).result) == b"5"
    assert comparable(source.facts(handoff)) == comparable(target.facts(handoff))


def _claim(handoff: str) -> Any:
    return Claim(worker="eve", handoff=handoff)


def test_what_was_pruned_on_the_way_is_counted_all_the_same() -> None:
    source, target = World(), World()
    handoff, fence = source.held(keep_checkpoints=2, budget=Raw(b'{"max_steps":100}'))
    for number in range(9):
        source.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"%d" % number), steps=3, usd=Raw(b"0.25")))
    lines = export(source, handoff)
    assert [line["record"]["seq"] for line in lines if "seq" in line.get("record", {})] == [8, 9]
    bring_in(target, lines)
    facts = target.facts(handoff)
    assert (facts.steps, facts.usd_nano, facts.seq) == (27, 2_250_000_000, 9)
    target.restart()
    assert target.facts(handoff) == facts
    again = export(target, handoff)
    assert again[0]["steps"] == 27
    assert bring_in(source, again).taken == 1, "the suspension there"


def test_a_checkpoint_whose_state_was_taken_out_is_as_good_as_pruned() -> None:
    source, target = World(), World()
    handoff, fence = source.held()
    for number in range(3):
        source.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"%d" % number)))
    lines = export(source, handoff)
    for line in lines:
        if line.get("record", {}).get("seq") in (1, 2):
            del line["payload"]
    bring_in(target, lines)
    assert (target.facts(handoff).steps, target.facts(handoff).seq) == (3, 3)
    assert types(target, handoff).count("checkpointed") == 1
    newest = next(line for line in lines if line.get("record", {}).get("seq") == 3)
    del newest["payload"]
    assert refused(lines).details["line"] == len(lines)


def test_no_fence_is_below_what_this_store_has_purged() -> None:
    source, target = World(), World(purged_fence=1_000)
    handoff, _ = source.held()
    bring_in(target, export(source, handoff))
    assert target.facts(handoff).fence == 1_000
    target.run(Resume(handoff=handoff))
    assert target.claim(handoff) > 1_000
    target.restart()
    assert target.facts(handoff).status == "running"


def test_what_was_forgotten_comes_back_above_itself() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    lines = export(world, handoff)
    other = world.dispatch()
    for _ in range(5):
        world.run(Release(handoff=other, fence=world.claim(other)))
    world.run(Cancel(handoff=other))
    world.run(Forget(handoff=other))
    world.run(Forget(handoff=handoff))
    assert bring_in(world, lines).created
    assert world.facts(handoff).fence == world.engine.purged_fence > fence


def test_a_bundle_of_what_is_here_already_changes_nothing() -> None:
    world, target = World(), World()
    handoff, _ = eventful(world)
    lines = export(world, handoff)
    bring_in(target, lines)
    for daemon in (world, target):
        before = daemon.facts(handoff)
        told = bring_in(daemon, lines)
        assert (told.created, told.taken) == (False, 0)
        assert daemon.facts(handoff) == before


def test_what_has_gone_another_way_is_left_as_it_is() -> None:
    world, target = World(), World()
    handoff, _ = world.held()
    bring_in(target, export(world, handoff))
    target.run(Resume(handoff=handoff))
    target.run(Cancel(handoff=handoff))
    world.jump(5)
    world.run(Resume(handoff=handoff, force=True))
    world.claim(handoff)
    before = target.facts(handoff)
    told = bring_in(target, export(world, handoff))
    assert (told.created, told.taken) == (False, 0)
    assert target.facts(handoff) == before


def test_a_longer_history_goes_on_where_the_shorter_one_ended() -> None:
    world, target = World(), World()
    handoff, _ = world.held()
    bring_in(target, export(world, handoff))
    world.run(Resume(handoff=handoff, force=True))
    fence = world.claim(handoff)
    world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"8")))
    assert bring_in(target, export(world, handoff)).taken == 4
    assert target.facts(handoff).reason == "imported"
    assert comparable(target.facts(handoff)) == comparable(world.facts(handoff))
    target.restart()
    assert comparable(target.facts(handoff)) == comparable(world.facts(handoff))


FEW = Limits(max_bundle_records=12)


def busy_parent(world: World, parent: str, spends: int) -> None:
    """A child of `parent` spends again and again."""
    child = world.dispatch(parent=parent)
    fence = world.claim(child)
    for _ in range(spends):
        world.run(Spend(handoff=child, fence=fence, steps=1, usd=Raw(b"0.25")))


def test_a_parent_may_go_however_often_its_children_spent_and_come_back() -> None:
    source, target = World(limits=FEW), World(limits=FEW)
    parent = source.dispatch(budget=Raw(b'{"max_steps":300}'))
    busy_parent(source, parent, 100)
    lines = export(source, parent)
    assert [line["record"]["type"] for line in lines[1:-1]] == ["dispatched", "suspended"]
    assert bring_in(target, lines).created
    target.restart()
    assert (target.status(parent).steps, target.status(parent).usd) == (100, 25)
    target.run(Resume(handoff=parent))
    busy_parent(target, parent, 100)
    fence = target.claim(parent)
    target.run(Spend(handoff=parent, fence=fence, steps=1))
    target.run(Complete(handoff=parent, fence=fence, result=Raw(b"1")))
    told = bring_in(source, export(target, parent))
    assert (told.created, told.taken) == (False, 4)
    assert (source.status(parent).steps, source.status(parent).usd) == (201, 50)
    assert comparable(source.facts(parent)) == comparable(target.facts(parent))


def test_work_that_has_ended_may_go_though_its_children_spent_since() -> None:
    """The bundle then ends before what it leaves out, and its sums are more than its records add up to."""
    source, target = World(), World()
    parent = source.dispatch()
    child = source.dispatch(parent=parent)
    source.run(Complete(handoff=parent, fence=source.claim(parent), result=Raw(b"1")))
    source.run(Spend(handoff=child, fence=source.claim(child), steps=3, usd=Raw(b"0.5")))
    assert bring_in(target, export(source, parent)).created
    assert (target.status(parent).steps, target.status(parent).usd) == (3, 0.5)


@pytest.mark.parametrize("spent_there", [1, 5])
def test_where_children_spent_since_the_move_a_longer_history_does_not_take_that_back(spent_there: int) -> None:
    source, target = World(), World()
    parent = source.dispatch()
    busy_parent(source, parent, 3)
    bring_in(target, export(source, parent))
    busy_parent(target, parent, 2)
    busy_parent(source, parent, spent_there)
    source.run(Resume(handoff=parent, force=True))
    before = target.facts(parent)
    assert bring_in(target, export(source, parent)).taken == 0
    assert target.facts(parent) == before
    assert target.status(parent).steps == 5


def test_live_work_that_no_bundle_can_hold_is_not_put_aside() -> None:
    world = World(limits=FEW)
    handoff, fence = world.held(keep_checkpoints=2)
    for number in range(9):
        world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"%d" % number)))
    for _ in range(7):
        world.run(Spend(handoff=handoff, fence=fence, steps=1))
    world.run(Spend(handoff=handoff, fence=fence, steps=1))
    before = world.facts(handoff)
    with pytest.raises(TooLarge) as caught:
        export(world, handoff)
    assert caught.value.details == {"member": "handoff", "limit": 12, "size": 13}
    assert world.facts(handoff) is before
    assert before.status == "running"
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    assert len(export(world, handoff)) == 15, "what is final loses nothing by a copy, for a daemon that takes more"


def test_as_many_records_as_a_bundle_may_have_are_taken() -> None:
    source, target = World(limits=FEW), World(limits=FEW)
    handoff, fence = source.held(keep_checkpoints=2)
    for number in range(9):
        source.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"%d" % number)))
    for _ in range(7):
        source.run(Spend(handoff=handoff, fence=fence, steps=1))
    assert bring_in(target, export(source, handoff)).taken == 12


def test_an_approval_of_the_holders_own_giving_is_no_approval_in_a_bundle_either(whole: list[Line]) -> None:
    lines = copy.deepcopy(whole)
    for line in lines:
        if line.get("record", {}).get("type") in ("claimed", "approval_decided"):
            line["record"]["token"] = "ada"
    error = refused(forged(lines))
    assert "holder gave" in error.message
    assert lines[error.details["line"] - 1]["record"]["type"] == "effect_begun"


def test_work_that_somebody_holds_is_not_taken_from_them() -> None:
    world = World()
    handoff, _ = world.held()
    lines = export(world, handoff)
    world.run(Resume(handoff=handoff, force=True))
    world.claim(handoff)
    longer = export(world, handoff)
    copy_of_disk = World()
    bring_in(copy_of_disk, lines)
    # The same records, made here: as where a daemon was copied with its directory.
    copy_of_disk.run(Resume(handoff=handoff))
    copy_of_disk.claim(handoff)
    assert copy_of_disk.facts(handoff).status == "running"
    told = bring_in(copy_of_disk, longer)
    assert (told.taken, copy_of_disk.facts(handoff).status) == (0, "running")


def test_a_commit_that_fails_takes_all_of_it_back() -> None:
    world, target = World(), World()
    handoff, _ = eventful(world)
    lines = export(world, handoff)
    target.commit()
    before = memory(target.engine)
    call = target.send(Import(records=[Raw(line) for line in encoded(lines)]))
    target.fail_commit()
    assert call.answer.code == "store_unavailable"
    assert memory(target.engine) == before
    assert bring_in(target, lines).created
    extended = World()
    first = export(world, handoff)
    bring_in(extended, first)
    world.run(Resume(handoff=handoff, force=True))
    longer = export(world, handoff)
    held = extended.facts(handoff)
    call = extended.send(Import(records=[Raw(line) for line in encoded(longer)]))
    assert extended.facts(handoff) != held
    extended.fail_commit()
    assert extended.facts(handoff) == held
    assert bring_in(extended, longer).taken > 0


def test_a_child_keeps_its_ancestors_and_counts_against_those_that_are_here() -> None:
    world, target = World(), World()
    parent = world.dispatch(budget=Raw(b'{"max_steps":10}'))
    child = world.dispatch(parent=parent)
    world.run(Checkpoint(handoff=child, fence=world.claim(child), state=Raw(b"1"), steps=4))
    lines = export(world, child)
    bring_in(target, lines)
    assert target.facts(child).parent == parent
    target.run(Resume(handoff=child))
    fence = target.claim(child)
    target.run(Checkpoint(handoff=child, fence=fence, state=Raw(b"2"), steps=50))
    bring_in(target, export(world, parent))
    assert target.facts(parent).steps == 4
    with pytest.raises(DHPError) as caught:
        target.run(Checkpoint(handoff=child, fence=fence, state=Raw(b"3"), steps=7))
    assert (caught.value.code, caught.value.details["whose"]) == ("budget_exceeded", parent)


# --- strangers ---------------------------------------------------------------------------------------------------------


def _set(name: str, value: Any) -> Callable[[Line], None]:
    return lambda record: record.__setitem__(name, value)


FORGERIES: list[tuple[str, str, Callable[[Line], None]]] = [
    ("another kind than the intent's", "dispatched", _set("kind", "other")),
    ("a larger budget than the intent's", "dispatched", _set("budget", {"max_steps": 1_000})),
    ("no schema", "dispatched", _set("has_schema", False)),
    ("capabilities that are none", "dispatched", _set("capable", False)),
    ("another length", "dispatched", _set("bytes", 3)),
    ("itself as an ancestor", "dispatched", _set("ancestors", ["a" * 64, "a" * 64])),
    ("a label too long", "dispatched", _set("labels", {"a": "x" * 300})),
    ("a time that can't be shown", "dispatched", _set("at_ms", 10**15)),
    ("a negative time", "claimed", _set("at_ms", -1)),
    ("a fence that falls", "claimed", _set("fence", 0)),
    ("a fence that jumps", "released", _set("fence", 17)),
    ("a number that was there", "claimed", _set("n", 1)),
    ("a number that isn't whole", "claimed", _set("n", 2.5)),
    ("a truth for a number", "claimed", _set("n", True)),
    ("a session", "claimed", _set("session", "mine")),
    ("an unknown member", "claimed", _set("colour", "red")),
    ("an unknown type", "claimed", _set("type", "blessed")),
    ("a record that stays where it is", "claimed", _set("type", "exported")),
    ("a miscounted claim", "claimed", _set("attempt", 4)),
    ("a claim of what was running", "claimed", _set("was", "running")),
    ("steps below zero", "checkpointed", _set("steps", -1)),
    ("a sum out of bounds", "checkpointed", _set("steps", 2**53)),
    ("money out of bounds", "checkpointed", _set("usd_nano", 10**18)),
    ("a seq out of order", "checkpointed", _set("seq", 2)),
    ("another hash", "checkpointed", _set("sha256", "0" * 64)),
    ("another size", "checkpointed", _set("bytes", 1)),
    ("another worker", "released", _set("worker", "mallory")),
    ("failures that weren't", "failed", _set("failures", 0)),
    ("stalls that weren't", "orphaned", _set("stalls", 1)),
    ("an orphan for no reason", "orphaned", _set("why", "bored")),
    ("a smaller budget", "budget_added", _set("budget", {"max_steps": 1})),
    ("a new cap", "budget_added", lambda record: record["budget"].update(stall_ms=5)),
    ("an effect that was begun before", "effect_begun", _set("step", "mail")),
    ("an effect that was never begun", "effect_done", _set("step", "other")),
    ("an approval of another handoff", "approval_requested", _set("approval", "b" * 64 + "-" + "0" * 16)),
    ("a decision that nobody asked for", "approval_decided", _set("approval", "b" * 64 + "-" + "0" * 16)),
    ("a decision that isn't one", "approval_decided", _set("decision", "maybe")),
    ("an approval that there isn't", "suspended", _set("approval", "b" * 64 + "-" + "0" * 16)),
    ("a refusal that leaves too much", "result_refused", _set("left", 9)),
    ("a kept checkpoint out of order", "dead", _set("kept_seq", 9)),
    ("a cap that there isn't", "dead", _set("cap", "max_fun")),
    ("something else than was kept", "redriven", _set("steps", 1)),
    ("time taken back", "redriven", _set("dead_ms", -5)),
    ("a resumption for no reason", "resumed", _set("why", "magic")),
]


@pytest.fixture(scope="module")
def whole() -> list[Line]:
    world = World()
    handoff, _ = eventful(world)
    return export(world, handoff)


@pytest.mark.parametrize(
    ("record_type", "change"),
    [pytest.param(kind, change, id=name.replace(" ", "-")) for name, kind, change in FORGERIES],
)
def test_what_could_not_have_happened_is_refused_by_its_line(
    whole: list[Line], record_type: str, change: Callable[[Line], None]
) -> None:
    number = next(number for number, line in enumerate(whole, 1) if line.get("record", {}).get("type") == record_type)
    error = refused(with_record(whole, number, change))
    # Where the wrong one changes nothing by itself, the next one that doesn't follow it is told.
    assert error.code == "invalid_request"
    assert number <= error.details["line"] <= number + (record_type == "effect_begun") * 4


def test_every_record_of_a_type_that_is_left_out_is_missed(whole: list[Line]) -> None:
    for number in range(2, len(whole)):
        lines = forged(whole[: number - 1] + whole[number:])
        record = whole[number - 1]["record"]
        if record["type"] in ("spent", "capability_checked", "approval_decided", "effect_done", "effect_begun"):
            continue  # Notes may be dropped by who makes a chain of their own: it shows integrity, not authorship.
        if record["type"] in ("checkpointed", "result_refused", "budget_added"):
            continue
        assert refused(lines).code == "invalid_request", record["type"]


def test_live_work_that_was_not_put_aside_is_refused(whole: list[Line]) -> None:
    assert refused(forged([*whole[:-2], whole[-1]])).details["line"] == len(whole) - 1


def test_more_than_its_caps_allow_is_refused(whole: list[Line]) -> None:
    envelope = {**whole[0], "steps": 1_000}
    assert refused(forged([envelope, *whole[1:]])).details["line"] == len(whole)


@pytest.mark.parametrize(
    "payload", ["{", "[1]\n", " 1", '"\\ud800"', "[" * 200 + "]" * 200, '{"a":\n1}', "nul", '"' + "x" * 2_000 + '"']
)
def test_a_payload_that_could_not_have_been_sent_is_refused(whole: list[Line], payload: str) -> None:
    number = next(
        number for number, line in enumerate(whole, 1) if line.get("record", {}).get("type") == "checkpointed"
    )
    lines = copy.deepcopy(whole)
    lines[number - 1] = with_payload(lines[number - 1], payload)
    error = refused(forged(lines))
    assert error.details["line"] == number
    assert error.code == ("too_large" if "x" in payload else "invalid_request")


@pytest.mark.parametrize(
    "intent",
    [
        '{"kind":"work"}',
        '{"budget":{},"capabilities":{},"inputs":{},"key":"","kind":"work","output_schema":{} }',
        '{"budget":{"max_fun":1},"capabilities":{},"inputs":{},"key":"","kind":"work","output_schema":{}}',
        '{"budget":{},"capabilities":{"a":1},"inputs":{},"key":"","kind":"work","output_schema":{}}',
        '{"budget":{},"capabilities":{},"inputs":[],"key":"","kind":"work","output_schema":{}}',
        '{"budget":{},"capabilities":{},"inputs":{},"key":"","kind":"a b","output_schema":{}}',
        '{"budget":{},"capabilities":{},"extra":1,"inputs":{},"key":"","kind":"work","output_schema":{}}',
        "[1]",
        "",
    ],
)
def test_an_intent_that_could_not_have_been_dispatched_is_refused(whole: list[Line], intent: str) -> None:
    envelope = {**whole[0], "intent": intent, "handoff": hashlib.sha256(intent.encode()).hexdigest()}
    assert refused(forged([envelope, *whole[1:]])).details["line"] == 1


def test_a_fence_that_would_leave_no_room_is_refused() -> None:
    world = World(purged_fence=2**52)
    handoff = world.dispatch()
    world.run(Cancel(handoff=handoff))
    lines = export(world, handoff)
    assert "fence" in refused(lines).message


def test_bundles_are_bounded(whole: list[Line]) -> None:
    few = Limits(max_bundle_records=5)
    error = refused(whole, limits=few)
    assert (error.code, error.details["line"], error.details["limit"]) == ("too_large", 7, 5)
    small = Limits(max_bundle_bytes=len(encoded(whole)[0]) + 10)
    error = refused(whole, limits=small)
    assert isinstance(error, TooLarge)
    assert error.details["line"] == 2


def test_whatever_is_changed_is_refused_or_means_the_same(whole: list[Line], rng: random.Random) -> None:
    """Random damage to the text of any line, with the chain left as it is, or made right again by a forger."""
    texts = encoded(whole)
    good = Arrival(LIMITS)
    good.take(texts)
    for _ in range(500):
        damaged = list(texts)
        number = rng.randrange(len(texts))
        damaged[number] = _damaged(texts[number], rng)
        arrival, error = attempted(damaged)
        if error is not None:
            assert error.code in ("invalid_request", "too_large"), damaged[number]
            assert error.details["line"] == number + 1, damaged[number]
        else:
            assert arrival.whole, damaged[number]
            assert (arrival.envelope, arrival.changes, arrival.facts) == (good.envelope, good.changes, good.facts)


def test_no_forgery_makes_the_daemon_stumble(whole: list[Line], rng: random.Random) -> None:
    """Members of records changed at random, in a chain that is right: refused, or taken, stored and read again."""
    taken = 0
    for _ in range(500):
        lines = copy.deepcopy(whole)
        for _ in range(rng.randint(1, 2)):
            _forge(lines, rng)
        lines = forged(lines)
        _, error = attempted(encoded(lines))
        if error is not None:
            assert error.code in ("invalid_request", "too_large")
            assert 1 <= error.details["line"] <= len(lines)
            continue
        taken += 1
        world = World()
        told = bring_in(world, lines)
        assert world.status(told.handoff)
        history(world, told.handoff)
        world.restart()
        world.advance(100)
        assert world.status(told.handoff)
        world.run(Export(handoff=told.handoff))
    print(f"{taken} of 500 were taken")
    assert taken > 5


def _damaged(text: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(text))
    match rng.randrange(5):
        case 0:
            return text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
        case 1:
            return text[:at] + text[at + 1 :]
        case 2:
            return text[:at] + bytes([rng.choice(b'0123456789abcdef{}[]",: \\')]) + text[at:]
        case 3:
            return text[:at]
        case _:
            other = rng.randrange(len(text))
            first, last = sorted((at, other))
            return text[:first] + text[last:]


def _forge(lines: list[Line], rng: random.Random) -> None:
    number = rng.randrange(1, len(lines) - 1)
    record = lines[number]["record"]
    name = rng.choice(sorted(record))
    match rng.randrange(6):
        case 0:
            record[name] = rng.choice([0, 1, -1, 2**53 - 1, 2**53, 2**70, None, True, "", "x", [], {}, 1.5, "0" * 64])
        case 1 if isinstance(record[name], int):
            record[name] += rng.choice([-1, 1, 1_000])
        case 2:
            del record[name]
        case 3:
            other = lines[rng.randrange(1, len(lines) - 1)]["record"]
            record[rng.choice(sorted(other))] = rng.choice(list(other.values()))
        case 4:
            del lines[number]
        case _:
            lines[0][rng.choice(["n", "seq", "steps", "usd_nano"])] += rng.choice([-1, 1, 100])


def test_the_start_of_time_is_not_what_it_was() -> None:
    """What is due by the wall clock elsewhere is due here: a cap on time doesn't stand still on the way."""
    source, target = World(), World()
    handoff, _ = source.held(budget=Raw(b'{"max_wallclock_ms":10000}'))
    lines = export(source, handoff)
    target.jump(20_000)
    bring_in(target, lines)
    assert target.status(handoff).status == "dead"


@pytest.mark.parametrize("case", parameters("bundles"))
def test_a_daemon_takes_the_vectors_as_they_are_told(case: Case) -> None:
    lines = [line.encode() for line in case["lines"]]
    arrival, error = attempted(lines)
    if "handoff" in case:
        assert error is None
        assert bring_in(World(), [json.loads(line) for line in lines]).handoff == case["handoff"]
    elif case["line"] <= len(lines):
        assert error is not None
        assert (error.code, error.details["line"]) == ("invalid_request", case["line"])
    else:
        assert error is None
        assert not arrival.whole, "it waits for more"
