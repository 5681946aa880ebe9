"""The simulated daemon: the real engine with a played shell.

Owns what the shell does (sockets, timers) in virtual time, and where it is paused and killed. What it does with its disk is
`committing`'s.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from dhp_protocol.errors import DHPError, StoreUnavailable
from dhp_protocol.replies import LeaseTerms, error_reply_body, reply_body
from dhpd.engine.core import Settings
from dhpd.engine.lease_clock import LATE_AFTER_MS, STOOD_LONG_MS, LeaseClock
from dhpd.engine.lookups import Lookup
from dhpd.engine.moments import Now
from dhpd.engine.operations import Engine
from dhpd.engine.outputs import Notice, Reply
from dhpd.engine.views import NO_LEASE
from dhpd.store.backend import DiskError
from dhpd.store.reading import resolve

from .committing import Committing
from .desk import LIMITS, carry_out, now_of
from .faults import Dice
from .store_model import ModelStore
from .world import Pipe, World

TTL_MS = 3_000
TERMS = LeaseTerms(ttl_ms=TTL_MS, heartbeat_ms=TTL_MS // 3, min_ttl_ms=500, max_ttl_ms=60_000, disconnect_grace_ms=250)
FRAME_BYTES = 8_000_000
STEPS_AT_ONCE = (0, 2)
"""Of what comes to a crowd so many steps are taken at once, at least and at most: few, since crowds are small here."""
_encode_event = msgspec.json.Encoder().encode


class SimulatedDaemon(Committing):
    """The engine with a played shell: takes messages, ticks, commits, pauses, crashes, starts again."""

    def __init__(self, world: World, store: ModelStore, checks: Any, retention_ms: int | None = None) -> None:
        self.world = world
        self.store = store
        self.checks = checks
        self.retention_ms = retention_ms
        self.dice = world.dice("daemon")
        self.pipes: dict[int, Pipe] = {}
        self._strange: set[int] = set()
        self.up = False
        self._number = 0
        self._life = 0
        self._paused_until_ms = 0
        self._paused = False
        self._late_until_ms = 0
        self._waiting_input: list[Callable[[], None]] = []
        self._noted = 0
        self.start()

    @property
    def working(self) -> bool:
        """Whether it is up, neither paused nor held up, and its store takes writes."""
        return self.up and not self._paused and self.engine.available and self.world.now_ms > self._late_until_ms

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._life += 1
        self.up = True
        self._paused = False
        self._late_until_ms = 0
        names = iter(range(1_000_000))
        loaded = now_of(self.store.load())
        self.engine = Engine(
            Settings(limits=LIMITS, terms=TERMS, steps_at_once=self.dice.between(*STEPS_AT_ONCE)),
            lambda: f"own-{self._life}-{next(names)}",
            purged_fence=loaded.purged_fence,
            chance=self.dice.random,
        )
        self._lease_clock = LeaseClock(self.world.now_ms)
        self._ticking = False
        self._on_its_way = None
        self._head = loaded.head
        self._noted = max(loaded.head, loaded.covered)
        self._started = self._now()
        self.engine.load(
            loaded.facts,
            loaded.tail,
            loaded.extensions,
            loaded.counts,
            loaded.dead_children,
            head=loaded.head,
            covered=loaded.covered,
            now=self._now(),
        )
        self._tell_of_room()
        self.checks.started(self.engine)
        if self._crash_at_start():
            return
        if self.retention_ms is not None:
            life = self._life
            self.world.at(self.retention_ms, lambda: self._retire(life))
        self._lease_clock.schedule(self.world.now_ms + 10)
        self._plan_tick()
        self._consider_commit()

    def crash(self) -> None:
        """Memory is gone."""
        assert self.up, "it dies once"
        self.up = False
        self._life += 1
        for pipe in list(self.pipes.values()):
            pipe.cut()
        self.pipes.clear()
        self._waiting_input.clear()
        self.world.at(self.dice.between(10, 4_000), self.start)

    def killed(self, fault: Dice) -> None:
        """At any moment; what was on the way to the disk got there or didn't."""
        if fault.chance(50):
            self._reach_the_disk()
        self.crash()

    def drain(self, fault: Dice) -> None:
        """It is about to be stopped: no new claims and dispatches, and after a while it ends."""
        life = self._life
        self.engine.drain(self._now())
        self._worked()
        self.world.at(fault.between(500, 3_000), lambda: self.crash() if life == self._life else None)

    def pause(self, for_ms: int) -> None:
        """Stopped as by SIGSTOP: what comes meanwhile waits, then is taken in before anything ends."""
        if self._paused:
            return
        self._paused = True
        self._paused_until_ms = self.world.now_ms + for_ms
        life = self._life
        self.world.at(for_ms, lambda: self._wake(life))

    def _after_pause(self, what: Callable[[], None]) -> bool:
        """Whether it is paused; does `what` afterwards."""
        if self._paused:
            self.world.at(max(1, self._paused_until_ms - self.world.now_ms), what)
        return self._paused

    def _wake(self, life: int) -> None:
        if life == self._life:
            if self._paused:
                self._paused = False
                self.checks.disturbed()
            waiting, self._waiting_input = self._waiting_input, []
            for take in waiting:
                take()
            self._worked()

    # --- the network's side ------------------------------------------------------------------------------------------

    def connect(
        self, dice: Dice, to_client: Callable[[bytes], None], on_end: Callable[[], None], *, strange: bool = False
    ) -> Pipe | None:
        """A new connection, or None while the daemon is down. `strange`: of somebody who keeps to no rule."""
        if not self.up:
            return None
        self._number += 1
        pipe = Pipe(self.world, self._number, dice, to_client, on_end, strange=strange)
        self.pipes[pipe.number] = pipe
        if strange:
            self._strange.add(pipe.number)
        self._input(pipe, lambda: self.engine.open(pipe.number))
        return pipe

    def hang_up(self, pipe: Pipe) -> bool:
        """The client's side is gone; tells whether the daemon hadn't seen the end yet."""
        if self.pipes.pop(pipe.number, None) is None:
            return False
        pipe.open = False
        local = pipe.dice.chance(50)
        self._input(pipe, lambda: self.engine.close(pipe.number, local=local, now=self._now()))
        return True

    def receive(self, pipe: Pipe, body: bytes) -> None:
        """One request arrives."""
        if pipe.number in self.pipes:
            self._input(pipe, lambda: self._request(pipe, body))

    def _input(self, pipe: Pipe, take: Callable[[], None]) -> None:
        if not self.up:
            return
        if self._paused:
            self._waiting_input.append(take)
            return
        take()
        if pipe.strange:  # It must not have come to anything.
            self.checks.strange(self.engine, self._noted)
            self._deliver()
        else:
            self._worked()

    def _request(self, pipe: Pipe, body: bytes) -> None:
        if self.engine.sessions.of(pipe.number) is not None:
            if not pipe.strange:
                lease_ms = self._now().lease_ms
                behind_ms = self.world.now_ms - self._lease_clock.offset_ms - lease_ms
                most_ms = STOOD_LONG_MS if self._ticking else LATE_AFTER_MS  # More than that is made up for.
                self.checks.arrives(body, lease_ms, min(behind_ms, most_ms), available=self.engine.available)
            carry_out(self.engine, self.store, body, pipe.number, self._now, strange=pipe.strange)

    # --- the shell's work --------------------------------------------------------------------------------------------

    def _now(self) -> Now:
        return Now(self._lease_clock.read(self.world.now_ms), self.world.wall_ms)

    def _worked(self) -> None:
        if not self.up:
            return
        if self.world.now_ms <= self._late_until_ms:
            self.checks.disturbed()
        position = self.engine.journal.position
        if position != self._noted:
            self.checks.decided(self.engine, min(self._noted, position))
            self._noted = position
        self._deliver()
        if self.up:
            self._consider_commit()
        if self._ticking or not self.up:
            return
        now = self._now()
        due_ms = max(self.engine.next_tick_ms(now), now.lease_ms + 10)
        if due_ms < self._lease_clock.next_tick_ms:
            self._lease_clock.schedule(due_ms)
            self._plan_tick()

    def _plan_tick(self) -> None:
        life, planned_ms = self._life, self._lease_clock.next_tick_ms
        late_ms = fault.between(60, 4_000) if (fault := self.world.strikes("late_tick")) else 0
        until_ms = self._lease_clock.until_tick_ms(self.world.now_ms) + late_ms
        if late_ms:
            self._late_until_ms = self.world.now_ms + until_ms
        self.world.at(until_ms, lambda: self._tick(life, planned_ms))

    def _tick(self, life: int, planned_ms: int) -> None:
        if life != self._life or self._ticking or planned_ms != self._lease_clock.next_tick_ms:
            return
        if self._after_pause(lambda: self._tick(life, planned_ms)):
            return
        reading_ms = self._lease_clock.tick(self.world.now_ms)
        self._wake(life)  # What waits on the sockets is taken in at a time before the ends.
        if life != self._life:
            return
        self._lease_clock.stand(reading_ms)
        self._ticking = True
        now = Now(reading_ms, self.world.wall_ms)
        self._end(life, now, self.engine.tick_in_steps(now))

    def _end(self, life: int, now: Now, steps: Iterator[None]) -> None:
        """Some of what is due ends; before the rest does, other things may happen."""
        if life != self._life:
            return
        if self._after_pause(lambda: self._end(life, now, steps)):
            return
        for _ in steps:
            if self.world.strikes("crash_in_tick"):
                self.crash()
                return
            if self.dice.chance(30):
                self.world.at(self.dice.between(0, 5), lambda: self._end(life, now, steps))
                self._worked()
                return
        self._lease_clock.done(self.world.now_ms)
        self._lease_clock.schedule(max(self.engine.next_tick_ms(now), now.lease_ms + 10))
        self._ticking = False
        self._plan_tick()
        self._worked()

    def _deliver(self) -> None:
        ready = self.engine.journal.ready
        first = True
        while ready:
            output = ready.popleft()
            number = output.connection if isinstance(output, Notice) else output.to.connection
            body = _encode_event(output.event) if isinstance(output, Notice) else self._reply_body(output)
            pipe = self.pipes.get(number)
            if number in self._strange:
                self.checks.answers_stranger(body)
            elif not first and self.world.strikes("crash_between_answers"):
                self.crash()
                return
            else:
                first = False
                self.checks.leaves(body, self._now().lease_ms)
            if pipe is None:
                continue
            if not pipe.strange and self.world.strikes("reply_cut"):
                pipe.cut()
            else:
                pipe.to_client(body)

    def _reply_body(self, reply: Reply) -> bytes:
        answer: Any = reply.answer
        if isinstance(answer, Lookup):
            answer = self._resolve(answer)
        make = error_reply_body if isinstance(answer, DHPError) else reply_body
        return make(reply.to.request_id, answer)

    def _resolve(self, lookup: Any) -> Any:
        try:
            return now_of(resolve(lookup, self.store, FRAME_BYTES, lambda handoff, fence: NO_LEASE))
        except DHPError as error:
            return error
        except DiskError:
            return StoreUnavailable("simulated")
