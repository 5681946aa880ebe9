"""The engine's parts as one, and the way of a change.

Owns how a handoff is looked at, changed, and spoken of: looked at as it is now, applied, gathered for the disk, answered up
to what was seen. Does not own the rules (`dispatching`, `holding`, `writing`), who is served (`serving`), nor what a
commit means (`settling`). Pure: drives no I/O, reads no clock.
"""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from dhp_protocol.errors import DHPError, NotFound
from dhp_protocol.limits import Limits
from dhp_protocol.replies import Event, LeaseLostEvent, LeaseTerms

from .apply import apply, placed
from .backlog import Backlog, Steps
from .facts import RUNNING, Handoff
from .holding import decide_expiry, decide_goodbye
from .journal import Journal
from .leases import Lease, Leases
from .ledger import Ledger
from .lookups import Lookup
from .moments import Now
from .outputs import Notice, Reply
from .records import Change, Entry
from .sessions import Sessions
from .suspending import decide_due
from .telling import told_to
from .tombstones import Tombstones
from .waiting import Address, Waiter, Waiting


class Settings(Struct, frozen=True, kw_only=True):
    """What the engine is told about its bounds."""

    limits: Limits
    terms: LeaseTerms
    max_queued_bytes: int = 64 * 1024 * 1024
    server: str = "dhpd"
    steps_at_once: int = 32
    """Of work that goes on in steps, so many are taken when it begins."""


