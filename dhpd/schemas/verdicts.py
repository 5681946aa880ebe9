"""From texts to verdicts: is this a schema that can be enforced, does this result fit it.

Owns that a verdict takes no more than so many steps, and how a fault is told to whoever has to mend the result. What can't be decided
within the bounds is never a pass: it is a refusal with the rule `limit`. Pure.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from dhp_protocol.errors import ResultInvalid, SchemaInvalid

from .compiling import Validator
from .faults import Exhausted, Fault
from .values import Unreadable, read


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


def schema_beyond_bounds() -> SchemaInvalid:
    """The verdict on a schema where there is none."""
    sentence = (
        "Whether the output schema can be enforced could not be decided within the daemon's bounds: make it plainer."
    )
    return SchemaInvalid(sentence, path="", rule="limit")


def beyond_bounds() -> ResultInvalid:
    """The verdict on a result where there is none."""
    sentence = "Whether the result fits could not be decided within the daemon's bounds: send a smaller or plainer one."
    return ResultInvalid(sentence, path="", rule="limit")


def _told(fault: Fault) -> ResultInvalid:
    path = fault.path
    where = f"at {path} it" if path else "it"
    return ResultInvalid(f"The result doesn't fit: {where} {fault.say()}.", path=path, rule=fault.rule)
