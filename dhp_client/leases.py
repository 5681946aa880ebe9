"""The client's own view of the leases that it holds: until when, and what has become of them.

Owns the rules for held, in doubt, ended and lost. Time is an argument; the table is shared by the event loop and the
keep-alive thread, so it has a lock. Does not talk to the daemon (`keepalive`, `task`).

A lease counts from when its renewal was sent, never from the answer, so the client's deadline is never later than the
daemon's. Whatever the client believes, the fence decides: a mistake here costs time, not correctness.
"""

import enum
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from dhp_protocol.errors import LeaseLost
from dhp_protocol.messages import LeaseRef
from dhp_protocol.replies import StatusReply

from . import forking


class Phase(enum.Enum):
    """How a lease stands."""

    HELD = "held"
    IN_DOUBT = "in doubt"
    """The client's own deadline has passed and nobody has answered."""
    ENDED = "ended"
    """The daemon has ended it, but nobody has claimed the handoff since: it can be claimed again."""
    LOST = "lost"


class Loss(Struct, frozen=True):
    """Why a lease is gone, and the handoff's fence and status at that time."""

    why: str
    fence: int
    status: str

    def error(self, spool: Mapping[str, Any] | None = None) -> LeaseLost:
        """What is raised; `spool` tells of writes that are void by it, if there are any."""
        sentence = _SENTENCES.get(self.why, f"The lease is gone ({self.why}).")
        if not spool:
            return LeaseLost(sentence, **asdict(self))
        kept = f"{spool['writes']} writes of a partition are void, and kept in {spool['path']}."
        return LeaseLost(f"{sentence} {kept}", **asdict(self), spool=dict(spool))

    def leaves_it_free(self, lost_fence: int) -> bool:
        """Whether nobody has claimed the handoff since the lease with `lost_fence` expired."""
        return self.why == "expired" and self.status == "orphaned" and self.fence == lost_fence + 1


PERIOD = (0.8, 1.0)
"""What part of `heartbeat_ms` lies between two heartbeats."""
PHASE = (0.2, 1.0)
"""And before the first of a lease or of a connection, so that those who came together don't beat together."""

STALLED = "orphaned: stalled"
"""The reason in the status of work that was taken back because it didn't move: it isn't there to be claimed again at once."""

_SENTENCES = {
    "expired": "The lease expired and can't be had back: stop this work.",
    "superseded": "Somebody else has claimed the handoff: stop this work.",
    "cancelled": "The work was cancelled: stop it.",
    "completed": "Somebody else has completed the work: stop it.",
    "stalled": "The work was taken back because it did not move: stop it.",
    "suspended": "The work was put aside: stop it.",
    "dead": "The work has been given up for good: stop it.",
    "in_doubt": "Nobody has answered for too long, so somebody else may hold the handoff by now: stop this work.",
    "unauthenticated": "The daemon takes this client's token no more: stop this work.",
    "forbidden": "The daemon takes this client's token no more: stop this work.",
    "closed": "The client was closed, which released its leases: stop this work.",
}


def loss_from_error(error: LeaseLost) -> Loss:
    """What a refused write tells."""
    details = error.details
    return Loss(str(details.get("why", "expired")), int(details.get("fence", 0)), str(details.get("status", "")))


def loss_from_status(found: StatusReply, lost_fence: int) -> Loss:
    """What a handoff's present status tells about the lease with `lost_fence`, which wasn't renewed."""
    if found.status in ("completed", "cancelled", "dead", "suspended"):
        why = found.status
    elif found.fence == lost_fence + 1:
        why = "released"
        if found.status == "orphaned":
            why = "stalled" if found.reason == STALLED else "expired"
    else:
        why = "superseded"
    return Loss(why, found.fence, found.status)


class Lease(Struct, eq=False):
    """One lease. Times are monotonic milliseconds. `notify` is called, from any thread, when `phase` may have changed."""

    handoff: str
    fence: int
    ttl_ms: float
    heartbeat_ms: float
    in_doubt_ms: float
    deadline_ms: float
    detached: bool = False
    """It is meant to outlive the process that claimed it."""
    notify: Callable[[], None] = lambda: None
    beat_at_ms: float = 0.0
    ended: Loss | None = None
    lost: Loss | None = None
    settling: bool = False
    """A write that may end the work is under way, so being told of an end may be the effect of that very write."""
    settles: tuple[str, ...] | None = None
    """By which words it may; None: by any."""
    told: Loss | None = None
    """What was told while settling."""

    def phase(self, now_ms: float) -> Phase:
        if self.lost is not None:
            return Phase.LOST
        if self.ended is not None:
            return Phase.ENDED
        return Phase.HELD if now_ms < self.deadline_ms else Phase.IN_DOUBT

    @property
    def give_up_at_ms(self) -> float:
        """When doubt has lasted too long."""
        return self.deadline_ms + self.in_doubt_ms

    def next_look_ms(self, now_ms: float) -> float:
        """When `phase` changes by itself at the earliest."""
        return self.deadline_ms if now_ms < self.deadline_ms else self.give_up_at_ms


