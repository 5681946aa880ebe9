"""Leases: until when each holder may write.

Owns deadlines on the lease clock, their shortening while a session is gone, and the extensions that a restart gives.
Lives outside of what a failed commit undoes: a hold that comes back by an undo finds its lease, with its deadline, as it
was. Does not decide what the end of a lease means (`holding`). Pure: lease time is an argument.
"""

from collections.abc import Iterator

from .activities import Activities
from .deadlines import Deadlines
from .facts import Handoff


class Lease:
    """One hold's lease. `deadline_ms` is the earliest of its own end, its session's grace's, and the stall clock's.

    `activities` are those said under this fence; `refusal` is the last refused result, by its hash, and the connection that
    it came over, as long as the answer may have been lost with that one; `checked` are the capabilities (domain and
    resource) whose check is on record under this fence.
    """

    __slots__ = (
        "activities",
        "away_since_ms",
        "checked",
        "deadline_entry",
        "deadline_ms",
        "detached",
        "end_ms",
        "extension_open",
        "fence",
        "grace_end_ms",
        "handoff",
        "refusal",
        "session",
        "stall_end_ms",
        "stall_ms",
        "token",
        "ttl_ms",
    )

    def __init__(
        self,
        handoff: str,
        fence: int,
        ttl_ms: int,
        session: str,
        detached: bool,
        end_ms: int,
        token: str | None = None,
    ) -> None:
        self.handoff = handoff
        self.fence = fence
        self.ttl_ms = ttl_ms
        self.session = session
        self.detached = detached
        self.token = token
        self.end_ms = end_ms
        self.deadline_ms = end_ms
        self.deadline_entry = 0
        self.grace_end_ms: int | None = None
        self.away_since_ms = 0
        self.extension_open = False
        self.stall_ms: int | None = None
        self.stall_end_ms: int | None = None
        self.activities = Activities()
        self.refusal: tuple[str, int] | None = None
        self.checked: set[tuple[str, str]] = set()

    def live(self, now_ms: int) -> bool:
        """Whether its holder may still write: at the deadline it may not."""
        return now_ms < self.deadline_ms

    def unheard_refusal(self, connection: int) -> str | None:
        """The hash of the result that was refused last, where the answer may have been lost: it went to another connection."""
        return None if self.refusal is None or self.refusal[1] == connection else self.refusal[0]


class Leases:
    def __init__(self) -> None:
        self._leases: dict[tuple[str, int], Lease] = {}
        self._deadlines: Deadlines[Lease] = Deadlines()

    def __len__(self) -> int:
        return len(self._leases)

    def grant(self, handoff: Handoff, now_ms: int, *, end_ms: int | None = None) -> Lease:
        """The lease of the hold that `handoff` is in now; it ends a ttl from now unless `end_ms` says otherwise."""
        hold = handoff.hold
        assert hold is not None
        lease = Lease(
            handoff.id,
            hold.fence,
            hold.ttl_ms,
            hold.session,
            hold.detached,
            now_ms + hold.ttl_ms if end_ms is None else end_ms,
            hold.token,
        )
        if handoff.budget.stall_ms is not None:  # The clock starts anew with every claim.
            lease.stall_ms = handoff.budget.stall_ms
            lease.stall_end_ms = now_ms + lease.stall_ms
        lease.deadline_ms = _deadline_ms(lease)
        self._leases[handoff.id, hold.fence] = lease
        self._deadlines.add(lease)
        return lease

    def get(self, handoff: str, fence: int) -> Lease | None:
        """The lease of that hold, ended or not; None once its end is on disk."""
        return self._leases.get((handoff, fence))

    def renew(self, lease: Lease, now_ms: int) -> None:
        """A full ttl from now. A session's grace goes on: it ends by a `hello`, not by a renewal."""
        lease.end_ms = now_ms + lease.ttl_ms
        self._move(lease)

    def moved(self, lease: Lease, now_ms: int) -> None:
        """Something new was done: the stall clock starts anew."""
        if lease.stall_ms is not None:
            lease.stall_end_ms = now_ms + lease.stall_ms
            self._move(lease)

    def cap_stalls(self, lease: Lease, stall_ms: int | None) -> None:
        """The cap in force is this one: what has gone by of the former one stays gone."""
        if stall_ms is not None and lease.stall_ms is not None and lease.stall_end_ms is not None:
            lease.stall_end_ms += stall_ms - lease.stall_ms
            lease.stall_ms = stall_ms
            self._move(lease)

    @staticmethod
    def why_due(lease: Lease, now_ms: int) -> str:
        """Why a lease that has reached its deadline ends: a worker that is lost is no worker that stalls."""
        return "expired" if lease.grace_end_ms is not None or lease.end_ms <= now_ms else "stalled"

    def _move(self, lease: Lease) -> None:
        """One of its ends is another one now."""
        before_ms, lease.deadline_ms = lease.deadline_ms, _deadline_ms(lease)
        if lease.deadline_ms < before_ms:  # A later one is found when the former comes.
            self._deadlines.add(lease)

    def shorten(self, lease: Lease, now_ms: int, grace_ms: int) -> None:
        """Its session is gone: it ends when the grace does."""
        if lease.live(now_ms):
            lease.grace_end_ms = now_ms + grace_ms
            lease.away_since_ms = now_ms
            self._move(lease)

    def restore(self, lease: Lease, now_ms: int) -> None:
        """Its session is back: it ends where it would have, unless that has come already; the stall clock stood meanwhile."""
        if lease.live(now_ms) and lease.grace_end_ms is not None:
            lease.grace_end_ms = None
            if lease.stall_end_ms is not None:
                lease.stall_end_ms += now_ms - lease.away_since_ms
            self._move(lease)

    def drop(self, handoff: str, fence: int) -> Lease | None:
        """The hold's end is on disk, or the hold was undone."""
        lease = self._leases.pop((handoff, fence), None)
        if lease is not None:
            self._deadlines.remove(lease)
        return lease

    def due(self, now_ms: int) -> Iterator[Lease]:
        """Each lease that has reached its deadline, once."""
        return self._deadlines.due(now_ms)

    def mind_again(self, lease: Lease) -> None:
        """Its expiry could not be committed: it is due again at once."""
        self._deadlines.add(lease)

    def next_ms(self) -> int | None:
        """When to look again."""
        return self._deadlines.next_ms()


def _deadline_ms(lease: Lease) -> int:
    if lease.grace_end_ms is not None:  # Nobody is there who could stall.
        return min(lease.end_ms, lease.grace_end_ms)
    return lease.end_ms if lease.stall_end_ms is None else min(lease.end_ms, lease.stall_end_ms)


def heartbeat_ms(ttl_ms: int) -> int:
    """How often a holder should renew: so that two may get lost."""
    return max(1, ttl_ms // 3)
