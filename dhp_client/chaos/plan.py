"""What will be done in a run, and when: all of it follows from the options and the seed.

Pure: chance is an argument. Whom a fault meets exactly, and in the middle of what, is up to the machine.
"""

import random
from collections.abc import Iterator

from msgspec import Struct

TTL_MS = 1_000
"""Of the workers' leases: short, so that there is time for another one to take the work over from who is stopped or silent."""

KILL_WORKER, PAUSE_WORKER, KILL_DAEMON, PAUSE_DAEMON = "kill worker", "pause worker", "kill daemon", "pause daemon"
CUT, HOLD_REQUESTS, HOLD_ANSWERS, TRICKLE, DELAY = "cut", "hold requests", "hold answers", "one byte at a time", "delay"
NETWORK = (CUT, HOLD_REQUESTS, HOLD_ANSWERS, TRICKLE, DELAY)
KINDS = (KILL_WORKER, PAUSE_WORKER, KILL_DAEMON, PAUSE_DAEMON, *NETWORK)

_PAUSE_WORKER_EVERY_S = 4.0
_PAUSE_DAEMON_EVERY_S = 12.0
_NETWORK_EVERY_S = 2.5
_FIRST_AT = 0.15
_LAST_AT = 0.95
"""Of each stretch of time, where in it the fault begins."""


class Options(Struct, frozen=True, kw_only=True):
    """What a run is to be like."""

    handoffs: int = 40
    workers: int = 4
    steps: int = 40
    seconds: float = 30.0
    kill_every_ms: int = 1_000
    daemon_kills: int = 2
    seed: int = 0

    @property
    def step_ms(self) -> int:
        """How long a step takes for the work to fill the time, with some room for what the faults cost."""
        at_once = min(self.workers, self.handoffs)
        return max(1, int(0.8 * at_once * self.seconds * 1000 / (self.handoffs * self.steps)))


class Act(Struct, frozen=True, kw_only=True, order=True):
    """One fault: `at_ms` after the beginning, for `lasts_ms`, to worker number `worker` (from 0) or its network.

    `releases`: what the network held back arrives after all, and isn't thrown away with its connection.
    """

    at_ms: float
    kind: str
    worker: int = 0
    lasts_ms: float = 0.0
    releases: bool = False


def acts(options: Options) -> list[Act]:
    """All faults of a run in the order of their beginning; every kind is there at least once, unless it is asked for none."""
    rng = random.Random(options.seed)
    planned = [*_worker_kills(options, rng), *_daemon_kills(options, rng), *_pauses(options, rng)]
    return sorted([*planned, *_network(options, rng)])


def _worker_kills(options: Options, rng: random.Random) -> Iterator[Act]:
    kills = int(options.seconds * 1000 / options.kill_every_ms) if options.kill_every_ms else 0
    for number in range(kills):
        at_ms = options.kill_every_ms * (number + rng.uniform(0.5, 1.0))
        yield Act(at_ms=at_ms, kind=KILL_WORKER, worker=rng.randrange(options.workers))


def _daemon_kills(options: Options, rng: random.Random) -> Iterator[Act]:
    for at_ms in _spread(options.daemon_kills, options.seconds, rng):
        yield Act(at_ms=at_ms, kind=KILL_DAEMON)


def _pauses(options: Options, rng: random.Random) -> Iterator[Act]:
    for at_ms in _spread(max(1, int(options.seconds / _PAUSE_WORKER_EVERY_S)), options.seconds, rng):
        lasts_ms = TTL_MS * rng.uniform(1.5, 4.0)
        yield Act(at_ms=at_ms, kind=PAUSE_WORKER, worker=rng.randrange(options.workers), lasts_ms=lasts_ms)
    for at_ms in _spread(max(1, int(options.seconds / _PAUSE_DAEMON_EVERY_S)), options.seconds, rng):
        yield Act(at_ms=at_ms, kind=PAUSE_DAEMON, lasts_ms=TTL_MS * rng.uniform(0.2, 3.0))


def _network(options: Options, rng: random.Random) -> Iterator[Act]:
    times = _spread(max(len(NETWORK), int(options.seconds / _NETWORK_EVERY_S)), options.seconds, rng)
    for number, at_ms in enumerate(times):
        if number % len(NETWORK) == 0:
            kinds = rng.sample(NETWORK, len(NETWORK))
        yield Act(
            at_ms=at_ms,
            kind=kinds[number % len(NETWORK)],
            worker=rng.randrange(options.workers),
            lasts_ms=TTL_MS * rng.uniform(0.5, 3.5),
            releases=rng.random() < 0.5,
        )


def _spread(count: int, seconds: float, rng: random.Random) -> list[float]:
    """So many moments, one in each of equal stretches of the time."""
    return [1000 * seconds * (number + rng.uniform(_FIRST_AT, _LAST_AT)) / count for number in range(count)]
