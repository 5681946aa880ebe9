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

    While its holder waits for a person (`asking`) the stall clock stands; and while it waits for `verdicts`, up to
    `verdict_due_ms`, the lease's own end and the stall clock's don't count.
    `activities` are those said under this fence; `refusal` is the last refused result, by its hash, and the connection that
    it came over, as long as the answer may have been lost with that one; `checked` are the capabilities (domain and
    resource) whose check is on record under this fence. `given_up`: its session has said goodbye, and it ends by a release.
    """

    __slots__ = (
        "activities",
        "asking",
        "away_since_ms",
        "checked",
        "deadline_entry",
        "deadline_ms",
        "detached",
        "end_ms",
        "extension_open",
        "fence",
        "given_up",
        "grace_end_ms",
        "handoff",
        "refusal",
        "session",
        "stall_end_ms",
        "stall_ms",
        "token",
        "ttl_ms",
        "verdict_due_ms",
        "verdicts",
        "verdicts_since_ms",
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
        self.asking = False
        self.verdicts = 0
        self.verdicts_since_ms = 0
        self.verdict_due_ms = 0
        self.activities = Activities()
        self.refusal: tuple[str, int] | None = None
        self.checked: set[tuple[str, str]] = set()
        self.given_up = False

    def live(self, now_ms: int) -> bool:
        """Whether its holder may still write: at the deadline it may not."""
        return now_ms < self.deadline_ms and not self.given_up

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
        lease.asking = handoff.asking
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
        if lease.grace_end_ms is None and lease.stall_end_ms is None and lease.deadline_ms <= lease.end_ms:
            lease.deadline_ms = max(lease.end_ms, lease.verdict_due_ms)
        else:
            self._move(lease)

    def moved(self, lease: Lease, now_ms: int) -> None:
        """Something new was done: the stall clock starts anew."""
        if lease.stall_ms is not None:
            lease.stall_end_ms = now_ms + lease.stall_ms
            self._move(lease)

    def asks(self, lease: Lease, now_ms: int, *, asking: bool) -> None:
        """Whether its holder waits for a person now: when that is over the stall clock starts anew."""
        if lease.asking != asking:
            lease.asking = asking
            self.moved(lease, now_ms)

    def hold(self, lease: Lease, now_ms: int, at_most_ms: int) -> None:
        """Its holder waits for a verdict of ours, which comes within that time."""
        if not lease.verdicts:
            lease.verdicts_since_ms = now_ms
        lease.verdicts += 1
        lease.verdict_due_ms = now_ms + at_most_ms
        self._move(lease)

    def let_go(self, lease: Lease, now_ms: int) -> None:
        """The verdict has come. The stall clock stood meanwhile, and if the lease still stands, it is renewed."""
        lease.verdicts -= 1
        if lease.verdicts or self._leases.get((lease.handoff, lease.fence)) is not lease or not lease.live(now_ms):
            return
        lease.verdict_due_ms = 0
        if lease.stall_end_ms is not None:
            lease.stall_end_ms += now_ms - lease.verdicts_since_ms
        self.renew(lease, now_ms)

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
    end_ms = lease.end_ms if lease.end_ms > lease.verdict_due_ms else lease.verdict_due_ms
    if lease.grace_end_ms is not None:  # Nobody is there who could stall.
        return min(end_ms, lease.grace_end_ms)
    if lease.asking or lease.stall_end_ms is None:
        return end_ms
    return min(end_ms, max(lease.stall_end_ms, lease.verdict_due_ms))


def heartbeat_ms(ttl_ms: int) -> int:
    """How often a holder should renew: so that two may get lost."""
    return max(1, ttl_ms // 3)
