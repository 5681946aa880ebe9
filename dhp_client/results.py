"""What the client gives where a payload is in the answer: the daemon's replies, with that payload decoded.

Owns those shapes, and checking a checkpoint's hash before its state is shown.
"""

from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from dhp_protocol.replies import ApprovalView, ResultReply, StoredCheckpoint

from . import payload
from .exceptions import IntegrityError


class StateAt(msgspec.Struct, frozen=True, kw_only=True):
    """A stored checkpoint, its state decoded; `at` is RFC 3339."""

    seq: int
    state: Any
    sha256: str
    at: str


class CheckpointPage(msgspec.Struct, frozen=True, kw_only=True):
    """Checkpoints, oldest first; `next` is the `after` of the page behind, None on the last one."""

    checkpoints: list[StateAt]
    next: int | None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How a handoff stands; `result` is decoded when `status` is `completed`, else None.

    `refused` is, when it is `dead`, the last answer that didn't meet its output schema, decoded; `was_refused` tells whether
    there was one.
    """

    status: str
    result: Any = None
    refused: Any = None
    was_refused: bool = False


def decoded_result(reply: ResultReply) -> Result:
    """`reply` with what it holds decoded."""
    was_refused = not isinstance(reply.refused, UnsetType)
    return Result(
        status=reply.status,
        result=_decoded(reply.result),
        refused=_decoded(reply.refused),
        was_refused=was_refused,
    )


def _decoded(text: Raw | UnsetType) -> Any:
    return None if isinstance(text, UnsetType) else payload.decode(text)


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """What a person was asked: one `action` of one handoff, with exactly these `details`, decoded.

    `decision` is `approved`, `denied`, `expired`, `cancelled` (the work has ended), or None while it is open; `by` is the
    decider's token, or without tokens what their client calls itself, which proves nothing; `used_by` is the effect that
    has used it up, `expires_at` RFC 3339.
    """

    approval: str
    handoff: str
    action: str
    details: Any
    decision: str | None
    by: str | None
    note: str | None
    expires_at: str
    used_by: str | None


class ApprovalPage(msgspec.Struct, frozen=True, kw_only=True):
    """Approvals, oldest first; `next` is the `after` of the page behind, None on the last one."""

    approvals: list[Approval]
    next: int | None


def decoded_approval(view: ApprovalView) -> Approval:
    """`view` with its details decoded."""
    members = {name: getattr(view, name) for name in Approval.__struct_fields__}
    return Approval(**{**members, "details": payload.decode(view.details)})


def decoded_checkpoint(stored: StoredCheckpoint) -> StateAt:
    """`stored` with its state decoded. Raises `IntegrityError` where it isn't what was stored."""
    if payload.sha256_hex(stored.state) != stored.sha256:
        raise IntegrityError(f"Checkpoint {stored.seq} isn't the one that was stored.")
    return StateAt(seq=stored.seq, state=payload.decode(stored.state), sha256=stored.sha256, at=stored.at)
