"""What goes on while the disk is full: what ends work, what makes room, and what only looks.

Owns which requests are carried out then. Ends of leases, wake-ups and caps on time go on as well: each handoff has few of them, and
nothing new begins. Does not own how much room is held back for that, nor when there is room again (`dhpd.store`). Pure.
"""

from typing import Any

from dhp_protocol.errors import Overloaded
from dhp_protocol.messages import (
    Ack,
    Approvals,
    ApprovalWait,
    Cancel,
    Checkpoint,
    Checkpoints,
    Claim,
    Complete,
    Drain,
    EffectDone,
    Effects,
    Export,
    Fail,
    Forget,
    GetResult,
    GetStatus,
    Goodbye,
    Heartbeat,
    Hello,
    History,
    LastCheckpoint,
    ListHandoffs,
    Ping,
    Recover,
    Release,
    Suspend,
)

from .core import Core
from .dispatching import PreparedDispatch

AGAIN_AFTER_MS = 1_000

_ENDS_WORK = (Complete, Fail, Release, Cancel, Suspend, Goodbye)
_NOTES_WHAT_IS_DONE = (EffectDone,)
"""It has happened outside: unless that is noted, whoever holds the work next can only doubt it."""
_MAKES_ROOM = (Ack, Forget, Export)
_WRITES_NOTHING = (
    Hello,
    Ping,
    Heartbeat,
    Drain,
    GetStatus,
    LastCheckpoint,
    Checkpoints,
    History,
    GetResult,
    ListHandoffs,
    Effects,
    Approvals,
    ApprovalWait,
)
_MAY_WRITE_NOTHING = (PreparedDispatch, Claim, Recover, Checkpoint)
"""Sent again, these are answered from what is there; they ask for room themselves where they write (`check_room`)."""

GOES_ON: frozenset[type[Any]] = frozenset(
    (*_ENDS_WORK, *_NOTES_WHAT_IS_DONE, *_MAKES_ROOM, *_WRITES_NOTHING, *_MAY_WRITE_NOTHING)
)
"""What is carried out on a full disk; everything else is refused."""


def check_room(core: Core) -> None:
    """Raises `Overloaded` on a full disk: what is about to be written begins or continues work."""
    if core.disk_full:
        raise disk_is_full()


def disk_is_full() -> Overloaded:
    """What is refused hears so; nothing of it was done."""
    sentence = "The disk is full, and what is left of it is for the ends of work: free some room, and send this again."
    return Overloaded(sentence, after_ms=AGAIN_AFTER_MS, disk="full")
