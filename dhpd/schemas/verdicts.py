"""From texts to verdicts: is this a schema that can be enforced, does this result fit it.

Owns the bounds on what a verdict may cost, and how a fault is told to whoever has to mend the result. What can't be decided
within the bounds is never a pass: it is a refusal with the rule `limit`. Pure.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from dhp_protocol.errors import ResultInvalid

from .compiling import Validator
from .faults import Exhausted, Fault
from .values import Unreadable, read


class Bounds(NamedTuple):
    """What one verdict may cost, and the process that gives it."""

    steps: int = 4_000_000
    """Of judging; one to two seconds. The same on every machine, so that a verdict is too."""
    cpu_s: float = 4.0
    wall_s: float = 30.0
    memory_bytes: int = 512 * 1024 * 1024


def judge(
    validator: Validator,
    result: bytes,
    steps: int,
    deeper: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> ResultInvalid | None:
    """What the schema says of `result`: None, or why it doesn't fit (details: `path`, `rule`).

    `deeper` allows more recursion while the value is judged; reading it, which is done in C, must do with the usual.
    """
    try:
        value = read(result)
        with deeper():
            fault = validator.judge(value, steps)
    except Unreadable as error:
        return ResultInvalid(f"The result {error.sentence}.", path="", rule=error.rule)
    except (Exhausted, RecursionError, MemoryError):
        return beyond_bounds()
    return None if fault is None else _told(fault)


def beyond_bounds() -> ResultInvalid:
    """The verdict where there is none."""
    sentence = "Whether the result fits could not be decided within the daemon's bounds: send a smaller or plainer one."
    return ResultInvalid(sentence, path="", rule="limit")


def _told(fault: Fault) -> ResultInvalid:
    path = fault.path
    where = f"at {path} it" if path else "it"
    return ResultInvalid(f"The result doesn't fit: {where} {fault.say()}.", path=path, rule=fault.rule)
