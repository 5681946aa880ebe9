"""The handoffs in memory, and the indexes over them.

Owns which handoffs are in memory (the live ones, and a few that have ended), how many there are of each status, what is
claimable, what is due when by the wall clock, whose child is whose, and which facts the store doesn't have yet. `put` keeps all of it in
step, for a change and for its undo alike. Pure.
"""

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from msgspec import Struct

from .approval_index import ApprovalIndex
from .by_id import ById, by_id
from .claim_queue import ClaimQueue, order
from .deadlines import Deadlines
from .facts import DEAD, RUNNING, STATUSES, Handoff, Status
from .holding import claimable
from .sharing import SharedParts
from .suspending import next_wall_ms

MAX_COLD_HANDOFFS = 1024
MAX_ENDED_NONCES = 100_000
NONCES_OF_A_STEP = 128

_Names = OrderedDict[str, None]  # A set, of which the first one is found at once, however many have gone.
_NonceKey = tuple[str | None, str, str]  # A token's name, a worker, and its claim's nonce.


class WallDue(Struct, eq=False, gc=False):
    """When something of a handoff is due next by the wall clock: a delay's end, a wake-up, a cap, an approval's expiry."""

    handoff: str
    deadline_ms: int
    deadline_entry: int = 0


class Ledger:
    def __init__(self) -> None:
        self._handoffs: ById[Handoff] = by_id()
        self._shared = SharedParts()
        self._cold: OrderedDict[str, None] = OrderedDict()  # Ended, and so in the table: may leave memory at any time.
        self._dirty: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """From which position and lease time on the table of facts lacks a handoff's records; the oldest first."""
        self._wall: ById[WallDue] = by_id()
        self._wall_dues: Deadlines[WallDue] = Deadlines()
        self._descendants: dict[str, _Names] = {}
        self._dead_descendants: dict[str, _Names] = {}  # In memory or not: a redrive brings them back.
        self._awaited: set[str] = set()  # Would be among the cold ones, but somebody who waited is still to be told.
        self.approvals = ApprovalIndex()
        self._nonces: dict[_NonceKey, tuple[str, int]] = {}
        self._ended_nonces: deque[tuple[int, _NonceKey, tuple[str, int]]] = deque()
        self.queue = ClaimQueue(self.get)
        self.counts: dict[Status, int] = dict.fromkeys(STATUSES, 0)
        self.freed: list[str] = []  # Became claimable since the waiters were last served.

    def __iter__(self) -> Iterator[Handoff]:
        return chain.from_iterable(shard.values() for shard in self._handoffs.values())

    def __len__(self) -> int:
        return sum(map(len, self._handoffs.values()))

    def get(self, handoff: str) -> Handoff | None:
        """The handoff's facts, if it is in memory."""
        return self._handoffs[handoff[0]].get(handoff)

    def put(self, handoff: str, facts: Handoff | None, wall_ms: int) -> None:
        """These are its facts from now on; None: there is no such handoff (a dispatch was undone)."""
        shard = self._handoffs[handoff[0]]
        before = shard.get(handoff)
        if before is not None and facts is not None and _indexed_alike(before, facts):
            shard[handoff] = facts
            return
        self._cold.pop(handoff, None)  # The table's facts are no longer the present ones.
        self._awaited.discard(handoff)
        if facts is None:
            shard.pop(handoff, None)
        else:
            if before is None:
                self._shared.in_new((facts,))
            elif facts.hold is not None and facts.hold is not before.hold:
                self._shared.in_hold(facts.hold)
            shard[handoff] = facts
        if before is not None:
            self.counts[before.status] -= 1
        if facts is not None:
            self.counts[facts.status] += 1
        self._index(handoff, before, facts, wall_ms)

    def take_up(self, several: Iterable[Handoff], wall_ms: int) -> None:
        """These facts were read from the store, and stay in memory; they were counted already."""
        # As `_index` where there was nothing before, but quicker: a start does this a million times.
        handoffs, free = self._handoffs, []
        for facts in several:
            handoff = facts.id
            taken_up = handoffs[handoff[0]].setdefault(handoff, facts)
            assert taken_up is facts, "it isn't in memory yet"
            if claimable(facts, wall_ms):
                free.append(facts)
            if (due_ms := next_wall_ms(facts, wall_ms)) is not None:
                self._mind_at(handoff, due_ms)
            if facts.approvals:
                self.approvals.update(handoff, None, facts)
            if facts.hold is not None:
                self._index_nonce(handoff, facts)
            if facts.ancestors:
                self._index_descendant(handoff, facts.ancestors, facts)
        self.queue.add_all(free)
        self.freed.extend(facts.id for facts in free)

    def admit(self, facts: Handoff, wall_ms: int) -> None:
        """As `take_up` of these facts, but what has ended may leave again."""
        self.take_up((facts,), wall_ms)
        if facts.final:
            self._cool(facts.id)

    def claimable(self, facts: Handoff, wall_ms: int) -> bool:
        """Whether a claim would be granted now: what could be claimed once still can, if the wall clock is set back."""
        return self.queue.holds(facts) or claimable(facts, wall_ms)

    def stored(self, facts: Handoff, *, awaited: bool) -> None:
        """The store's table has these facts; what has ended, isn't `awaited` and hasn't changed since may leave memory."""
        if facts.final and self.get(facts.id) is facts:
            if awaited:
                self._awaited.add(facts.id)
            else:
                self._cool(facts.id)

    def not_awaited(self, handoff: str) -> None:
        """All who waited for it have been told."""
        if handoff in self._awaited:
            self._awaited.discard(handoff)
            self._cool(handoff)

    def recall(self, handoff: str) -> Handoff | None:
        """As `get`, for what is about to be needed: if it has ended, others leave memory before it."""
        if handoff in self._cold:
            self._cold.move_to_end(handoff)
        return self.get(handoff)

    def _cool(self, handoff: str) -> None:
        self._cold[handoff] = None
        while len(self._cold) > MAX_COLD_HANDOFFS:
            oldest, _ = self._cold.popitem(last=False)
            del self._handoffs[oldest[0]][oldest]

    def descendants(self, handoff: str) -> Collection[str]:
        """Its children, and theirs in turn, that haven't ended."""
        return self._descendants.get(handoff, ())

    def descendants_left(self, handoff: str) -> int:
        """How many descend from it that haven't ended for good: live ones, and dead ones that may be redriven."""
        return len(self._descendants.get(handoff, ())) + len(self._dead_descendants.get(handoff, ()))

    def note_dead(self, handoff: str, ancestors: Iterable[str]) -> None:
        """A dead handoff that is in the store's table."""
        for ancestor in ancestors:
            _put(self._dead_descendants, ancestor, handoff, belongs=True)

    def nonce(self, worker: str, nonce: str, token: str | None = None) -> tuple[str, int] | None:
        """The handoff that this token's and worker's claim with this nonce was granted, and the fence it got."""
        return self._nonces.get((token, worker, nonce))

    def drop_nonce(self, worker: str, nonce: str, handoff: str, fence: int, token: str | None = None) -> None:
        """That grant was undone, so its nonce means nothing."""
        if self._nonces.get((token, worker, nonce)) == (handoff, fence):
            del self._nonces[token, worker, nonce]

    def forget_nonces(self, before_ms: int) -> Iterator[None]:
        """Forgets the nonces of holds that ended before `before_ms` (lease time), and the oldest of too many, some at a time."""
        ended = self._ended_nonces
        forgotten = 0
        while ended and (ended[0][0] < before_ms or len(ended) > MAX_ENDED_NONCES):
            _, key, grant = ended.popleft()
            if self._nonces.get(key) == grant:
                del self._nonces[key]
            forgotten += 1
            if forgotten % NONCES_OF_A_STEP == 0:
                yield

    def hold_ended(self, facts: Handoff, lease_ms: int) -> None:
        """Its newest hold has ended: the nonce is kept for a while, so that a claim sent again isn't a new one."""
        hold = facts.hold
        if hold is not None and hold.nonce is not None:
            key, grant = (hold.token, hold.worker, hold.nonce), (facts.id, hold.fence)
            self._nonces.setdefault(key, grant)
            self._ended_nonces.append((lease_ms, key, grant))

    def wall_due(self, wall_ms: int) -> Iterator[Handoff | None]:
        """Each handoff of which something is due by the wall clock, once; what is due after that is to be minded (`mind`).

        Until then `minds` still tells that something is, so that whoever looks at what was put off sees to it. None: none was
        found for a while (`Deadlines.due`).
        """
        for due in self._wall_dues.due(wall_ms):
            if due is None:
                yield None
                continue
            yield self._handoffs[due.handoff[0]][due.handoff]

    def ripen(self, facts: Handoff, wall_ms: int) -> None:
        """If its delay is over it is claimable."""
        if not self.queue.holds(facts) and claimable(facts, wall_ms):
            self._enqueue(facts)

    def mind(self, facts: Handoff, wall_ms: int) -> None:
        """Minds what is due next by the wall clock."""
        self._mind(facts.id, facts, wall_ms)

    def minds(self, handoff: str) -> bool:
        """Whether anything of it is, or will be, due by the wall clock."""
        return handoff in self._wall[handoff[0]]

    def next_wall_ms(self) -> int | None:
        """When something is due next by the wall clock, at the earliest."""
        return self._wall_dues.next_ms()

    def mark_dirty(self, handoff: str, position: int, lease_ms: int) -> None:
        """The table of facts lacks this handoff's records from `position` on."""
        self._dirty.setdefault(handoff, (position, lease_ms))

    def mark_dirty_again(self, handoffs: dict[str, tuple[int, int]], durable: int) -> None:
        """A batch that carried these facts failed, and positions after `durable` will be given out again."""
        merged = {**self._dirty, **handoffs}
        clamped = {handoff: (min(first, durable + 1), since) for handoff, (first, since) in merged.items()}
        self._dirty = OrderedDict(sorted(clamped.items(), key=lambda item: item[1]))

    def dirty_since_ms(self) -> int | None:
        """The lease time of the oldest record that the table of facts lacks."""
        return next(iter(self._dirty.values()))[1] if self._dirty else None

    def take_dirty(self, limit: int, position: int) -> tuple[list[Handoff], dict[str, tuple[int, int]], int]:
        """Up to `limit` handoffs for the table of facts, longest waiting first, and how far the table then is."""
        taken = dict(self._dirty.popitem(last=False) for _ in range(min(limit, len(self._dirty))))
        facts = [found for handoff in taken if (found := self.get(handoff)) is not None]
        oldest = next(iter(self._dirty.values()), None)
        return facts, taken, position if oldest is None else oldest[0] - 1

    def _index(self, handoff: str, before: Handoff | None, facts: Handoff | None, wall_ms: int) -> None:
        queued = before is not None and self.queue.holds(before)
        free = facts is not None and claimable(facts, wall_ms)
        if before is None or facts is None or not queued or not free or order(facts) != order(before):
            if before is not None and queued:
                self.queue.remove(before)
            if facts is not None and free:
                self._enqueue(facts)
        if (before is not None and before.approvals) or (facts is not None and facts.approvals):
            self.approvals.update(handoff, before, facts)
        self._mind(handoff, facts, wall_ms)
        self._index_nonce(handoff, facts)
        if (known := facts or before) is not None and known.ancestors:
            self._index_descendant(handoff, known.ancestors, facts)

    def _mind(self, handoff: str, facts: Handoff | None, wall_ms: int) -> None:
        """Minds what is due next, instead of what was minded before."""
        if (due := self._wall[handoff[0]].pop(handoff, None)) is not None:
            self._wall_dues.remove(due)
        if facts is not None and (due_ms := next_wall_ms(facts, wall_ms)) is not None:
            self._mind_at(handoff, due_ms)

    def _mind_at(self, handoff: str, due_ms: int) -> None:
        due = self._wall[handoff[0]][handoff] = WallDue(handoff, due_ms)
        self._wall_dues.add(due)

    def _enqueue(self, facts: Handoff) -> None:
        self.queue.add(facts)
        self.freed.append(facts.id)

    def _index_nonce(self, handoff: str, facts: Handoff | None) -> None:
        hold = None if facts is None or facts.status != RUNNING else facts.hold
        if hold is not None and hold.nonce is not None:
            self._nonces[hold.token, hold.worker, hold.nonce] = (handoff, hold.fence)

    def _index_descendant(self, handoff: str, ancestors: Iterable[str], facts: Handoff | None) -> None:
        live, dead = facts is not None and not facts.final, facts is not None and facts.status == DEAD
        for ancestor in ancestors:
            _put(self._descendants, ancestor, handoff, belongs=live)
            _put(self._dead_descendants, ancestor, handoff, belongs=dead)


def _indexed_alike(before: Handoff, facts: Handoff) -> bool:
    """Whether it runs, and nothing that an index goes by has changed: so it is with checkpoints and amounts.

    What else moves the wall-clock cap (`first_claimed_at_ms`, `dead_ms`) changes with the hold, or with the status.
    """
    return (
        before.status == RUNNING == facts.status
        and before.hold is facts.hold
        and before.approvals is facts.approvals
        and before.open_until_ms == facts.open_until_ms
        and before.budget is facts.budget
    )


def _put(index: dict[str, _Names], key: str, handoff: str, *, belongs: bool) -> None:
    if belongs:
        index.setdefault(key, OrderedDict())[handoff] = None
    elif (found := index.get(key)) is not None:
        found.pop(handoff, None)
        if not found:
            del index[key]
