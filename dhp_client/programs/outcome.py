"""What becomes of a handoff when its program has ended, by how it ended and what it has said.

Owns that rule, and the words for it. Pure.
"""

import signal
from typing import Any, Literal

import msgspec

How = Literal["completed", "failed", "released", "lost", "dead"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one attempt ended. `exit_code` as a shell tells it: 128 and the signal's number for a signal; None where
    the program never ran. `status` is the handoff's, as far as this worker knows.
    """

    handoff: str
    kind: str
    fence: int
    attempt: int
    seq: int
    outcome: How
    status: str | None = None
    reason: str | None = None
    exit_code: int | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`{"fail": {"reason": …, "retry": …}}`."""

    reason: str
    retry: bool = True
    type: str = "ProgramFailed"


class Finish(msgspec.Struct, frozen=True):
    """`{"result": …}`."""

    result: Any


class Said(msgspec.Struct):
    """What the program has said of its end so far; the last word of each counts."""

    finish: Finish | None = None
    failure: Failure | None = None


def ending(exit_code: int, said: Said, *, told_to_end: bool) -> Finish | Failure | None:
    """What the handoff ends with; None: it is handed back, since a program that was told to end hasn't failed."""
    if said.failure is not None:
        return said.failure
    if exit_code == 0 and said.finish is not None:
        return said.finish
    if told_to_end:
        return None
    if exit_code == 0:
        return Failure(type="NoResult", reason='exit code 0, but no {"result": …} on a line of its own')
    return Failure(reason=how_it_ended(exit_code))


def how_it_ended(exit_code: int) -> str:
    """Words for an exit code as `subprocess` gives it: negative for a signal."""
    return f"exit code {exit_code}" if exit_code >= 0 else f"killed by {signal_name(-exit_code)}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # Real-time signals have none.
        return f"signal {number}"


def shells_code(exit_code: int) -> int:
    """As a shell tells it."""
    return exit_code if exit_code >= 0 else 128 - exit_code
