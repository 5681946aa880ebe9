"""What is on disk and what isn't: start, commit, and the undo of a commit that failed.

Owns what the store's word means for memory. Nothing but `committed` lets anything out that was looked at since the last
commit; `rolled_back` takes memory back to it, leases, waiters and sessions apart. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from dhp_protocol.errors import StoreUnavailable

from .apply import KEEPS_FENCE, apply
from .facts import RUNNING, Handoff, Status
from .journal import NOT_KEPT, Batch, Extension, Journal
from .moments import Now
from .records import Cancelled, Claimed, Completed, Dead, Entry, Failed, Forgotten, Orphaned, Released, Suspended
from .roles import may_claim, not_a_worker
from .serving import NONCE_KEPT_MS, Serving
from .telling import draining
from .waiting import ApprovalWaiter, ClaimWaiter, Waiter

FLUSH_AFTER_MS = 1_000
"""The table of facts lags this much behind, at least."""
SETTLED_AT_ONCE = 32
FLUSH_SLICE = 256
LOADED_AT_ONCE = 1_000
"""Of a million, so many are looked at again before they have left the processor's cache."""
FLUSH_SLICE_WANTED = 2_048

_ENDS_HOLD = frozenset((Orphaned, Released, Failed, Completed, Cancelled, Suspended, Dead))


