"""The engine's parts as one, and the way of a change.

Owns how a handoff is looked at, changed, and spoken of: looked at as it is now, applied, gathered for the disk, answered up
to what was seen. Does not own the rules (`dispatching`, `holding`, `writing`), who is served (`serving`), nor what a
commit means (`settling`). Pure: drives no I/O, reads no clock.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from dhp_protocol.errors import DHPError, NotFound
from dhp_protocol.limits import Limits
from dhp_protocol.replies import DecisionReply, Event, LeaseLostEvent, LeaseTerms, ResultReply

from .apply import apply
from .approvals import decision_of
from .facts import COMPLETED, RUNNING, ApprovalFacts, Handoff
from .holding import decide_expiry, not_claimable
from .journal import Journal
from .leases import Lease, Leases
from .ledger import Ledger
from .lookups import Lookup, ResultLookup
from .moments import Now
from .outputs import Notice, Reply
from .records import Change, Entry
from .sessions import Sessions
from .suspending import decide_due
from .views import rfc3339
from .waiting import Address, Waiter, Waiting


class Settings(Struct, frozen=True, kw_only=True):
    """What the engine is told about its bounds."""

    limits: Limits
    terms: LeaseTerms
    max_queued_bytes: int = 64 * 1024 * 1024
    server: str = "dhpd"


class Core:
    def __init__(
        self,
        settings: Settings,
        fresh_name: Callable[[], str],
        *,
        purged_fence: int = 0,
        chance: Callable[[], float] = lambda: 0.5,
    ) -> None:
        """`fresh_name` makes an unguessable name, `chance` a number in [0, 1) to spread retries by."""
        self.settings = settings
        self.purged_fence = purged_fence
        self.chance = chance
        self.ledger = Ledger()
        self.journal = Journal()
        self.leases = Leases()
        self.sessions = Sessions(fresh_name)
        self.waiting = Waiting()
        self.draining = False
        self.available = True
        self.looked_at: Handoff | None = None
        """What the operation at hand has looked at: a refusal shows that much."""

    def look(self, handoff: str, now: Now) -> Handoff:
        """The handoff as it is at `now`: a lease that has reached its deadline has ended, whether or not a tick saw it."""
        facts = self.ledger.get(handoff)
        if facts is None:
            raise NotFound("There is no such handoff: compare the id, or dispatch it.", handoff=handoff)
        if facts.status == RUNNING:
            lease = self.leases.get(handoff, facts.fence)
            assert lease is not None, "what runs has a lease"
            if not lease.live(now.lease_ms):
                facts = self.expire(facts, lease, now)
        return self.settle_due(facts, now)

    def settle_due(self, facts: Handoff, now: Now) -> Handoff:
        """The handoff after all that is due by the wall clock: caps on time, wake-ups, approvals that expired."""
        while changes := decide_due(facts, now):
            facts = self.end_hold(facts.id, facts, changes, now)
        return facts

    def ancestors(self, facts: Handoff) -> list[Handoff]:
        """Its ancestors, nearest first, whose caps count as well; they are in memory (`missing`)."""
        found = (self.ledger.get(ancestor) for ancestor in reversed(facts.ancestors))
        return [ancestor for ancestor in found if ancestor is not None]

    def change(self, handoff: str, before: Handoff | None, changes: Sequence[Change], now: Now) -> Handoff:
        """Applies `changes` and gathers them for the disk; gives the facts after them."""
        facts = before
        for change in changes:
            entry = Entry(
                self.journal.next_position(),
                handoff,
                0 if facts is None else facts.position,
                0 if facts is None else facts.anchor,
                change.record,
                change.payload,
            )
            facts = apply(facts, entry)
            self.journal.add(entry, before)
        assert facts is not None, "a change changes something"
        self.ledger.put(handoff, facts, now.wall_ms)
        self.ledger.mark_dirty(handoff, facts.position - len(changes) + 1, now.lease_ms)
        if before is not None and before.status == RUNNING and facts.status != RUNNING:
            self.ledger.hold_ended(facts, now.lease_ms)
        if facts.final and (before is None or not before.final):
            self._tell_end(facts, now)
        self._tell_decisions(facts, now)
        return facts

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

    def reply_of_all(self, to: Address, answer: Struct | DHPError | Lookup, *, covered: bool = False) -> None:
        """Answers with what may depend on any handoff."""
        self.journal.emit(Reply(to, answer, self.journal.position, None, covered=covered))

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
        """The lease has reached its deadline: the handoff is orphaned, its fence raised, its session told."""
        return self.end_hold(
            handoff.id, handoff, decide_expiry(handoff, self.leases.why_due(lease, now.lease_ms), now), now
        )

    def _tell_end(self, facts: Handoff, now: Now) -> None:
        for result_waiter in self.waiting.results_of(facts.id):
            self.waiting.remove(result_waiter)
            self.reply(result_waiter.address, result_of(facts), facts, result_waiter)
        for claim_waiter in self.waiting.claims_of(facts.id):
            self.waiting.remove(claim_waiter)
            self.reply(claim_waiter.address, not_claimable(facts, now), facts, claim_waiter)

    def _tell_decisions(self, facts: Handoff, now: Now) -> None:
        for waiter in self.waiting.decisions_of(facts.id):
            approval = (facts.approvals or {})[waiter.approval]
            if decision_of(facts, approval, now) is not None:
                self.waiting.remove(waiter)
                self.reply(waiter.address, decision_reply(facts, approval, now), facts, waiter)


def decision_reply(facts: Handoff, approval: ApprovalFacts, now: Now) -> DecisionReply:
    """The answer to `approval_wait` as things stand."""
    at_ms = approval.decided_at_ms
    return DecisionReply(
        decision=decision_of(facts, approval, now),
        by=approval.by,
        note=approval.note,
        at=rfc3339(at_ms) if at_ms else None,
    )


def result_of(facts: Handoff) -> ResultReply | ResultLookup:
    """The answer to `result` as things stand."""
    return ResultLookup(facts.result_position) if facts.status == COMPLETED else ResultReply(status=facts.status)
