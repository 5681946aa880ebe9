"""Who is served, and what time brings: grants, waits, ends.

Owns the order in which freed handoffs go to those who wait, the tick, and when what is under way goes on. Pure: time is an
argument.
"""

from collections.abc import Iterator

from dhp_protocol.replies import DecisionReply, NothingToClaim

from .backlog import Steps
from .claim_queue import order
from .core import Core
from .facts import ORPHANED, RUNNING, Handoff
from .holding import decide_claim
from .lookups import ClaimLookup
from .moments import Now
from .sessions import Session, disconnect_grace_ms
from .telling import result_of
from .waiting import Address, ApprovalWaiter, ClaimWaiter, Waiter

SERVED_AFTER_ENDS = 32
"""Those who wait are served after so many ends of one tick, rather than all of them in one long step."""
STEPS_OF_A_TICK = 256
"""So much of what is under way goes on in one tick, while which time stands still."""
PARTED_AT_ONCE = 8
NONCE_KEPT_MS = 600_000
QUEUE_SHARE = 4
"""What is under way leaves the rest of `max_queued_bytes` to others."""
IDLE_TICK_MS = 1_000
"""Wall-clock matters are looked at this often, since the wall clock may be set."""


class Serving(Core):
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
            handoff,
            worker=worker,
            session=name,
            token=to.caller.token,
            ttl_ms=ttl_ms,
            nonce=nonce,
            detached=detached,
            fence_floor=self.fence_floor,
            now=now,
        )
        facts = self.change(handoff.id, handoff, changes, now)
        assert facts.fence > handoff.fence  # Invariant 1: a later holder has the larger fence.
        self.sessions.attach(self.leases.grant(facts, now.lease_ms))
        self.reply(to, claim_lookup(facts), facts, waiter)

    def serve(self, now: Now) -> None:
        """Gives what became claimable to those who wait for it, one each, first come, first served."""
        while self.ledger.freed:
            freed = {handoff: self.ledger.get(handoff) for handoff in self.ledger.freed}
            self.ledger.freed.clear()
            if not self._gives_out():
                return  # What waits is served when the store takes it again, in full (`serve_all`).
            free = (facts for facts in freed.values() if facts is not None)
            present = [facts for facts in free if self.ledger.claimable(facts, now.wall_ms)]
            for facts in sorted(present, key=order):
                orphaned = facts.status == ORPHANED
                waiter = self.waiting.first_claim(facts.kind, facts.id, orphaned=orphaned, gone=self._gone)
                if waiter is not None:
                    self._serve(facts, waiter, now)

    def serve_all(self, now: Now) -> None:
        """Serves every waiter that can be: what was freed meanwhile may have been passed over."""
        for waiter in self.waiting.every_claim() if self._gives_out() else ():
            if self._gone(waiter.connection):
                continue
            if waiter.handoff is not None:
                facts = self.ledger.get(waiter.handoff)
            else:
                facts = self.ledger.queue.first(waiter.kinds)
            if facts is None or not self.ledger.claimable(facts, now.wall_ms):
                continue
            if not waiter.only_orphaned or facts.status == ORPHANED:
                self._serve(facts, waiter, now)
        self.ledger.freed.clear()

    def _gives_out(self) -> bool:
        """Whether anything is granted at present."""
        return self.available and not self.draining and not self.disk_full

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

    def ends(self, now: Now) -> Iterator[None]:
        """Ends what is due at `now`, step by step: each is like a command of its own, and others may come in between."""
        ended = 0
        for lease in self.leases.due(now.lease_ms) if self.available else ():
            facts = None if lease is None else self.ledger.get(lease.handoff)
            if lease is not None and facts is not None and facts.status == RUNNING and facts.fence == lease.fence:
                self.expire(facts, lease, now)
                ended += 1
                if ended % SERVED_AFTER_ENDS == 0:
                    self.serve(now)
            yield
            if not self.available:  # Before another one is taken from what is minded.
                break
        for _ in self.settle_all_due(now):
            ended += 1
            if ended % SERVED_AFTER_ENDS == 0:
                self.serve(now)
            yield
        for waiter in self.waiting.due(now.lease_ms):
            if waiter is not None:
                self.end_wait(waiter, now)
            yield
        for _ in self.go_on(now):
            yield
        for _ in self.ledger.forget_nonces(now.lease_ms - NONCE_KEPT_MS):
            yield
        self.serve(now)
        yield

    def go_on(self, now: Now) -> Iterator[None]:
        """What is under way goes on, up to so many steps, and as far as the disk keeps up."""
        idle = 0
        for number in range(1, STEPS_OF_A_TICK + 1):
            behind = self.journal.queued_bytes > self.settings.max_queued_bytes // QUEUE_SHARE
            if behind or idle >= len(self.backlog):
                break
            idle = 0 if self.backlog.step(now) else idle + 1
            if number % SERVED_AFTER_ENDS == 0:
                self.serve(now)
            yield

    def settle_all_due(self, now: Now) -> Iterator[None]:
        """Whatever is due by the wall clock happens: delays end, sleepers wake, caps on time and approvals run out.

        While the store is away only delays end, which needs no record; the rest is put off.
        """
        put_off: list[str] = []
        try:
            for due in self.ledger.wall_due(now.wall_ms):
                if due is None:
                    yield
                    continue
                facts = self.settle_due(due, now) if self.available else due
                self.ledger.ripen(facts, now.wall_ms)
                if self.available:
                    self.ledger.mind(facts, now.wall_ms)
                else:
                    put_off.append(facts.id)
                yield
        finally:
            for handoff in put_off:
                if (present := self.ledger.get(handoff)) is not None:
                    self.ledger.mind(present, now.wall_ms)

    def end_wait(self, waiter: Waiter, now: Now, *, gone: bool = False) -> None:
        """The wait is over: what has come may be about to be told, or else nothing came. `gone`: its connection's claims go with it."""
        if not self.waiting.remove(waiter, gone=gone):
            return
        facts = None if waiter.handoff is None else self.ledger.get(waiter.handoff)
        answer = None if waiter.handoff is None else self.answer_to(waiter, now)
        if answer is None and isinstance(waiter, ClaimWaiter):
            answer, facts = NothingToClaim(), None
        elif answer is None and isinstance(waiter, ApprovalWaiter):
            answer = DecisionReply(decision=None)
        elif answer is None and facts is not None:
            answer = result_of(facts)
        assert answer is not None, "of what is there, something can be told"
        if facts is None:
            self.reply_of_all(waiter.address, answer)
        else:
            self.reply(waiter.address, answer, facts)

    def end_waits(self, connection: int) -> Steps:
        """A connection's input has ended: all that waits on it ends empty."""
        now = yield
        while (waiter := self.waiting.first_of(connection)) is not None:
            self.end_wait(waiter, now, gone=True)
            now = yield

    def part(self, session: Session, since_ms: int, *, local: bool) -> Steps:
        """A session's last connection has ended at `since_ms` (lease time): its leases are in their grace, unless it comes back."""
        absence = session.absences
        yield
        for number, lease in enumerate(list(session.leases), 1):
            if not session.away or session.absences != absence:
                return
            if self.leases.get(lease.handoff, lease.fence) is lease:
                self.leases.shorten(lease, since_ms, disconnect_grace_ms(lease.ttl_ms, local=local))
            if number % PARTED_AT_ONCE == 0:
                yield

    def _gone(self, connection: int) -> bool:
        """Whether nothing may be granted there any more."""
        return self.sessions.of(connection) is None

    def next_tick_ms(self, now: Now) -> int:
        """When to tick again, in lease time."""
        candidates = [now.lease_ms + (IDLE_TICK_MS if not self.backlog else 0)]
        if (wait := self.waiting.next_ms()) is not None:
            candidates.append(wait)
        if self.available and (lease := self.leases.next_ms()) is not None:
            candidates.append(lease)
        if self.available and (due := self.ledger.next_wall_ms()) is not None:
            candidates.append(now.lease_ms + due - now.wall_ms)
        return max(now.lease_ms + 1, min(candidates))


def claim_lookup(facts: Handoff) -> ClaimLookup:
    """The grant of the present hold, as its holder hears it."""
    hold = facts.hold
    assert hold is not None
    return ClaimLookup(facts.id, hold.fence, facts.attempt, hold.ttl_ms, hold.was, facts.number, facts.checkpoint)
