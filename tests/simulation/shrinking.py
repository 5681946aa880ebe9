"""A failing world made smaller: fewer faults, fewer handoffs and workers, less time, as long as it fails in the same way.

Owns the search, and the command that replays what it comes to. Every attempt is a world of its own that replays exactly, so the
search gives the same each time. Faults are left out by halves, then quarters, and so on (delta debugging).
"""

import re
import traceback
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from .play import SIZES, Case, Play

MAX_ATTEMPTS = 400
"""A search ends after so many worlds, with the smallest that it has found."""


class Failure(msgspec.Struct, frozen=True):
    """How a world fails; `struck` are the faults that had struck by then. Two of the same `kind` are the same failure."""

    kind: str
    message: str
    struck: tuple[str, ...]


class Shrunk(msgspec.Struct, frozen=True):
    """The smallest world found that fails in the same way, and how many were tried."""

    case: Case
    failure: Failure
    attempts: int


def failure_of(case: Case) -> Failure | None:
    """Plays the world; None: it holds."""
    playing: Play | None = None
    try:
        playing = Play(case)
        playing.run()
    except Exception as error:
        struck = () if playing is None else tuple(playing.world.faults.struck)
        return Failure(kind_of(error), f"{type(error).__name__}: {error}", struck)
    return None


def kind_of(error: Exception) -> str:
    """What makes two failures the same: the invariant or the lie, or else where it was noticed; never names and numbers."""
    named = re.match(r"invariant \d|history: [^:]*", str(error))
    if named is not None:
        return named.group()
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return f"{type(error).__name__} in {next((name for name in reversed(frames) if name != 'require'), '')}"


def shrink(case: Case, failure: Failure) -> Shrunk:
    """The smallest world that still fails so, as far as it is found in `MAX_ATTEMPTS`."""
    return _Search(case, failure).run()


class _Search:
    def __init__(self, case: Case, failure: Failure) -> None:
        self._kind = failure.kind
        self._best, self._failure = case, failure
        self._attempts = 0

    def run(self) -> Shrunk:
        self._try(replace(self._best, only=self._failure.struck))
        while True:
            before = self._best
            for simpler in (
                self._shorter,
                self._fewer_parties,
                self._fewer_faults,
            ):  # A shorter world is sooner played.
                simpler()
            if self._best == before:
                return Shrunk(self._best, self._failure, self._attempts)

    def _try(self, case: Case) -> bool:
        """Whether this one fails in the same way; then it is the best so far, with those faults only that struck."""
        if case == self._best or self._attempts >= MAX_ATTEMPTS:
            return False
        self._attempts += 1
        failure = failure_of(case)
        if failure is None or failure.kind != self._kind:
            return False
        self._best = case if case.only is None else replace(case, only=failure.struck)
        self._failure = failure
        return True

    def _fewer_faults(self) -> None:
        parts = 2
        while self._best.only:
            names = self._best.only
            if any(self._try(replace(self._best, only=rest)) for rest in _without_each(names, min(parts, len(names)))):
                parts = max(2, parts - 1)
            elif parts >= len(names):
                return
            else:
                parts *= 2

    def _fewer_parties(self) -> None:
        if self._best.stranger:
            self._try(replace(self._best, stranger=False))
        for smaller in (1, 2, self._best.handoffs // 2, self._best.handoffs - 1):
            if 0 < smaller < self._best.handoffs and self._try(replace(self._best, handoffs=smaller)):
                break
        for smaller in (1, 2, self._best.workers - 1):
            if 0 < smaller < self._best.workers and self._try(replace(self._best, workers=smaller)):
                break

    def _shorter(self) -> None:
        while self._best.chaos_ms > 500 and self._try(replace(self._best, chaos_ms=self._best.chaos_ms // 2)):
            pass


def _without_each(names: Sequence[str], parts: int) -> Iterator[tuple[str, ...]]:
    """The names without the first of so many parts, without the second, and so on."""
    for part in range(parts):
        begin, end = part * len(names) // parts, (part + 1) * len(names) // parts
        yield (*names[:begin], *names[end:])


def replay_command(case: Case) -> str:
    """What plays exactly this world."""
    size, usual = next((size, usual) for size, usual in SIZES.items() if usual.faults == case.faults)
    words = [f"python -m tests.simulation.run --seed {case.seed} --size {size}"]
    changed = [name for name in ("handoffs", "workers", "chaos_ms") if getattr(case, name) != getattr(usual, name)]
    words += [f"--{name.replace('_', '-')} {getattr(case, name)}" for name in changed]
    if not case.stranger:
        words.append("--no-stranger")
    if case.only is not None:
        words.append(f"--only-faults {','.join(case.only) or 'none'}")
    return " ".join(words)
