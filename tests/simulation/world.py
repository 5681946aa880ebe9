"""The simulated world: virtual time, one source of chance, and a network.

Owns when things happen and what goes wrong: every delay, loss, pause, crash, failing commit and step of the wall clock comes
from one seed, so a run replays exactly. The daemon in it is `daemon`'s.
"""

import heapq
import random
from collections.abc import Callable

import msgspec


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How often, of a hundred chances, each thing goes wrong."""

    cut: float = 1.0
    doubled: float = 3.0
    commit_fails: float = 4.0
    commit_fails_but_kept: float = 3.0
    poison: float = 2.0
    crash: float = 1.5
    daemon_pause: float = 1.5
    worker_pause: float = 3.0
    worker_death: float = 2.0
    tick_takes_a_break: float = 30.0
    wall_clock_step: float = 3.0


NO_FAULTS = Faults(
    cut=0,
    doubled=0,
    commit_fails=0,
    commit_fails_but_kept=0,
    poison=0,
    crash=0,
    daemon_pause=0,
    worker_pause=0,
    worker_death=0,
    tick_takes_a_break=0,
    wall_clock_step=0,
)


class World:
    """Virtual milliseconds, and what is to happen at them."""

    def __init__(self, seed: int, faults: Faults) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.now_ms = 1_000_000
        self._wall_offset_ms = 1_700_000_000_000
        self._agenda: list[tuple[int, float, int, Callable[[], None]]] = []
        self._number = 0

    @property
    def wall_ms(self) -> int:
        """The wall clock, which is set now and then."""
        return self.now_ms + self._wall_offset_ms

    def set_wall_clock(self) -> None:
        """Somebody sets the wall clock, forward or back."""
        self._wall_offset_ms += self.between(-8_000, 8_000)

    def at(self, delay_ms: int, what: Callable[[], None]) -> None:
        """Does `what` in `delay_ms`; things at the same moment come in any order."""
        self._number += 1
        heapq.heappush(self._agenda, (self.now_ms + delay_ms, self.random.random(), self._number, what))

    def step(self) -> bool:
        """The next thing; False when nothing is left."""
        if not self._agenda:
            return False
        self.now_ms, _, _, what = heapq.heappop(self._agenda)
        what()
        return True

    def chance(self, percent: float) -> bool:
        return self.random.random() * 100 < percent

    def between(self, low: int, high: int) -> int:
        return self.random.randint(low, high)


class Pipe:
    """One connection. Each direction delivers in order, late, or not at all once it is cut."""

    def __init__(
        self, world: World, number: int, to_client: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        self.number = number
        self.open = True
        self._world = world
        self._to_client = to_client
        self._on_end = on_end
        self._clear_ms = {"up": 0, "down": 0}

    def deliver(self, direction: str, what: Callable[[], None]) -> None:
        """After everything sent before in the same direction."""
        at_ms = max(self._clear_ms[direction] + 1, self._world.now_ms + self._world.between(0, 20))
        self._clear_ms[direction] = at_ms
        self._world.at(at_ms - self._world.now_ms, what)

    def to_client(self, body: bytes) -> None:
        self.deliver("down", lambda: self._to_client(body) if self.open else None)

    def cut(self) -> None:
        """Both ends see the end, each in its own time; what is on the way is lost."""
        if self.open:
            self.open = False
            self._world.at(self._world.between(0, 50), self._on_end)
