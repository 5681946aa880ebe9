"""Leases: until when each holder may write.

Owns deadlines on the lease clock, their shortening while a session is gone, and the extensions that a restart gives.
Lives outside of what a failed commit undoes: a hold that comes back by an undo finds its lease, with its deadline, as it
was. Does not decide what the end of a lease means (`holding`). Pure: lease time is an argument.
"""

from collections.abc import Iterator

from msgspec import Struct

from dhp_protocol.replies import ActivityView

from .activities import Activities
from .by_id import ById, by_id
from .deadlines import Deadlines
from .facts import Handoff


class Lease(Struct, eq=False, gc=False):
    """One hold's lease. `deadline_ms` is the earliest of its own end, its session's grace's, and the stall clock's.

    While its holder waits for a person (`asking`) the stall clock stands; and while it waits for `verdicts`, up to
    `verdict_due_ms`, the lease's own end and the stall clock's don't count.
    `refusal` is the last refused result, by its hash, and the connection that it came over, as long as the answer may have
    been lost with that one. `given_up`: its session has said goodbye, and it ends by a release. `older` is the lease of the
    handoff's hold before, as long as that one's end isn't on disk.
    """

    handoff: str
    fence: int
    ttl_ms: int
    session: str
    detached: bool
    end_ms: int
    token: str | None = None
    deadline_ms: int = 0
    deadline_entry: int = 0
    grace_end_ms: int | None = None
    away_since_ms: int = 0
    extension_open: bool = False
    stall_ms: int | None = None
    stall_end_ms: int | None = None
    asking: bool = False
    verdicts: int = 0
    verdicts_since_ms: int = 0
    verdict_due_ms: int = 0
    refusal: tuple[str, int] | None = None
    given_up: bool = False
    older: "Lease | None" = None
    _activities: Activities | None = None
    _checked: set[tuple[str, str]] | None = None

    def __post_init__(self) -> None:
        self.deadline_ms = self.end_ms

    @property
    def activities(self) -> Activities:
        """Those said under this fence."""
        if self._activities is None:  # Most leases see none.
            self._activities = Activities()
        return self._activities

    def said(self, now_ms: int) -> ActivityView | None:
        """The activity said last under this fence, if there was any."""
        said = self._activities
        if said is None or said.repeats is None:
            return None
        return ActivityView(repeats=said.repeats, ago_ms=now_ms - said.said_at_ms)

    @property
    def checked(self) -> set[tuple[str, str]]:
        """The capabilities (domain and resource) whose check is on record under this fence."""
        if self._checked is None:
            self._checked = set()
        return self._checked

    def live(self, now_ms: int) -> bool:
        """Whether its holder may still write: at the deadline it may not."""
        return now_ms < self.deadline_ms and not self.given_up

    def unheard_refusal(self, connection: int) -> str | None:
        """The hash of the result that was refused last, where the answer may have been lost: it went to another connection."""
        return None if self.refusal is None or self.refusal[1] == connection else self.refusal[0]


class Leases:
    def __init__(self) -> None:
        self._newest: ById[Lease] = by_id()
        self._count = 0
        self._deadlines: Deadlines[Lease] = Deadlines()

    def __len__(self) -> int:
        return self._count

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
        newest = self._newest[handoff.id[0]]
        lease.older = newest.get(handoff.id)
        newest[handoff.id] = lease
        self._count += 1
        self._deadlines.add(lease)
        return lease

    def get(self, handoff: str, fence: int) -> Lease | None:
        """The lease of that hold, ended or not; None once its end is on disk."""
        lease = self._newest[handoff[0]].get(handoff)
        while lease is not None and lease.fence != fence:
            lease = lease.older
        return lease

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
        if lease.verdicts or self.get(lease.handoff, lease.fence) is not lease or not lease.live(now_ms):
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
        """Its session is gone: it ends when the grace does.

        Not so a lease that nobody has renewed since a restart: where a crowd comes back at once, a connection that ends may only
        have been one try among several. It runs to the end of its extension.
        """
        if lease.live(now_ms) and not lease.extension_open:
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
        lease = self.get(handoff, fence)
        if lease is not None:
            self._count -= 1
            self._deadlines.remove(lease)
            self._unlink(lease)
        return lease

    def _unlink(self, lease: Lease) -> None:
        shard = self._newest[lease.handoff[0]]
        newer = shard[lease.handoff]
        if newer is lease:
            del shard[lease.handoff]
            if lease.older is not None:
                shard[lease.handoff] = lease.older
            return
        while newer.older is not lease:
            assert newer.older is not None, "it is one of them"
            newer = newer.older
        newer.older = lease.older

    def due(self, now_ms: int) -> Iterator[Lease | None]:
        """Each lease that has reached its deadline, once; None: none was found for a while (`Deadlines.due`)."""
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