class Settling(Serving):
    def load(
        self,
        facts: Iterable[Handoff],
        tail: Iterable[Entry],
        extensions: dict[str, Extension],
        counts: dict[Status, int],
        dead_children: Mapping[str, Sequence[str]],
        *,
        head: int,
        covered: int,
        now: Now,
    ) -> None:
        """Takes up what the store holds: the table of facts, the journal after it, and the leases' extensions.

        `facts` holds all live handoffs, and those ended ones that `tail` speaks of; `counts` is of the whole table, and so are
        `dead_children`: the ancestors of each dead handoff that has any. Of `extensions` those are left that belong to none.
        """
        # A record that alone could not be stored has used up its position: the table may cover it, and it is never given out again.
        self.journal = Journal(max(head, covered), covered)
        self.ledger.counts.update(counts)
        for dead, ancestors in dead_children.items():
            self.ledger.note_dead(dead, ancestors)
        tail = list(tail)
        changed = dict.fromkeys(entry.handoff for entry in tail)
        facts = iter(facts)
        while portion := list(islice(facts, LOADED_AT_ONCE)):
            self.ledger.take_up(portion, now.wall_ms)
            for handoff in portion:
                if handoff.hold is None:
                    pass
                elif handoff.status != RUNNING:
                    if now.wall_ms - handoff.updated_at_ms < NONCE_KEPT_MS:
                        self.ledger.hold_ended(handoff, now.lease_ms)
                elif handoff.id not in changed:
                    self._extend(handoff, extensions.pop(handoff.id, None), now)
        # What a forgotten handoff's records added up to is gone, and some of them may be.
        void = {entry.handoff: entry.position for entry in tail if isinstance(entry.record, Forgotten)}
        for entry in tail:
            before = self.ledger.get(entry.handoff)
            if entry.position <= void.get(entry.handoff, 0):
                pass
            elif before is None or entry.position > before.position:
                after = apply(before, entry)
                self.ledger.put(entry.handoff, after, now.wall_ms)
                if type(entry.record) in _ENDS_HOLD:
                    self.ledger.hold_ended(after, now.lease_ms)
            self.ledger.mark_dirty(entry.handoff, entry.position, now.lease_ms)
        self.ledger.freed.clear()
        for name in changed:
            if (present := self.ledger.get(name)) is not None and present.status == RUNNING:
                self._extend(present, extensions.pop(name, None), now)
        self.journal.gathering.freed.extend(extensions)

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

    def tick(self, now: Now) -> None:
        """Ends what is due at `now`, all at once."""
        for _ in self.tick_in_steps(now):
            pass

    def tick_in_steps(self, now: Now) -> Iterator[None]:
        """Ends what is due at `now`, step by step; in between requests may be carried out, at the same lease time."""
        for _ in self.ends(now):
            self.seal_if_full(now)
            yield

    def carry_on(self, now: Now) -> Iterator[None]:
        """What is under way goes on, step by step, and nothing else happens."""
        for _ in self.go_on(now):
            self.seal_if_full(now)
            yield

    def seal_if_full(self, now: Now) -> None:
        """Between the changes of two handoffs: a full batch is closed, so that no change is split over two commits."""
        if self.journal.gathering.full:
            self._seal(now)

    def settle_some_due(self, now: Now) -> None:
        """What is due by the wall clock happens before a request, as far as that takes but a moment; the next tick sees to the rest."""
        for _ in islice(self.settle_all_due(now), SETTLED_AT_ONCE):
            self.seal_if_full(now)

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
        batch, undone, restored = self.journal.committed(failed)
        if failed:
            self._drop_undone_claims(undone)
            for handoff, before in restored.items():
                self._restore(handoff, before, now)
            lacking = dict.fromkeys(restored, (self.journal.covered + 1, now.lease_ms))
            self.ledger.mark_dirty_again({**batch.flushed, **lacking}, self.journal.durable)
        for entry in batch.entries:
            record = entry.record
            if type(record) in _ENDS_HOLD:
                self._drop_lease(entry.handoff, record.fence - (type(record) not in KEEPS_FENCE))
        for facts in batch.facts:
            self.ledger.stored(facts, awaited=self.waiting.awaited(facts.id))
        if failed:
            self._give_up()
        return batch

    def lost_touch(self) -> None:
        """Whether the batch in flight is on disk isn't known: nothing is believed until `committed` or `rolled_back`."""
        self.available = False
        self.journal.refuse_waiting()
        self._give_up()

    def rolled_back(self, now: Now) -> None:
        """Nothing since the last commit is on disk: memory goes back to it."""
        undo, back, batches = self.journal.rolled_back()
        self.tombstones.rolled_back(self.journal.durable)
        flushed: dict[str, tuple[int, int]] = {}
        for batch in reversed(batches):  # What a handoff lacks it lacks from the oldest batch's position on.
            flushed.update(batch.flushed)
        self.ledger.mark_dirty_again(flushed, self.journal.durable)
        for batch in batches:
            self._drop_undone_claims(batch.entries)
            self.journal.gathering.extended.extend(batch.extended)
            self.journal.gathering.freed.extend(batch.freed)
        for handoff, before in dict(undo).items():  # Newest first: the last word is how it was at the last commit.
            self._restore(handoff, before, now)
        for waiter in back:
            self._go_back(waiter, now)
        self._give_up()

    def disk_filled(self) -> None:
        """There is room for little more: from now on only what `scarcity` names is carried out, and nothing is granted."""
        self.disk_full = True

    def disk_has_room(self, now: Now) -> None:
        """Everything is carried out again."""
        self.disk_full = False
        self.serve_all(now)

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
            lease.refusal = None
            lease.checked.clear()  # What was noted as recorded may have been undone.
            self.leases.cap_stalls(lease, before.budget.stall_ms)
            self.note_questions(before, now)
            self.leases.mind_again(lease)
        if before is None:
            for waiter in (*self.waiting.results_of(handoff), *self.waiting.claims_of(handoff)):
                self.waiting.remove(waiter)
                self._go_back(waiter, now)
        for asked in self.waiting.decisions_of(handoff):
            self.waiting.remove(asked)
            self._go_back(asked, now)

    def _give_up(self) -> None:
        """What was under way may be undone as far as it was done: whoever is to be answered for it hears so."""
        for to in self.backlog.give_up():
            self.reply(to, StoreUnavailable(NOT_KEPT))

    def _go_back(self, waiter: Waiter, now: Now) -> None:
        """Takes its place again, if there is still something to wait for, and somebody who can be granted it."""
        facts = None if waiter.handoff is None else self.ledger.get(waiter.handoff)
        if waiter.handoff is not None and facts is None:
            sentence = "The handoff waited for could not be kept: dispatch it again."
            self.reply(waiter.address, StoreUnavailable(sentence))
        elif isinstance(waiter, ApprovalWaiter) and (facts is None or waiter.approval not in (facts.approvals or {})):
            sentence = "The approval waited for could not be kept: ask for it again."
            self.reply(waiter.address, StoreUnavailable(sentence))
        elif isinstance(waiter, ClaimWaiter) and self.draining:
            self.reply(waiter.address, draining())
        elif isinstance(waiter, ClaimWaiter) and not may_claim(waiter.address.caller):
            self.reply(waiter.address, not_a_worker())
        elif self.sessions.of(waiter.address.connection) is None:
            self.reply(waiter.address, StoreUnavailable("The store could not keep this: send the same request again."))
        elif facts is not None and (answer := self.answer_to(waiter, now)) is not None:
            self.reply(waiter.address, answer, facts, waiter)  # What was undone came after what it waited for.
        else:
            self.waiting.add(waiter)

    def _drop_undone_claims(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            record = entry.record
            if isinstance(record, Claimed):
                self._drop_lease(entry.handoff, record.fence)
                if record.nonce is not None:
                    self.ledger.drop_nonce(record.worker, record.nonce, entry.handoff, record.fence, record.token)

    def _drop_lease(self, handoff: str, fence: int) -> None:
        lease = self.leases.drop(handoff, fence)
        if lease is not None:
            self.sessions.detach(lease)
