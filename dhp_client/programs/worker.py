"""The life of `dhp run`: claim, have a program work, and claim again.

Owns what is claimed, how often, and what is waited for: a daemon that is away or takes on nothing new is one of those things.
What happens under a claim is `attempt`'s, words for people are `cli.run`'s.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from dhp_protocol.errors import AlreadyClaimed, DHPError, NotClaimable
from dhp_protocol.messages import FINAL

from ..backoff import Backoff
from ..client import Client
from ..clock import monotonic_ms
from ..exceptions import ConnectionLost, NotConnected
from ..task import Task
from .attempt import Attempt
from .outcome import Outcome
from .passing import Passing
from .stopping import Stop
from .waiting import first_of

ENDLESS_MS = 365 * 86_400_000
FIRST_PAUSE_MS = 200
MOST_PAUSE_MS = 5_000


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is run on what. Either `handoff` or `kinds`; None where something isn't bounded."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    kinds: tuple[str, ...] = ()
    handoff: str | None = None
    worker: str | None = None
    ttl_ms: int | None = None
    count: int | None = None
    wait_ms: int | None = None
    grace_ms: int
    answers: bool = False


class Telling(Protocol):
    """Whoever is told how it goes."""

    def claimed(self, task: Task) -> None:
        """A program is about to be run on it."""

    def over(self, outcome: Outcome) -> None:
        """An attempt has ended."""

    def warn(self, sentence: str) -> None:
        """Something that a person should know."""


class Run(msgspec.Struct):
    """What came of it all. `ended_as`: the final status of the handoff that was to be worked on, once it has one."""

    outcomes: list[str] = []
    ended_as: str | None = None


class Worker:
    """Works until `options` are met or `stop` is asked for."""

    def __init__(self, client: Client, options: Options, *, stop: Stop, passing: Passing, telling: Telling) -> None:
        self._client = client
        self._options = options
        self._stop = stop
        self._passing = passing
        self._telling = telling
        self._backoff = Backoff(FIRST_PAUSE_MS, MOST_PAUSE_MS)
        self._away = False

    async def work(self) -> Run:
        """Raises what a claim raises that no waiting mends, `NotRunnable`, and OSError where output can't be written."""
        run, options = Run(), self._options
        while not self._stop.asked.is_set() and (options.count is None or len(run.outcomes) < options.count):
            lost = asyncio.Event()
            try:
                task = await self._claimed(lost.set)
            except NotClaimable as error:
                run.ended_as = error.details["status"]
                break
            if task is None:
                break
            self._telling.claimed(task)
            attempt = Attempt(
                task,
                lost,
                stop=self._stop,
                passing=self._passing,
                warn=self._telling.warn,
                max_line_bytes=self._client.limits.max_frame_bytes,
                grace_ms=options.grace_ms,
                answers=options.answers,
            )
            outcome = await attempt.run(options.command, options.environment)
            self._telling.over(outcome)
            run.outcomes.append(outcome.outcome)
        return run

    async def _claimed(self, on_lost: Callable[[], None]) -> Task | None:
        """None when nothing came in time, or the end was asked for."""
        options = self._options
        until_ms = monotonic_ms() + (ENDLESS_MS if options.wait_ms is None else options.wait_ms)
        while True:
            claiming = asyncio.ensure_future(self._claim(max(0, int(until_ms - monotonic_ms())), on_lost))
            try:
                await first_of(claiming, self._stop.asked.wait())
                if not claiming.done():
                    return None
                task = claiming.result()
                self._back()
                return task
            except (NotConnected, ConnectionLost, DHPError) as error:
                if _is_for_good(error):
                    raise
                if monotonic_ms() >= until_ms:
                    if isinstance(error, AlreadyClaimed | NotClaimable):
                        return None
                    raise
                await self._pause(error)
            finally:
                claiming.cancel()

    async def _claim(self, wait_ms: int, on_lost: Callable[[], None]) -> Task | None:
        options = self._options
        return await self._client.claim(
            options.handoff,
            kinds=options.kinds or None,
            worker=options.worker,
            wait_ms=wait_ms,
            ttl_ms=options.ttl_ms,
            on_lost=lambda _: on_lost(),
        )

    async def _pause(self, error: Exception) -> None:
        if not self._away:
            self._telling.warn(f"{str(error).rstrip('.')}: it is tried again until that has passed.")
        self._away = True
        stopping = asyncio.ensure_future(self._stop.asked.wait())
        await asyncio.wait([stopping], timeout=self._backoff.next_ms() / 1000)
        stopping.cancel()

    def _back(self) -> None:
        if self._away:
            self._telling.warn("that has passed.")
        self._away = False
        self._backoff.reset()


def _is_for_good(error: Exception) -> bool:
    """Whether no waiting mends it."""
    if isinstance(error, NotClaimable):
        return error.details.get("status") in FINAL
    return isinstance(error, DHPError) and error.retry == "no"
