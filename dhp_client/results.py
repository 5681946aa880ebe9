"""What the client gives where a payload is in the answer: the daemon's replies, with that payload decoded.

Owns those shapes, and checking a checkpoint's hash before its state is shown.
"""

from typing import Any

import msgspec

from dhp_protocol.replies import StoredCheckpoint

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
    """How a handoff stands; `result` is decoded when `status` is `completed`, else None."""

    status: str
    result: Any = None


def decoded_checkpoint(stored: StoredCheckpoint) -> StateAt:
    """`stored` with its state decoded. Raises `IntegrityError` where it isn't what was stored."""
    if payload.sha256_hex(stored.state) != stored.sha256:
        raise IntegrityError(f"Checkpoint {stored.seq} isn't the one that was stored.")
    return StateAt(seq=stored.seq, state=payload.decode(stored.state), sha256=stored.sha256, at=stored.at)
