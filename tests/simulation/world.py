"""The simulated world: virtual time, one source of chance, a network, and the daemon on it.

Owns when things happen and what goes wrong: every delay, loss, pause, crash and failing commit comes from one seed, so a
run replays exactly. The engine is the real one; only its shell (sockets, timers, the disk's thread) is played.
"""

import heapq
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import msgspec

from dhp_protocol.decoding import RequestFault, decode_request
from dhp_protocol.errors import DHPError, StoreUnavailable
from dhp_protocol.limits import Limits
from dhp_protocol.messages import Complete, Dispatch
from dhp_protocol.replies import LeaseTerms, error_reply_body, reply_body
from dhpd.engine.core import Settings
from dhpd.engine.dispatching import prepare_dispatch
from dhpd.engine.journal import Batch
from dhpd.engine.lease_clock import LeaseClock
from dhpd.engine.lookups import Lookup
from dhpd.engine.moments import Now
from dhpd.engine.operations import Engine
from dhpd.engine.outputs import Notice
from dhpd.engine.waiting import Address
from dhpd.store.backend import DiskError
from dhpd.store.reading import resolve

from .store_model import ModelStore, Outcome

T = TypeVar("T")

TTL_MS = 3_000
LIMITS = Limits(max_state_bytes=2_000, max_result_bytes=2_000)
TERMS = LeaseTerms(ttl_ms=TTL_MS, heartbeat_ms=TTL_MS // 3, min_ttl_ms=500, max_ttl_ms=60_000, disconnect_grace_ms=250)
_encode_event = msgspec.json.Encoder().encode


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
)


class World:
    """Virtual milliseconds, and what is to happen at them."""

    def __init__(self, seed: int, faults: Faults) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.now_ms = 1_000_000
        self._agenda: list[tuple[int, float, int, Callable[[], None]]] = []
        self._number = 0

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
        at_ms = max(self._clear_ms[direction], self._world.now_ms + self._world.between(0, 20))
        self._clear_ms[direction] = at_ms
        self._world.at(at_ms - self._world.now_ms, what)

    def to_client(self, body: bytes) -> None:
        self.deliver("down", lambda: self._to_client(body) if self.open else None)

    def cut(self) -> None:
        """Both ends see the end, each in its own time; what is on the way is lost."""
        if self.open:
            self.open = False
            self._world.at(self._world.between(0, 50), self._on_end)


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
        self._waiting_input: list[Callable[[], None]] = []
        self.start()

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._life += 1
        self.up = True
        names = iter(range(1_000_000))
        settings = Settings(limits=LIMITS, terms=TERMS)
        self.engine = Engine(settings, lambda: f"own-{self._life}-{next(names)}")
        self._lease_clock = LeaseClock(self.world.now_ms)
        self._ticking = False
        loaded = now_of(self.store.load())
        self._head = loaded.head
        self.engine.load(
            loaded.facts,
            loaded.tail,
            loaded.extensions,
            loaded.counts,
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
        self._paused_until_ms = self.world.now_ms + self.world.between(100, 3 * TTL_MS)
        life = self._life
        self.world.at(self._paused_until_ms - self.world.now_ms, lambda: self._wake(life))

    def _wake(self, life: int) -> None:
        if life == self._life:
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
        if self.world.now_ms < self._paused_until_ms:
            self._waiting_input.append(take)
            return
        take()
        self._worked()

    def _request(self, pipe: Pipe, body: bytes) -> None:
        if self.engine.sessions.of(pipe.number) is None:
            return
        try:
            request = decode_request(body, LIMITS.max_depth)
        except RequestFault as fault:
            raise AssertionError(f"a simulated client sends good requests: {fault}") from fault
        to = Address(pipe.number, request.id, False)
        engine = self.engine
        if isinstance(request, Dispatch):
            prepared = prepare_dispatch(request, LIMITS)
            self._admit(engine.missing(prepared))
            engine.dispatch(prepared, to, self._now())
            return
        self._admit(engine.missing(request))
        if isinstance(request, Complete):
            engine.complete(request, None, to, self._now())
        else:
            engine.execute(request, to, self._now())

    def _admit(self, missing: list[str]) -> None:
        for facts in now_of(self.store.facts_of(missing)):
            self.engine.admit(facts, self._now())

    # --- the shell's work --------------------------------------------------------------------------------------------

    def _now(self) -> Now:
        return Now(self._lease_clock.read(self.world.now_ms), self.world.now_ms)

    def _worked(self) -> None:
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
        if self.world.now_ms < self._paused_until_ms:
            wake_ms = self._paused_until_ms - self.world.now_ms + self.world.between(0, 1)
            self.world.at(wake_ms, lambda: self._tick(life, planned_ms))
            return
        reading_ms = self._lease_clock.tick(self.world.now_ms)
        self._paused_until_ms = 0
        self._wake(life)  # What waits on the sockets is taken in at a time before the ends.
        self._lease_clock.stand(reading_ms)
        self._ticking = True
        now = Now(reading_ms, self.world.now_ms)
        self._end(life, now, self.engine.tick_in_steps(now))

    def _end(self, life: int, now: Now, steps: Iterator[None]) -> None:
        """Some of what is due ends; before the rest does, other things may happen."""
        if life != self._life:
            return
        if self.world.now_ms < self._paused_until_ms:
            self.world.at(self._paused_until_ms - self.world.now_ms, lambda: self._end(life, now, steps))
            return
        for _ in steps:
            if self.world.chance(self.world.faults.tick_takes_a_break):
                self.world.at(self.world.between(0, 5), lambda: self._end(life, now, steps))
                self._worked()
                return
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
        if self.world.now_ms < self._paused_until_ms:
            self.world.at(self._paused_until_ms - self.world.now_ms, lambda: self._commit(life, batch))
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
        self.engine.back_in_touch(self._now())
        self._worked()


def now_of(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the model store never waits")
