"""The engine's parts as one, and what every operation does with them.

Owns the way of a change: looked at, decided, applied, gathered for the disk, answered; the tick that ends what is due; and
what a commit, or its failure, means for memory. Does not own the rules (`dispatching`, `holding`, `writing`) nor the
operations (`operations`). Pure: drives no I/O, reads no clock.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from dhp_protocol.errors import DHPError, NotFound, StoreUnavailable
from dhp_protocol.limits import Limits
from dhp_protocol.replies import Event, LeaseLostEvent, LeaseTerms, NothingToClaim, ResultReply

from .apply import KEEPS_FENCE, apply
from .claim_queue import order
from .facts import COMPLETED, ORPHANED, RUNNING, Handoff, Status
from .holding import claimable, decide_claim, decide_expiry, not_claimable
from .journal import Batch, Extension, Journal
from .leases import Lease, Leases
from .ledger import Ledger
from .lookups import ClaimLookup, Lookup, ResultLookup
from .moments import Now
from .outputs import Notice, Reply
from .records import Cancelled, Change, Claimed, Completed, Entry, Failed, Orphaned, Released
from .sessions import Sessions
from .waiting import Address, ClaimWaiter, ResultWaiter, Waiter, Waiting

FLUSH_AFTER_MS = 1_000
"""The table of facts lags this much behind, at least."""
FLUSH_SLICE = 256
FLUSH_SLICE_WANTED = 2_048
NONCE_KEPT_MS = 600_000
IDLE_TICK_MS = 1_000
"""Wall-clock matters are looked at this often, since the wall clock may be set."""

_ENDS_HOLD = (Orphaned, Released, Failed, Completed, Cancelled)


class Settings(Struct, frozen=True, kw_only=True):
    """What the engine is told about its bounds."""

    limits: Limits
    terms: LeaseTerms
    max_queued_bytes: int = 64 * 1024 * 1024
    server: str = "dhpd"


class Core:
    def __init__(self, settings: Settings, fresh_name: Callable[[], str], *, purged_fence: int = 0) -> None:
        self.settings = settings
        self.purged_fence = purged_fence
        self.ledger = Ledger()
        self.journal = Journal()
        self.leases = Leases()
        self.sessions = Sessions(fresh_name)
        self.waiting = Waiting()
        self.draining = False
        self.available = True
        self.looked_at: Handoff | None = None
        """What the operation at hand has looked at: a refusal shows that much."""
        self._going_back: list[Waiter] = []

    # --- start ---------------------------------------------------------------------------------------------------

    def load(
        self,
        facts: Iterable[Handoff],
        tail: Iterable[Entry],
        extensions: dict[str, Extension],
        counts: dict[Status, int],
        *,
        head: int,
        covered: int,
        now: Now,
    ) -> None:
        """Takes up what the store holds: the table of facts, the journal after it, and the leases' extensions.

        `facts` holds all live handoffs, and those ended ones that `tail` speaks of; `counts` is of the whole table.
        """
        self.journal = Journal(head, covered)
        self.ledger.counts.update(counts)
        for handoff in facts:
            self.ledger.admit(handoff, now.wall_ms)
        for entry in tail:
            before = self.ledger.get(entry.handoff)
            if before is None or entry.position > before.position:
                self.ledger.put(entry.handoff, apply(before, entry), now.wall_ms)
            self.ledger.mark_dirty(entry.handoff, entry.position, now.lease_ms)
        self.ledger.freed.clear()
        held = [handoff for handoff in self.ledger if handoff.status == RUNNING]
        for handoff in held:
            self._extend(handoff, extensions.get(handoff.id), now)
        running = {handoff.id for handoff in held}
        self.journal.gathering.freed.extend(handoff for handoff in extensions if handoff not in running)

    def _extend(self, handoff: Handoff, extension: Extension | None, now: Now) -> None:
        """A lease that lived when the daemon ended gets a full ttl by the wall clock, once: a crash loop adds nothing."""
        assert handoff.hold is not None
        if extension is None or extension.fence != handoff.fence:
            extension = Extension(handoff.id, handoff.fence, now.wall_ms + handoff.hold.ttl_ms)
            self.journal.gathering.extended.append(extension)
        # A wall clock that was set back mustn't prolong the lease beyond a ttl.
        left_ms = min(extension.until_ms - now.wall_ms, handoff.hold.ttl_ms)
        lease = self.leases.grant(handoff, now.lease_ms, end_ms=now.lease_ms + left_ms)
        lease.extension_open = True
        self.sessions.attach(lease)

    # --- looking and changing --------------------------------------------------------------------------------------

    def look(self, handoff: str, now: Now) -> Handoff:
        """The handoff as it is at `now`: a lease that has reached its deadline has ended, whether or not a tick saw it."""
        facts = self.ledger.get(handoff)
        if facts is None:
            raise NotFound("There is no such handoff: compare the id, or dispatch it.", handoff=handoff)
        if facts.status == RUNNING:
            lease = self.leases.get(handoff, facts.fence)
            assert lease is not None, "what runs has a lease"
            if not lease.live(now.lease_ms):
                return self.expire(facts, lease, now)
        return facts

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

    # --- holds -----------------------------------------------------------------------------------------------------

    def grant(
        self,
        handoff: Handoff,
        to: Address,
        *,
        worker: str,
        ttl_ms: int,
        nonce: str | None,
        detached: bool,
        now: Now,
        waiter: ClaimWaiter | None = None,
    ) -> None:
        """Gives a claimable handoff to `worker`."""
        session = self.sessions.of(to.connection)
        assert session is not None, "who is granted is connected"
        name = "" if detached else session.name
        changes = decide_claim(
            handoff, worker=worker, session=name, ttl_ms=ttl_ms, nonce=nonce, detached=detached, now=now
        )
        facts = self.change(handoff.id, handoff, changes, now)
        assert facts.fence > handoff.fence  # Invariant 1: a later holder has the larger fence.
        self.sessions.attach(self.leases.grant(facts, now.lease_ms))
        self.reply(to, claim_lookup(facts), facts, waiter)

    def renew(self, handoff: Handoff, now: Now) -> None:
        """An accepted write, or a heartbeat: a full ttl from now."""
        lease = self.leases.get(handoff.id, handoff.fence)
        assert lease is not None, "what runs has a lease"
        self.leases.renew(lease, now.lease_ms)
        if lease.extension_open:
            lease.extension_open = False
            self.journal.gathering.freed.append(handoff.id)

    def expire(self, handoff: Handoff, lease: Lease, now: Now) -> Handoff:
        """The lease has reached its deadline: the handoff is orphaned, its fence raised, its session told."""
        facts = self.change(handoff.id, handoff, decide_expiry(handoff, now), now)
        if not lease.detached:
            event = LeaseLostEvent(handoff=handoff.id, fence=lease.fence, why="expired", status=facts.status)
            self.notify(lease.session, event, facts)
        return facts

    def serve(self, now: Now) -> None:
        """Gives what became claimable to those who wait for it, one each, first come, first served."""
        while self.ledger.freed:
            freed = {handoff: self.ledger.get(handoff) for handoff in self.ledger.freed}
            self.ledger.freed.clear()
            if self.draining or not self.available:
                return  # What waits is served when the store is back, in full (`serve_all`).
            present = [facts for facts in freed.values() if facts is not None and claimable(facts, now.wall_ms)]
            for facts in sorted(present, key=order):
                waiter = self.waiting.first_claim(facts.kind, facts.id, orphaned=facts.status == ORPHANED)
                if waiter is not None:
                    self._serve(facts, waiter, now)

    def serve_all(self, now: Now) -> None:
        """Serves every waiter that can be: what was freed meanwhile may have been passed over."""
        for waiter in self.waiting.every_claim():
            if waiter.handoff is not None:
                facts = self.ledger.get(waiter.handoff)
            else:
                facts = self.ledger.queue.first(waiter.kinds)
            if facts is None or not claimable(facts, now.wall_ms):
                continue
            if not waiter.only_orphaned or facts.status == ORPHANED:
                self._serve(facts, waiter, now)
        self.ledger.freed.clear()

    def _serve(self, facts: Handoff, waiter: ClaimWaiter, now: Now) -> None:
        self.waiting.remove(waiter)
        self.grant(
            facts,
            waiter.address,
            worker=waiter.worker,
            ttl_ms=waiter.ttl_ms,
            nonce=waiter.nonce,
            detached=waiter.detached,
            now=now,
            waiter=waiter,
        )

    def _tell_end(self, facts: Handoff, now: Now) -> None:
        for result_waiter in self.waiting.results_of(facts.id):
            self.waiting.remove(result_waiter)
            self.reply(result_waiter.address, result_of(facts), facts, result_waiter)
        for claim_waiter in self.waiting.claims_of(facts.id):
            self.waiting.remove(claim_waiter)
            self.reply(claim_waiter.address, not_claimable(facts, now), facts, claim_waiter)

    # --- time ------------------------------------------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Ends what is due at `now`."""
        if self.available:
            for lease in self.leases.due(now.lease_ms):
                facts = self.ledger.get(lease.handoff)
                if facts is not None and facts.status == RUNNING and facts.fence == lease.fence:
                    self.expire(facts, lease, now)
        for waiter in self.waiting.due(now.lease_ms):
            self.end_wait(waiter)
        self.ledger.mature(now.wall_ms)
        self.ledger.forget_nonces(now.lease_ms - NONCE_KEPT_MS)
        self.serve(now)
        self.seal_if_full(now)

    def end_wait(self, waiter: Waiter) -> None:
        """The wait is over, and nothing came."""
        if not self.waiting.remove(waiter):
            return
        if isinstance(waiter, ResultWaiter):
            facts = self.ledger.get(waiter.handoff)
            assert facts is not None, "what is waited for stays in memory"
            self.reply(waiter.address, result_of(facts), facts)
        else:
            self.reply_of_all(waiter.address, NothingToClaim())

    def next_tick_ms(self, now: Now) -> int:
        """When to tick again, in lease time."""
        candidates = [now.lease_ms + IDLE_TICK_MS]
        if (wait := self.waiting.next_ms()) is not None:
            candidates.append(wait)
        if self.available and (lease := self.leases.next_ms()) is not None:
            candidates.append(lease)
        if (maturity := self.ledger.next_maturity_ms()) is not None:
            candidates.append(now.lease_ms + maturity - now.wall_ms)
        return max(now.lease_ms + 1, min(candidates))

    # --- the disk --------------------------------------------------------------------------------------------------

    def seal_if_full(self, now: Now) -> None:
        """Between commands: a full batch is closed, so that no command is split over two commits."""
        if self.journal.gathering.full:
            self._seal(now)

    def wants_commit(self, now: Now) -> bool:
        """Whether there is something to write."""
        since = self.ledger.dirty_since_ms()
        stale = since is not None and now.lease_ms - since >= FLUSH_AFTER_MS
        return self.journal.sealed or not self.journal.gathering.empty or self.journal.coverage_wanted or stale

    def take_batch(self, now: Now) -> Batch:
        """What to write next."""
        if not self.journal.sealed:
            self._seal(now)
        return self.journal.take()

    def _seal(self, now: Now) -> None:
        since = self.ledger.dirty_since_ms()
        wanted = self.journal.coverage_wanted
        if wanted or (since is not None and now.lease_ms - since >= FLUSH_AFTER_MS):
            batch = self.journal.gathering
            limit = FLUSH_SLICE_WANTED if wanted else FLUSH_SLICE
            batch.facts, batch.flushed, batch.covers = self.ledger.take_dirty(limit, self.journal.position)
        self.journal.seal()

    def committed(self, now: Now, failed: frozenset[str] = frozenset()) -> Batch:
        """The batch is on disk, but for the handoffs in `failed`, whose changes are undone."""
        batch, undone = self.journal.committed(failed)
        if failed:
            self._drop_undone_claims(undone)
            for handoff, before in self.journal.undo_of(batch, failed):
                self._restore(handoff, before, now)
            self.ledger.mark_dirty_again(batch.flushed, self.journal.durable)
        for entry in batch.entries:
            record = entry.record
            if isinstance(record, _ENDS_HOLD):
                self._drop_lease(entry.handoff, record.fence - (type(record) not in KEEPS_FENCE))
        for facts in batch.facts:
            self.ledger.stored(facts, awaited=self.waiting.awaited(facts.id))
        self._going_back.clear()
        return batch

    def lost_touch(self) -> None:
        """Whether the batch in flight is on disk isn't known: nothing is believed until `committed` or `rolled_back`."""
        self.available = False
        self._going_back.extend(self.journal.refuse_waiting())

    def rolled_back(self, now: Now) -> None:
        """Nothing since the last commit is on disk: memory goes back to it."""
        undo, back, batches = self.journal.rolled_back()
        for batch in batches:
            self._drop_undone_claims(batch.entries)
            self.ledger.mark_dirty_again(batch.flushed, self.journal.durable)
            self.journal.gathering.extended.extend(batch.extended)
            self.journal.gathering.freed.extend(batch.freed)
        for handoff, before in undo:
            self._restore(handoff, before, now)
        for waiter in (*self._going_back, *back):
            if self.sessions.of(waiter.address.connection) is not None:
                self.waiting.add(waiter)
        self._going_back.clear()

    def back_in_touch(self, now: Now) -> None:
        """The store takes writes again."""
        self.available = True
        self.tick(now)
        self.serve_all(now)

    def _restore(self, handoff: str, before: Handoff | None, now: Now) -> None:
        self.ledger.put(handoff, before, now.wall_ms)
        if before is not None and before.status == RUNNING:
            lease = self.leases.get(handoff, before.fence)
            assert lease is not None, "leases live outside of what is undone"
            self.leases.mind_again(lease)
        if before is None:
            for waiter in (*self.waiting.results_of(handoff), *self.waiting.claims_of(handoff)):
                self.waiting.remove(waiter)
                self.reply(
                    waiter.address, StoreUnavailable("The handoff waited for could not be kept: dispatch it again.")
                )

    def _drop_undone_claims(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if isinstance(entry.record, Claimed):
                self._drop_lease(entry.handoff, entry.record.fence)

    def _drop_lease(self, handoff: str, fence: int) -> None:
        lease = self.leases.drop(handoff, fence)
        if lease is not None:
            self.sessions.detach(lease)


def claim_lookup(facts: Handoff) -> ClaimLookup:
    """The grant of the present hold, as its holder hears it."""
    hold = facts.hold
    assert hold is not None
    return ClaimLookup(facts.id, hold.fence, facts.attempt, hold.ttl_ms, hold.was, facts.number, facts.checkpoint)


def result_of(facts: Handoff) -> ResultReply | ResultLookup:
    """The answer to `result` as things stand."""
    return ResultLookup(facts.result_position) if facts.status == COMPLETED else ResultReply(status=facts.status)
