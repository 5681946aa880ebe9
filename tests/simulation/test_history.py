"""The judge of histories: it finds each kind of lie, and nothing where there is none."""

import hashlib
from typing import Any

import pytest

from .history import (
    FENCE_FELL,
    GONE,
    LATE_WRITE,
    RESULT_CHANGED,
    RESUMED_EARLY,
    TAKEN_BACK,
    TWO_HOLDERS,
    Kept,
    Operation,
    judge,
)

H = "a" * 64


def sha256(state: str) -> str:
    return hashlib.sha256(state.encode()).hexdigest()


def asked(called: int, answered: int | None, request: dict[str, Any], **said: Any) -> Operation:
    """An operation that was answered well, or not at all."""
    request = {"handoff": H, **request}
    return Operation("c", called, request, answered, None if answered is None else {"ok": True, **said})


def refused(called: int, answered: int, request: dict[str, Any], code: str, **details: Any) -> Operation:
    said = {"ok": False, "error": {"code": code, "details": {"handoff": H, **details}}}
    return Operation("c", called, {"handoff": H, **request}, answered, said)


def claim(called: int, answered: int, fence: int, seq: int = 0, worker: str = "w") -> Operation:
    checkpoint = {"seq": seq, "sha256": sha256(f"{seq}")} if seq else None
    request = {"op": "claim", "worker": worker, "nonce": f"{worker}-{fence}"}
    return asked(called, answered, request, handoff=H, fence=fence, checkpoint=checkpoint)


def checkpoint(called: int, answered: int | None, fence: int, seq: int) -> Operation:
    request = {"op": "checkpoint", "fence": fence, "seq": seq}
    return asked(called, answered, request, seq=seq, sha256=sha256(f"{seq}"))


def complete(called: int, answered: int, fence: int) -> Operation:
    return asked(called, answered, {"op": "complete", "fence": fence, "result": 1})


def status(called: int, answered: int, position: int, seq: int = 0, fence: int = 1, is_: str = "running") -> Operation:
    return asked(called, answered, {"op": "status"}, handoff=H, position=position, seq=seq, fence=fence, status=is_)


def result(called: int, answered: int, value: Any, is_: str = "completed") -> Operation:
    return asked(called, answered, {"op": "result"}, status=is_, result=value)


def journal(*records: tuple[Any, ...], gone: tuple[int, ...] = ()) -> list[Kept]:
    """A journal of these: type, fence, and what else there is of it."""
    kept = []
    for position, (kind, fence, *more) in enumerate(records, 1):
        members, payload = (more[0] if more else {}), (more[1] if len(more) > 1 else None)
        record = {"type": kind, "fence": fence, **members}
        kept.append(Kept(position, H, record, payload, there=position not in gone))
    return kept


def stored(seq: int, fence: int = 1) -> tuple[Any, ...]:
    return ("checkpointed", fence, {"seq": seq, "sha256": sha256(f"{seq}")})


BEGUN = (("dispatched", 0), ("claimed", 1, {"worker": "w"}))
TAKEN_OVER = (*BEGUN, stored(1), ("orphaned", 2), ("claimed", 3, {"worker": "w"}))
DONE = (*TAKEN_OVER, ("completed", 3, {}, b"1"))

HONEST = [
    ([asked(1, 2, {"op": "dispatch"}, handoff=H, created=True)], BEGUN),
    ([claim(1, 2, 1), checkpoint(3, 4, 1, 1), checkpoint(5, None, 1, 2), claim(6, 7, 3, seq=1)], TAKEN_OVER),
    # The second was called before the first was answered: either may have come first.
    ([status(1, 4, position=5), status(2, 3, position=3)], TAKEN_OVER),
    ([checkpoint(1, 4, 1, 1), status(2, 3, position=2)], TAKEN_OVER),
    ([claim(1, 2, 1), checkpoint(3, 6, 1, 1), claim(4, 5, 3, seq=1)], TAKEN_OVER),
    ([complete(1, 2, 3), result(3, 4, 1), result(5, 6, 1), status(7, 8, 6, 1, 3, "completed")], DONE),
    # It was forgotten, and is another one now.
    ([result(1, 2, 1), result(3, 4, None, "pending")], (*DONE, ("forgotten", 3), ("dispatched", 3))),
    ([checkpoint(1, 2, 1, 1), claim(3, 4, 4)], (*DONE, ("forgotten", 3), ("dispatched", 3), ("claimed", 4, {"worker": "w"}))),
    ([refused(1, 2, {"op": "checkpoint", "fence": 1}, "lease_lost", fence=2), claim(3, 4, 3, seq=1)], TAKEN_OVER),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(HONEST)))
def test_where_nobody_lied_nothing_is_found(number: int) -> None:
    history, records = HONEST[number]
    assert judge(history, journal(*records)) == []


