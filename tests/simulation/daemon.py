"""The simulated daemon: the real engine with a played shell.

Owns what the shell does (sockets, timers, the disk's thread) in virtual time, and where it is paused, killed or let down by
its disk.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from dhp_protocol.errors import DHPError, StoreUnavailable
from dhp_protocol.replies import LeaseTerms, error_reply_body, reply_body
from dhpd.engine.core import Settings
from dhpd.engine.journal import Batch
from dhpd.engine.lease_clock import LeaseClock
from dhpd.engine.lookups import Lookup
from dhpd.engine.moments import Now
from dhpd.engine.operations import Engine
from dhpd.engine.outputs import Notice
from dhpd.store.backend import DiskError
from dhpd.store.reading import resolve

from .desk import LIMITS, carry_out
from .desk import now_of as now_of
from .store_model import ModelStore, Outcome
from .world import Pipe, World

TTL_MS = 3_000
TERMS = LeaseTerms(ttl_ms=TTL_MS, heartbeat_ms=TTL_MS // 3, min_ttl_ms=500, max_ttl_ms=60_000, disconnect_grace_ms=250)
_encode_event = msgspec.json.Encoder().encode


class SimulatedDaemon:
    """The engine with a played shell: takes messages, ticks, commits, pauses, crashes, starts again."""

    def __init__(self, world: World, store: ModelStore, checks: "Any") -> None:
        self.world = world
        self.store = store
        self.checks = checks
        self.pipes: dict[int, Pipe] = {}
        self.up = False
        self._number = 0
        self._life = 0
        self._paused_until_ms = 0
        self._paused = False
        self._waiting_input: list[Callable[[], None]] = []
        self._noted = 0
        self.start()

    @property
    def working(self) -> bool:
        """Whether it is up, not paused, and its store takes writes."""
        return self.up and not self._paused and self.engine.available

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._life += 1
        self.up = True
        self._paused = False
        names = iter(range(1_000_000))
        loaded = now_of(self.store.load())
        self.engine = Engine(
            Settings(limits=LIMITS, terms=TERMS, steps_at_once=self.world.between(0, 2)),
            lambda: f"own-{self._life}-{next(names)}",
            purged_fence=loaded.purged_fence,
            chance=self.world.random.random,
        )
        self._lease_clock = LeaseClock(self.world.now_ms)
        self._ticking = False
        self._head = loaded.head
        self._noted = max(loaded.head, loaded.covered)
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
        self.checks.started(self.engine, self.store)
        self._lease_clock.schedule(self.world.now_ms + 10)
        self._plan_tick()
        self._consider_commit()

    def crash(self) -> None:
        """Memory is gone; whatever was on the way to the disk got there or didn't."""
        self.up = False
        self._life += 1
        for pipe in list(self.pipes.values()):
            pipe.cut()
        self.pipes.clear()
        self._waiting_input.clear()
        self.world.at(self.world.between(10, 4_000), self.start)

    def pause(self) -> None:
        """Stopped as by SIGSTOP: what comes meanwhile waits, then is taken in before anything ends."""
        if self._paused:
            return
        self._paused = True
        self._paused_until_ms = self.world.now_ms + self.world.between(100, 3 * TTL_MS)
        life = self._life
        self.world.at(self._paused_until_ms - self.world.now_ms, lambda: self._wake(life))

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

    def connect(self, to_client: Callable[[bytes], None], on_end: Callable[[], None]) -> Pipe | None:
        """A new connection, or None while the daemon is down."""
        if not self.up:
            return None
        self._number += 1
        pipe = Pipe(self.world, self._number, to_client, on_end)
        self.pipes[pipe.number] = pipe
        self._input(lambda: self.engine.open(pipe.number))
        return pipe

    def hang_up(self, pipe: Pipe) -> None:
        """The client's side is gone."""
        if self.pipes.pop(pipe.number, None) is not None:
            pipe.open = False
            local = self.world.chance(50)
            self._input(lambda: self.engine.close(pipe.number, local=local, now=self._now()))

    def receive(self, pipe: Pipe, body: bytes) -> None:
        """One request arrives."""
        if pipe.number in self.pipes:
            self._input(lambda: self._request(pipe, body))

    def _input(self, take: Callable[[], None]) -> None:
        if not self.up:
            return
        if self._paused:
            self._waiting_input.append(take)
            return
        take()
        self._worked()

    def _request(self, pipe: Pipe, body: bytes) -> None:
        if self.engine.sessions.of(pipe.number) is None:
            return
        carry_out(self.engine, self.store, body, pipe.number, self._now)

    # --- the shell's work --------------------------------------------------------------------------------------------

    def _now(self) -> Now:
        return Now(self._lease_clock.read(self.world.now_ms), self.world.wall_ms)

    def _worked(self) -> None:
        position = self.engine.journal.position
        if position != self._noted:
            self.checks.decided(self.engine, range(min(self._noted, position) + 1, position + 1))
            self._noted = position
        self._deliver()
        self._consider_commit()
        if self._ticking:
            return
        now = self._now()
        due_ms = max(self.engine.next_tick_ms(now), now.lease_ms + 10)
        if due_ms < self._lease_clock.next_tick_ms:
            self._lease_clock.schedule(due_ms)
            self._plan_tick()

    def _plan_tick(self) -> None:
        life, planned_ms = self._life, self._lease_clock.next_tick_ms
        self.world.at(self._lease_clock.until_tick_ms(self.world.now_ms), lambda: self._tick(life, planned_ms))

    def _tick(self, life: int, planned_ms: int) -> None:
        if life != self._life or self._ticking or planned_ms != self._lease_clock.next_tick_ms:
            return
        if self._after_pause(lambda: self._tick(life, planned_ms)):
            return
        reading_ms = self._lease_clock.tick(self.world.now_ms)
        self._wake(life)  # What waits on the sockets is taken in at a time before the ends.
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
            if self.world.chance(self.world.faults.tick_takes_a_break):
                self.world.at(self.world.between(0, 5), lambda: self._end(life, now, steps))
                self._worked()
                return
        self._lease_clock.done(self.world.now_ms)
        self._lease_clock.schedule(max(self.engine.next_tick_ms(now), now.lease_ms + 10))
        self._ticking = False
        self._plan_tick()
        self._worked()

    def _deliver(self) -> None:
        ready = self.engine.journal.ready
        while ready:
            output = ready.popleft()
            if isinstance(output, Notice):
                pipe, body = self.pipes.get(output.connection), _encode_event(output.event)
            else:
                pipe = self.pipes.get(output.to.connection)
                answer: Any = output.answer
                if isinstance(answer, Lookup):
                    answer = self._resolve(answer)
                error = isinstance(answer, DHPError)
                request_id = output.to.request_id
                body = error_reply_body(request_id, answer) if error else reply_body(request_id, answer)
            self.checks.leaves(body, self.store)
            if pipe is not None:
                pipe.to_client(body)

    def _resolve(self, lookup: Any) -> Any:
        try:
            return now_of(resolve(lookup, self.store, 8_000_000, lambda handoff, fence: None))
        except DHPError as error:
            return error
        except DiskError:
            return StoreUnavailable("simulated")

    def _consider_commit(self) -> None:
        if self.engine.available and not self.engine.journal.in_flight and self.engine.wants_commit(self._now()):
            life, batch = self._life, self.engine.take_batch(self._now())
            if self.world.chance(self.world.faults.crash):
                self._crash_around(batch)
                return
            self.world.at(self.world.between(0, 15), lambda: self._commit(life, batch))

    def _crash_around(self, batch: Batch) -> None:
        """Killed before the commit, or after it and before anybody heard."""
        if self.world.chance(50):
            self.store.outcome = Outcome.KEPT
            now_of(self.store.append(batch, self._head))
        self.crash()

    def _commit(self, life: int, batch: Batch) -> None:
        if life != self._life:
            return
        if self._after_pause(lambda: self._commit(life, batch)):
            return
        faults = self.world.faults
        for outcome, percent in (
            (Outcome.FAILS, faults.commit_fails),
            (Outcome.FAILS_BUT_KEPT, faults.commit_fails_but_kept),
            (Outcome.POISON, faults.poison),
        ):
            if self.world.chance(percent):
                self.store.outcome = outcome
                break
        try:
            appended = now_of(self.store.append(batch, self._head))
        except DiskError:
            self.engine.lost_touch()
            self._deliver()
            self.store.settle_failures = self.world.between(0, 2)
            self.world.at(self.world.between(1, 400), lambda: self._settle(life, batch))
            return
        self._head = appended.head
        self.engine.committed(self._now(), appended.failed)
        self._worked()

    def _settle(self, life: int, batch: Batch) -> None:
        if life != self._life:
            return
        try:
            self._head = now_of(self.store.settle())
        except DiskError:
            self.world.at(self.world.between(1, 400), lambda: self._settle(life, batch))
            return
        if batch.entries and self._head == batch.entries[-1].position:
            self.engine.committed(self._now())
        else:
            self.engine.rolled_back(self._now())
            self._noted = self.engine.journal.position
        self.checks.disturbed()
        self.engine.back_in_touch(self._now())
        self._worked()
