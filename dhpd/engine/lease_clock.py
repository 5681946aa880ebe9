"""The lease clock: monotonic time, less what the daemon itself lost.

Owns one rule: lease time never passes the next tick before that tick has run. So a daemon that was stopped, asleep or
busy reads what waits on its sockets at a time before the deadlines that went by meanwhile, and a tick that comes late
moves every deadline, present and future, by its lateness; so does one that takes long over its work. Pure: readings of
the monotonic clock are arguments.
"""

LATE_AFTER_MS = 50
"""A tick that is later than this was held up, and its lateness is taken off the clock; less is ordinary jitter."""

STOOD_LONG_MS = 250
"""Half of the shortest lease. What is renewed while a tick is at work loses less than this."""


class LeaseClock:
    def __init__(self, monotonic_ms: int) -> None:
        self._offset_ms = 0
        self._next_tick_ms = monotonic_ms
        self._reached_ms = monotonic_ms

    @property
    def offset_ms(self) -> int:
        """How much time the daemon has lost since its start."""
        return self._offset_ms

    @property
    def next_tick_ms(self) -> int:
        """When the next tick is due, in lease time."""
        return self._next_tick_ms

    def read(self, monotonic_ms: int) -> int:
        """Lease time for a decision: before the next tick, as long as that hasn't run."""
        lease_ms = monotonic_ms - self._offset_ms
        if lease_ms < self._reached_ms:
            lease_ms = self._reached_ms
        return lease_ms if lease_ms < self._next_tick_ms else self._next_tick_ms - 1

    def tick(self, monotonic_ms: int) -> int:
        """The reading that a tick works with: what is due at it may end, once what waits outside has been taken in."""
        lateness_ms = monotonic_ms - self._offset_ms - self._next_tick_ms
        if lateness_ms > LATE_AFTER_MS:
            self._offset_ms += lateness_ms
            return self._next_tick_ms
        return max(monotonic_ms - self._offset_ms, self._next_tick_ms)

    def stand(self, reading_ms: int) -> None:
        """What waited outside has been taken in: time stands at the tick's reading until the next one is scheduled."""
        self._reached_ms = reading_ms
        self._next_tick_ms = reading_ms + 1

    def done(self, monotonic_ms: int) -> None:
        """The tick's work is done. While it was at it time stood: where that was long, as after a pause, that is lost too.

        Else time would jump, and take from those who renewed meanwhile all that they had renewed for.
        """
        stood_ms = monotonic_ms - self._offset_ms - self._reached_ms
        if stood_ms > STOOD_LONG_MS:
            self._offset_ms += stood_ms

    def schedule(self, tick_ms: int) -> None:
        """The last tick is done, and the next is due at `tick_ms` (lease time)."""
        self._next_tick_ms = tick_ms

    def until_tick_ms(self, monotonic_ms: int) -> int:
        """How long to sleep for the next tick."""
        return max(0, self._next_tick_ms - (monotonic_ms - self._offset_ms))