LIES = {
    "a checkpoint that was acknowledged isn't there": (GONE, [checkpoint(1, 2, 1, 2)], TAKEN_OVER),
    "another state is there": (GONE, [asked(1, 2, {"op": "checkpoint", "fence": 1}, seq=1, sha256="0")], TAKEN_OVER),
    "a result that was acknowledged isn't there": (GONE, [complete(1, 2, 3)], TAKEN_OVER),
    "another result is there": (GONE, [asked(1, 2, {"op": "complete", "fence": 3, "result": 2})], DONE),
    "a dispatch that was acknowledged isn't there": (GONE, [asked(1, 2, {"op": "dispatch"}, handoff="b" * 64)], BEGUN),
    "a grant isn't there": (GONE, [claim(1, 2, 5)], TAKEN_OVER),
    "a release isn't there": (GONE, [asked(1, 2, {"op": "release", "fence": 1})], TAKEN_OVER),
    "a spend isn't there": (GONE, [asked(1, 2, {"op": "spend", "fence": 1, "steps": 1, "nonce": "n"})], TAKEN_OVER),
    "an effect's result isn't there": (
        GONE,
        [asked(1, 2, {"op": "effect_done", "fence": 1, "step": "s", "result": 1})],
        (*BEGUN, ("effect_begun", 1, {"step": "s"})),
    ),
    "a decision isn't there": (
        GONE,
        [asked(1, 2, {"op": "approval_decide", "approval": f"{H}-1"}, decision="approved")],
        (*BEGUN, ("approval_decided", 1, {"approval": f"{H}-1", "decision": "denied"})),
    ),
    "one fence, granted to two": (TWO_HOLDERS, [claim(1, 2, 1), claim(3, 4, 1, worker="v")], (*BEGUN, ("claimed", 1, {"worker": "v"}))),
    "a read that shows less than one before": (TAKEN_BACK, [status(1, 2, 5), status(3, 4, 4)], TAKEN_OVER),
    "a list that shows less": (
        TAKEN_BACK,
        [
            status(1, 2, 5),
            asked(3, 4, {"op": "list"}, handoffs=[{"handoff": H, "position": 2, "seq": 0, "fence": 1}], next=None),
        ],
        TAKEN_OVER,
    ),
    "a history that shows less": (
        TAKEN_BACK,
        [status(1, 2, 5), asked(3, 4, {"op": "history"}, records=[{"position": 2}], next=None)],
        TAKEN_OVER,
    ),
    "a read without what was acknowledged": (TAKEN_BACK, [checkpoint(1, 2, 1, 1), status(3, 4, 5, 0)], TAKEN_OVER),
    "a result that is another one later": (RESULT_CHANGED, [result(1, 2, 1), result(3, 4, 2)], DONE),
    "a result that is none later": (RESULT_CHANGED, [result(1, 2, 1), result(3, 4, None, "dead")], DONE),
    "a status that isn't completed any more": (RESULT_CHANGED, [result(1, 2, 1), status(3, 4, 6, 1, 3)], DONE),
    "a fence that falls": (FENCE_FELL, [status(1, 2, 4, 1, 3), status(3, 4, 5, 1, 2)], TAKEN_OVER),
    "a refusal with a lower fence": (
        FENCE_FELL,
        [claim(1, 2, 3, 1), refused(3, 4, {"op": "spend", "fence": 1}, "lease_lost", fence=2)],
        TAKEN_OVER,
    ),
    "a standby without what was acknowledged": (RESUMED_EARLY, [checkpoint(1, 2, 1, 1), claim(3, 4, 3)], TAKEN_OVER),
    "the same, where the answer came late": (RESUMED_EARLY, [checkpoint(1, 9, 1, 1), claim(3, 4, 3)], TAKEN_OVER),
    "a write under an older fence": (LATE_WRITE, [claim(1, 2, 3, 1), checkpoint(3, 4, 1, 1)], TAKEN_OVER),
    "a renewal under an older fence": (
        LATE_WRITE,
        [
            claim(1, 2, 3, 1),
            asked(3, 4, {"op": "heartbeat", "leases": [{"handoff": H, "fence": 1}]}, renewed=[H], lost=[]),
        ],
        TAKEN_OVER,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_each_kind_of_lie_is_found(name: str) -> None:
    kind, history, records = LIES[name]
    assert {lie.kind for lie in judge(history, journal(*records))} == {kind}


def test_what_can_not_be_read_any_more_is_a_lie_unless_it_may_have_gone() -> None:
    begun = (("dispatched", 0, {"keep_checkpoints": 1}), ("claimed", 1, {"worker": "w"}))
    history = [checkpoint(1, 2, 1, 1), checkpoint(3, 4, 1, 2)]
    assert judge(history, journal(*begun, stored(1), stored(2), gone=(3,))) == []
    assert [lie.kind for lie in judge(history, journal(*begun, stored(1), stored(2), gone=(4,)))] == [GONE]
    done = (*begun, ("completed", 1, {}, b"1"))
    assert [lie.kind for lie in judge([complete(1, 2, 1)], journal(*done, gone=(3,)))] == [GONE]
    assert judge([complete(1, 2, 1)], journal(*done, ("forgotten", 1), gone=(1, 2, 3))) == []
