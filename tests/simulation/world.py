"""The simulated world: virtual time and a network.

Owns when things happen: every delay, and every choice that somebody makes, comes from one seed, so a run replays exactly. What
goes wrong is `faults`', the daemon in it is `daemon`'s.
"""

import heapq
from collections.abc import Callable, Collection

from .faults import Dice, Faults, Striking


class World:
    """Virtual milliseconds, and what is to happen at them."""

    def __init__(self, seed: int, faults: Faults, only: Collection[str] | None = None, *, ttl_ms: int = 3_000) -> None:
        """`ttl_ms` is of the leases that workers ask for."""
        self.now_ms = 1_000_000
        self.ttl_ms = ttl_ms
        self.faults = Striking(seed, faults, only)
        self.strikes = self.faults.strikes
        self.after_step: Callable[[], None] = lambda: None
        self._seed = seed
        self._order = self.dice("order")
        self._wall_offset_ms = 1_700_000_000_000
        self._agenda: list[tuple[int, float, int, Callable[[], None]]] = []
        self._number = 0

    def dice(self, whose: str) -> Dice:
        """The chance by which this party decides."""
        return Dice(f"{self._seed} {whose}")

    @property
    def wall_ms(self) -> int:
        """The wall clock, which is set now and then."""
        return self.now_ms + self._wall_offset_ms

    def set_wall_clock(self, by_ms: int) -> None:
        """Somebody sets the wall clock, forward or back."""
        self._wall_offset_ms += by_ms

    def at(self, delay_ms: int, what: Callable[[], None], order: float | None = None) -> None:
        """Does `what` in `delay_ms`; things at the same moment come in any order, or by `order` (0 to 1)."""
        self._number += 1
        order = self._order.random() if order is None else order
        heapq.heappush(self._agenda, (self.now_ms + delay_ms, order, self._number, what))

    def step(self) -> bool:
        """The next thing, and then what is checked after each; False when nothing is left."""
        if not self._agenda:
            return False
        self.now_ms, _, _, what = heapq.heappop(self._agenda)
        what()
        self.after_step()
        return True


class Pipe:
    """One connection. Each direction delivers in order, late, or not at all once it is cut."""

    def __init__(
        self,
        world: World,
        number: int,
        dice: Dice,
        to_client: Callable[[bytes], None],
        on_end: Callable[[], None],
        *,
        strange: bool = False,
    ) -> None:
        """`strange`: its messages take none of the chances that others' have, so that those fare as without it."""
        self.number = number
        self.dice = dice
        self.strange = strange
        self.open = True
        self._world = world
        self._to_client = to_client
        self._on_end = on_end
        self._clear_ms = {"up": 0, "down": 0}

    def deliver(self, direction: str, what: Callable[[], None]) -> None:
        """After everything sent before in the same direction."""
        late = None if self.strange else self._world.strikes("late")
        late_ms = 0 if late is None else late.between(50, 8_000)
        at_ms = max(self._clear_ms[direction] + 1, self._world.now_ms + self.dice.between(0, 20) + late_ms)
        self._clear_ms[direction] = at_ms
        self._at(at_ms - self._world.now_ms, what)

    def to_client(self, body: bytes) -> None:
        self.deliver("down", lambda: self._to_client(body) if self.open else None)

    def hold_up(self, delay_ms: int) -> None:
        """What is said to the daemon from now on arrives no sooner than in `delay_ms`."""
        self._clear_ms["up"] = max(self._clear_ms["up"], self._world.now_ms + delay_ms)

    def cut(self) -> None:
        """Both ends see the end, each in its own time; what is on the way to the client is lost."""
        if self.open:
            self.open = False
            self._at(self.dice.between(0, 50), self._on_end)

    def _at(self, delay_ms: int, what: Callable[[], None]) -> None:
        self._world.at(delay_ms, what, self.dice.random() if self.strange else None)