class LeaseTable:
    """All leases of one client. `uniform(low, high)` draws the jitter of the heartbeats."""

    def __init__(self, *, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self._leases: dict[str, Lease] = {}
        self._to_forget: deque[Lease] = deque()
        self._forgotten: list[Lease] = []
        self._lock = threading.Lock()
        forking.on_fork_in_child(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()  # The old one may be held by a thread that doesn't exist here.
        self._leases, self._to_forget, self._forgotten = {}, deque(), []

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, lease: Lease) -> None:
        """Takes `lease` into the heartbeats; an older lease on the same handoff is superseded by it."""
        with self._lock:
            older = self._leases.get(lease.handoff)
            self._leases[lease.handoff] = lease
            self._schedule(lease, lease.deadline_ms - lease.ttl_ms, PHASE)
            if older is not None and older.lost is None:
                older.lost = Loss("superseded", lease.fence, "running")
        if older is not None:
            older.notify()

    def drop(self, lease: Lease) -> None:
        """Leaves `lease` out of the heartbeats."""
        with self._lock:
            if self._leases.get(lease.handoff) is lease:
                del self._leases[lease.handoff]

    def forget(self, lease: Lease) -> None:
        """Leaves `lease` out of the heartbeats as of `take_forgotten`, since nobody can end its work any more.

        Takes no lock: a finalizer calls it, which the garbage collector runs in the middle of anything, also in the
        thread that is holding the lock.
        """
        self._to_forget.append(lease)

    def take_forgotten(self, now_ms: float) -> list[Lease]:
        """Leaves those out that were forgotten since the last time, and gives them."""
        taken: list[Lease] = []
        if not self._to_forget:
            return taken
        with self._lock:
            while self._to_forget:
                lease = self._to_forget.popleft()
                if self._leases.get(lease.handoff) is lease:
                    del self._leases[lease.handoff]
                    taken.append(lease)
            self._forgotten = [older for older in (*self._forgotten, *taken) if now_ms < older.deadline_ms]
        return taken

    def held(self, now_ms: float) -> list[Lease]:
        """What the end of the client is to release: what isn't over, forgotten ones included."""
        with self._lock:
            found = [lease for lease in (*self._forgotten, *self._leases.values()) if now_ms < lease.deadline_ms]
            return [lease for lease in found if _beats(lease) and not lease.detached]

    def shortest_ttl_ms(self) -> float:
        """Infinite without leases."""
        with self._lock:
            return min((lease.ttl_ms for lease in self._leases.values()), default=float("inf"))

    def next_beat_ms(self) -> float | None:
        """When the next heartbeat is due; None without leases."""
        with self._lock:
            return min((lease.beat_at_ms for lease in self._leases.values() if _beats(lease)), default=None)

    def beat(self, now_ms: float, *, first: bool = False) -> list[LeaseRef]:
        """What a heartbeat sent at `now_ms` renews: everything, so that one frame serves all. `first`: on a new connection."""
        with self._lock:
            beating = [lease for lease in self._leases.values() if _beats(lease)]
            for lease in beating:
                self._schedule(lease, now_ms, PHASE if first else PERIOD)
            return [LeaseRef(lease.handoff, lease.fence) for lease in beating]

    def renewed(self, handoff: str, fence: int, sent_ms: float, now_ms: float) -> None:
        """The daemon has renewed that lease, as asked at `sent_ms`."""
        with self._lock:
            lease = self._leases.get(handoff)
            if lease is None or lease.fence != fence or lease.ended is not None or lease.lost is not None:
                return
            was = lease.phase(now_ms)
            lease.deadline_ms = max(lease.deadline_ms, sent_ms + lease.ttl_ms)
        if was is not Phase.HELD:
            lease.notify()

    def report(self, handoff: str, fence: int, loss: Loss) -> None:
        """The daemon has said that this lease is gone. The first word counts: once it has ended, what claiming it again
        comes to decides, and what is told of the old fence meanwhile may be the effect of that very claim.
        """
        with self._lock:
            lease = self._leases.get(handoff)
            if lease is None or lease.fence != fence or lease.lost is not None or lease.ended is not None:
                return
            if lease.settling and (lease.settles is None or loss.why in lease.settles):
                lease.told = loss
            elif loss.leaves_it_free(fence):
                lease.ended = loss
            else:
                lease.lost = loss
        lease.notify()

    def settle(self, lease: Lease, *, only: tuple[str, ...] | None = None) -> None:
        """A write that may end the work is about to leave; `only`: by these words (None: by any)."""
        with self._lock:
            lease.settling, lease.settles = True, only

    def settled(self, lease: Lease) -> Loss | None:
        """That write has its answer, or was given up; gives what was told meanwhile."""
        with self._lock:
            told, lease.settling, lease.told = lease.told, False, None
        return told

    def reclaimed(self, lease: Lease, fence: int, sent_ms: float) -> None:
        """An ended lease was claimed again under `fence`, as asked at `sent_ms`."""
        with self._lock:
            lease.fence, lease.ended, lease.told = fence, None, None
            lease.deadline_ms = sent_ms + lease.ttl_ms
            self._schedule(lease, sent_ms, PHASE)
        lease.notify()

    def give_up(self, lease: Lease, loss: Loss) -> None:
        """`lease` is lost, whatever the daemon may still say."""
        with self._lock:
            lease.lost = lease.lost or loss
        lease.notify()

    def doubt_all(self, now_ms: float) -> None:
        """Nobody renews any more: what isn't lost is in doubt from now on."""
        with self._lock:
            leases = list(self._leases.values())
            for lease in leases:
                lease.deadline_ms = min(lease.deadline_ms, now_ms)
        self._notify(leases)

    def wake_all(self) -> None:
        """Something that writes may wait for has changed."""
        with self._lock:
            leases = list(self._leases.values())
        self._notify(leases)

    def all(self) -> list[Lease]:
        with self._lock:
            return list(self._leases.values())

    def _schedule(self, lease: Lease, sent_ms: float, spread: tuple[float, float]) -> None:
        lease.beat_at_ms = sent_ms + lease.heartbeat_ms * self._uniform(*spread)

    @staticmethod
    def _notify(leases: list[Lease]) -> None:
        for lease in leases:
            lease.notify()


def _beats(lease: Lease) -> bool:
    return lease.ended is None and lease.lost is None