class Core:
    def __init__(
        self,
        settings: Settings,
        fresh_name: Callable[[], str],
        *,
        purged_fence: int = 0,
        fence_floor: int = 0,
        chance: Callable[[], float] = lambda: 0.5,
    ) -> None:
        """`fresh_name` makes an unguessable name, `chance` a number in [0, 1) to spread retries by."""
        self.settings = settings
        self.purged_fence = purged_fence
        self.fence_floor = fence_floor
        """Claims are above it: before the store was restored from a backup, fences up to it may have been given out."""
        self.chance = chance
        self.ledger = Ledger()
        self.journal = Journal()
        self.leases = Leases()
        self.sessions = Sessions(fresh_name)
        self.waiting = Waiting()
        self.tombstones = Tombstones()
        self.backlog = Backlog(settings.steps_at_once)
        self.draining = False
        self.stops_at_ms: int | None = None
        """While draining: when the daemon will stop, in lease time, if that is known."""
        self.available = True
        self.disk_full = False
        """Only what `scarcity` lets through is written."""
        self.looked_at: Handoff | None = None
        """What the operation at hand has looked at: a refusal shows that much."""
        self.missed_at = 0
        """Where what the operation at hand did not find was forgotten: a refusal shows that too."""

    def find(self, handoff: str) -> Handoff | None:
        """The handoff's facts, if it is in memory."""
        facts = self.ledger.get(handoff)
        if facts is None:
            self.missed_at = max(self.missed_at, self.tombstones.position_of(handoff))
        return facts

    def look(self, handoff: str, now: Now) -> Handoff:
        """The handoff as it is at `now`: a lease that has reached its deadline has ended, whether or not a tick saw it."""
        facts = self.find(handoff)
        if facts is None:
            raise NotFound("There is no such handoff: compare the id, or dispatch it.", handoff=handoff)
        if facts.status == RUNNING:
            lease = self.leases.get(handoff, facts.fence)
            assert lease is not None, "what runs has a lease"
            if not lease.live(now.lease_ms):
                facts = self.expire(facts, lease, now)
        return self.settle_due(facts, now) if self.ledger.minds(handoff) else facts

    def settle_due(self, facts: Handoff, now: Now) -> Handoff:
        """The handoff after all that is due by the wall clock: caps on time, wake-ups, approvals that expired."""
        while changes := decide_due(facts, now):
            facts = self.end_hold(facts.id, facts, changes, now)
        return facts

    def ancestors(self, facts: Handoff) -> list[Handoff]:
        """Its ancestors, nearest first, whose caps count as well; they are in memory (`missing`)."""
        if not facts.ancestors:
            return []
        found = (self.ledger.get(ancestor) for ancestor in reversed(facts.ancestors))
        return [ancestor for ancestor in found if ancestor is not None]

    def change(self, handoff: str, before: Handoff | None, changes: Sequence[Change], now: Now) -> Handoff:
        """Applies `changes` and gathers them for the disk; gives the facts after them."""
        facts = before
        for change in changes:
            entry = placed(handoff, facts, self.journal.position + 1, change)
            facts = apply(facts, entry)
            self.journal.add(entry, before)
        assert facts is not None, "a change changes something"
        return self._changed(before, facts, facts.position - len(changes) + 1, now)

    def adopt(self, before: Handoff | None, entries: Sequence[Entry], facts: Handoff, now: Now) -> Handoff:
        """As `change`, with entries that were applied elsewhere already: they are in the next places, `facts` are those after."""
        for entry in entries:
            self.journal.add(entry, before)
        return self._changed(before, facts, entries[0].position, now)

    def _changed(self, before: Handoff | None, facts: Handoff, first_position: int, now: Now) -> Handoff:
        """`facts` are so from now on, by the records from `first_position` on."""
        self.ledger.put(facts.id, facts, now.wall_ms)
        self.ledger.mark_dirty(facts.id, first_position, now.lease_ms)
        if before is not None and before.status == facts.status and before.approvals is facts.approvals:
            return facts
        if before is not None and before.status == RUNNING and facts.status != RUNNING:
            self.ledger.hold_ended(facts, now.lease_ms)
        if before is not None and facts.approvals is not before.approvals:
            self.note_questions(facts, now)
        if (before is None or before.status != facts.status) and facts.final and self.waiting.awaited(facts.id):
            first = partial(self.waiting.first_for_end, facts.id)
            self.backlog.begin(self._tell(facts.id, facts.position, first), now)
        if before is None or before.approvals is not facts.approvals:
            self._tell_decisions(before, facts, now)
        return facts

    def note_questions(self, facts: Handoff, now: Now) -> None:
        """While a question of its holder's is open, the stall clock of its lease stands."""
        lease = self.leases.get(facts.id, facts.fence) if facts.status == RUNNING else None
        if lease is not None:
            self.leases.asks(lease, now.lease_ms, asking=facts.asking)

    def forget(self, facts: Handoff, change: Change, now: Now) -> int:
        """The handoff is gone with this change; gives the position. Where its fences ended, all new ones begin."""
        entry = placed(facts.id, facts, self.journal.position + 1, change)
        self.journal.add(entry, facts)
        self.purged_fence = max(self.purged_fence, change.record.fence)  # Invariant 1: whoever claims it anew is above.
        self.tombstones.add(facts.id, entry.position, self.journal.durable)
        self.ledger.put(facts.id, None, now.wall_ms)
        self.ledger.mark_dirty(facts.id, entry.position, now.lease_ms)
        return entry.position

    def refuse(self, to: Address, error: DHPError) -> None:
        """Answers with a refusal of the operation at hand, which shows what it looked at, and what it missed."""
        seen = 0 if self.looked_at is None else self.looked_at.position
        if self.missed_at > seen:
            self.journal.emit(Reply(to, error, self.missed_at, None))
        else:
            self.reply(to, error, self.looked_at)

    def reply(
        self,
        to: Address,
        answer: Struct | DHPError | Lookup,
        facts: Handoff | None = None,
        waiter: Waiter | None = None,
    ) -> None:
        """Answers with what was seen of one handoff (None: of nothing that could be taken back)."""
        position, handoff = (0, None) if facts is None else (facts.position, facts.id)
        self.journal.emit(Reply(to, answer, position, handoff, waiter=waiter))

    def reply_of_all(
        self,
        to: Address,
        answer: Struct | DHPError | Lookup,
        *,
        covered: bool = False,
        waiter: Waiter | None = None,
    ) -> None:
        """Answers with what may depend on any handoff."""
        self.journal.emit(Reply(to, answer, self.journal.position, None, covered=covered, waiter=waiter))

    def notify(self, session: str, event: Event, facts: Handoff | None = None) -> None:
        """Sends `event` to every connection of the session."""
        found = self.sessions.named(session)
        position, handoff = (0, None) if facts is None else (facts.position, facts.id)
        for connection in sorted(found.connections) if found is not None and not found.anonymous else ():
            self.journal.emit(Notice(connection, event, position, handoff))

    def notify_connection(self, connection: int, event: Event) -> None:
        """Sends `event`, which shows nothing that could be taken back, to one connection."""
        self.journal.emit(Notice(connection, event))

    def renew(self, handoff: Handoff, now: Now) -> Lease:
        """An accepted write, or a heartbeat: a full ttl from now."""
        lease = self.leases.get(handoff.id, handoff.fence)
        assert lease is not None, "what runs has a lease"
        self.leases.renew(lease, now.lease_ms)
        if lease.extension_open:
            lease.extension_open = False
            self.journal.gathering.freed.append(handoff.id)
        return lease

    def write(self, facts: Handoff, changes: Sequence[Change], now: Now) -> Handoff:
        """What the holder says: renews the lease, and where it is new, moves the stall clock."""
        if not changes:
            self.renew(facts, now)
            return facts
        facts = self.change(facts.id, facts, changes, now)
        self.leases.moved(self.renew(facts, now), now.lease_ms)
        return facts

    def end_hold(self, name: str, handoff: Handoff, changes: Sequence[Change], now: Now) -> Handoff:
        """Applies changes that may take the handoff from its holder, and tells the holder's session."""
        lease = self.leases.get(name, handoff.fence) if handoff.status == RUNNING else None
        facts = self.change(name, handoff, changes, now)
        if lease is not None and not lease.detached and facts.status != RUNNING and facts.hold is not None:
            why = facts.hold.ended or "expired"
            self.notify(
                lease.session, LeaseLostEvent(handoff=facts.id, fence=lease.fence, why=why, status=facts.status), facts
            )
        return facts

    def expire(self, handoff: Handoff, lease: Lease, now: Now) -> Handoff:
        """The lease has ended: the handoff is orphaned, its fence raised, its session told; or it is released for whoever said goodbye."""
        if lease.given_up:
            facts = self.settle_due(handoff, now)  # A cap on its time was first.
            return self.change(facts.id, facts, decide_goodbye(facts, now), now) if facts.status == RUNNING else facts
        return self.end_hold(
            handoff.id, handoff, decide_expiry(handoff, self.leases.why_due(lease, now.lease_ms), now), now
        )

    def answer_to(self, waiter: Waiter, now: Now) -> Struct | DHPError | Lookup | None:
        """What one who waits for a certain handoff hears, if it has come to that; None: it hasn't."""
        return told_to(waiter, None if waiter.handoff is None else self.ledger.get(waiter.handoff), now)

    def _tell(self, handoff: str, since: int, first: Callable[[], Waiter | None]) -> Steps:
        """Answers those who have waited for what came with the record `since`, one by one. If it was undone, the others wait on.

        After the first few the disk is waited for: else all answers would leave in one go when it has come that far.
        """
        now = yield
        told = 0
        while (waiter := first()) is not None and (answer := self.answer_to(waiter, now)) is not None:
            if told >= self.settings.steps_at_once and since > self.journal.durable:
                now = yield True
                continue
            self.waiting.remove(waiter)
            if (facts := self.ledger.get(handoff)) is None:
                self.reply_of_all(waiter.address, answer)
            else:
                self.reply(waiter.address, answer, facts, waiter)
            told += 1
            now = yield
        if not self.waiting.awaited(handoff):
            self.ledger.not_awaited(handoff)

    def _tell_decisions(self, before: Handoff | None, facts: Handoff, now: Now) -> None:
        known = {} if before is None else before.approvals or {}
        for name in self.waiting.approvals_awaited(facts.id):
            approval = (facts.approvals or {})[name]
            if approval.decision is not None and (name not in known or known[name].decision is None):
                first = partial(self.waiting.first_for_decision, facts.id, name)
                self.backlog.begin(self._tell(facts.id, facts.position, first), now)
