"""One target and its inputs, one after the other: what fails, as small as it gets, and how to have it again.

Owns the seeds, the limit on time of one input, and how a failure is told. Does not own targets.
"""

import random
import signal
import time
import traceback
from types import FrameType, TracebackType
from typing import NoReturn

from .shrinking import shrunk
from .targets import Target

ONE_INPUT_WITHIN_S = 20.0
"""So much longer than any takes that what takes it hangs, on every machine."""


class Hangs(BaseException):
    """An input whose check doesn't end. No `Exception`, so that nothing on its way takes it for an error of the input's."""


class Failure(AssertionError):
    """An input that shows a fault."""

    def __init__(self, target: str, seed: str, data: bytes, problem: str) -> None:
        self.data = data
        super().__init__(
            f"{target}, seed {seed}: {problem}\nAs a regression, for tests/fuzz/regressions.py:\n"
            f"    ({target!r}, {data!r}),"
        )


class Alarm:
    """`with Alarm():` what hangs in the block is `Hangs`. Of the main thread alone."""

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, _hangs)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)


def _hangs(number: int, frame: FrameType | None) -> NoReturn:
    raise Hangs(f"it takes more than {ONE_INPUT_WITHIN_S:g} s")


def fuzz(target: Target, seed: str, *, examples: int, until_s: float = float("inf")) -> int:
    """Checks so many inputs, or until that moment; raises `Failure`. How many it were."""
    with Alarm():
        for number in range(examples):
            if time.monotonic() >= until_s:
                return number
            data = target.example(random.Random(f"{seed}:{number}"))
            problem = problem_of(target, data)
            if problem is not None:
                raise failure_of(target, f"{seed}:{number}", data, problem)
    return examples


def failure_of(target: Target, seed: str, data: bytes, problem: str) -> Failure:
    """The failure, told by an input that is as small as it gets."""
    small = shrunk(data, lambda smaller: _kind(problem_of(target, smaller)) == _kind(problem))
    return Failure(target.name, seed, small, problem_of(target, small) or problem)


def problem_of(target: Target, data: bytes) -> str | None:
    """What is wrong with how this input is taken; None: nothing."""
    signal.setitimer(signal.ITIMER_REAL, ONE_INPUT_WITHIN_S)
    try:
        target.check(data)
    except (Exception, Hangs) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {place.filename.rpartition('/')[2]}:{place.lineno}: {str(error)[:300]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def _kind(problem: str | None) -> str:
    """Where it fails, and with what: not with which words."""
    return ":".join((problem or "").split(":")[:2])
