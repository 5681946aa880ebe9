"""Rules for the holder's writes: checkpoint and complete.

Owns the order of checkpoints, the finality of results, and what counts as the same write sent again. Pure.
"""

import hashlib
from collections.abc import Sequence

from msgspec import UNSET, Struct

from dhp_protocol.errors import CheckpointConflict, OutOfOrder, ResultInvalid
from dhp_protocol.limits import Limits
from dhp_protocol.messages import Checkpoint, Complete
from dhp_protocol.money import nano_usd
from dhp_protocol.replies import CheckpointReply

from .facts import Handoff
from .fencing import check_fence, ended_by
from .moments import Now
from .records import Change, Checkpointed, Completed, Dead, ResultRefused
from .retention import replaced_seq
from .sizes import check_result, check_state


class OlderCheckpoint(Struct, frozen=True):
    """A checkpoint sent again that isn't the newest: whether it is the same only the journal can tell."""

    handoff: str
    head: int
    seq: int
    sha256: str
    expected_seq: int


class CheckpointDecision(Struct, frozen=True):
    """`record` is what is to be kept (None: it is there already), with its `state`, unless a cap is in the way."""

    record: Checkpointed | None
    state: bytes
    answer: CheckpointReply | OlderCheckpoint


def decide_checkpoint(handoff: Handoff, request: Checkpoint, limits: Limits, now: Now) -> CheckpointDecision:
    """The next checkpoint, or the same one again."""
    hold = check_fence(handoff, request.fence)
    state = bytes(request.state)
    check_state(len(state), limits)
    sha256 = hashlib.sha256(state).hexdigest()
    if request.sha256 is not UNSET and request.sha256 != sha256:
        raise CheckpointConflict(
            "The state's bytes don't have the sha256 that was sent: send them again.",
            expected=request.sha256,
            got=sha256,
        )
    newest_seq = handoff.seq
    seq = newest_seq + 1 if request.seq is UNSET else request.seq
    if seq <= newest_seq:
        return _sent_again(handoff, seq, sha256, state)
    if seq != newest_seq + 1:
        raise out_of_order(seq, newest_seq + 1, None)
    assert hold.ended is None
    record = Checkpointed(
        n=handoff.n + 1,
        at_ms=now.wall_ms,
        fence=handoff.fence,
        seq=seq,
        sha256=sha256,
        bytes=len(state),
        steps=request.steps,
        usd_nano=0 if request.usd is UNSET else nano_usd(request.usd, member="usd"),
    )
    return CheckpointDecision(record, state, CheckpointReply(seq=seq, sha256=sha256, duplicate=False))


def _sent_again(handoff: Handoff, seq: int, sha256: str, state: bytes) -> CheckpointDecision:
    newest = handoff.checkpoint
    if newest is not None and seq == newest.seq:
        if sha256 != newest.sha256:
            raise checkpoint_conflict(seq, newest.sha256, sha256)
        return CheckpointDecision(None, state, CheckpointReply(seq=seq, sha256=sha256, duplicate=True))
    if seq <= replaced_seq(handoff):
        raise out_of_order(seq, handoff.seq + 1, replaced_seq(handoff) + 1)
    older = OlderCheckpoint(handoff.id, handoff.position, seq, sha256, handoff.seq + 1)
    return CheckpointDecision(None, state, older)


def answer_older(older: OlderCheckpoint, stored_sha256: str | None, first_kept: int | None) -> CheckpointReply:
    """The answer to an older checkpoint sent again; raises where it is another one, or no longer kept."""
    if stored_sha256 is None:
        raise out_of_order(older.seq, older.expected_seq, first_kept)
    if stored_sha256 != older.sha256:
        raise checkpoint_conflict(older.seq, stored_sha256, older.sha256)
    return CheckpointReply(seq=older.seq, sha256=older.sha256, duplicate=True)


def checkpoint_conflict(seq: int, stored: str, got: str) -> CheckpointConflict:
    sentence = f"Checkpoint {seq} is stored with another content: read last_checkpoint and go on from there."
    return CheckpointConflict(sentence, seq=seq, expected=stored, got=got)


def out_of_order(seq: int, expected: int, first_kept: int | None) -> OutOfOrder:
    sentence = f"Checkpoint {seq} can't be taken: the next one is {expected}."
    return OutOfOrder(sentence, seq=seq, expected=expected, first_kept=first_kept)


class CompleteDecision(Struct, frozen=True):
    """`refusal` is what to answer where the result doesn't fit; `sha256` is the result's."""

    changes: Sequence[Change]
    duplicate: bool
    sha256: str
    refusal: ResultInvalid | None = None


def decide_complete(
    handoff: Handoff,
    request: Complete,
    verdict: ResultInvalid | None,
    limits: Limits,
    now: Now,
    *,
    refused_before: str | None = None,
) -> CompleteDecision:
    """The result, or the same one again. `verdict` is what the output schema says of it (None: it fits).

    `refused_before` is the hash of a result whose refusal may not have been heard: that one sent again isn't counted again.
    The fence comes first: a late writer hears that it is late, whatever its result is like.
    """
    result = bytes(request.result)
    sha256 = hashlib.sha256(result).hexdigest()
    # Invariant 4: a completed result never changes; only the very same bytes are the same write again.
    if ended_by(handoff, request.fence, "completed") and handoff.result_sha256 == sha256:
        return CompleteDecision((), True, sha256)
    hold = check_fence(handoff, request.fence)
    check_result(len(result), limits)
    if verdict is not None:
        if sha256 == refused_before:
            verdict.details["left"] = handoff.budget.max_invalid_results - handoff.invalid_results
            return CompleteDecision((), False, sha256, verdict)
        return CompleteDecision(_refused(handoff, hold.worker, verdict, result, sha256, now), False, sha256, verdict)
    record = Completed(
        n=handoff.n + 1,
        at_ms=now.wall_ms,
        fence=handoff.fence,
        worker=hold.worker,
        sha256=sha256,
        bytes=len(result),
    )
    return CompleteDecision((Change(record, result),), False, sha256)


def _refused(
    handoff: Handoff, worker: str, verdict: ResultInvalid, result: bytes, sha256: str, now: Now
) -> Sequence[Change]:
    """A result that doesn't fit is kept, and counted; the last one allowed makes the handoff dead."""
    left = handoff.budget.max_invalid_results - handoff.invalid_results - 1
    verdict.details["left"] = left
    record = ResultRefused(
        n=handoff.n + 1,
        at_ms=now.wall_ms,
        fence=handoff.fence,
        worker=worker,
        path=str(verdict.details.get("path", "")),
        rule=str(verdict.details.get("rule", "")),
        left=left,
        sha256=sha256,
        bytes=len(result),
    )
    if left > 0:
        return (Change(record, result),)
    sentence = f"max_invalid_results: {handoff.budget.max_invalid_results} results did not fit the schema"
    dead = Dead(n=handoff.n + 2, at_ms=now.wall_ms, fence=handoff.fence + 1, reason=sentence, cap="max_invalid_results")
    return Change(record, result), Change(dead)
