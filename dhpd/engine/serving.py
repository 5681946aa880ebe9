"""Who is served, and what time brings: grants, waits, ends.

Owns the order in which freed handoffs go to those who wait, and the tick. Pure: time is an argument.
"""

from collections.abc import Iterator

from dhp_protocol.replies import DecisionReply, NothingToClaim

from .claim_queue import order
from .core import Core, result_of
from .facts import ORPHANED, RUNNING, Handoff
from .holding import decide_claim
from .lookups import ClaimLookup
from .moments import Now
from .waiting import Address, ApprovalWaiter, ClaimWaiter, ResultWaiter, Waiter

SERVED_AFTER_ENDS = 32
"""Those who wait are served after so many ends of one tick, rather than all of them in one long step."""
NONCE_KEPT_MS = 600_000
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
            if self.draining or not self.available:
                return  # What waits is served when the store is back, in full (`serve_all`).
            free = (facts for facts in freed.values() if facts is not None)
            present = [facts for facts in free if self.ledger.claimable(facts, now.wall_ms)]
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
            if facts is None or not self.ledger.claimable(facts, now.wall_ms):
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

    def ends(self, now: Now) -> Iterator[None]:
        """Ends what is due at `now`, step by step: each is like a command of its own, and others may come in between."""
        due = self.leases.due(now.lease_ms)
        ended = 0
        while self.available and (lease := next(due, None)) is not None:
            facts = self.ledger.get(lease.handoff)
            if facts is not None and facts.status == RUNNING and facts.fence == lease.fence:
                self.expire(facts, lease, now)
                ended += 1
                if ended % SERVED_AFTER_ENDS == 0:
                    self.serve(now)
                yield
        for _ in self.settle_all_due(now):
            ended += 1
            if ended % SERVED_AFTER_ENDS == 0:
                self.serve(now)
            yield
        for waiter in self.waiting.due(now.lease_ms):
            self.end_wait(waiter)
            yield
        self.ledger.forget_nonces(now.lease_ms - NONCE_KEPT_MS)
        self.serve(now)
        yield

    def settle_all_due(self, now: Now) -> Iterator[None]:
        """Whatever is due by the wall clock happens: delays end, sleepers wake, caps on time and approvals run out.

        While the store is away only delays end, which needs no record; the rest is put off.
        """
        put_off: list[str] = []
        try:
            for due in self.ledger.wall_due(now.wall_ms):
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

    def end_wait(self, waiter: Waiter) -> None:
        """The wait is over, and nothing came."""
        if not self.waiting.remove(waiter):
            return
        if isinstance(waiter, ResultWaiter):
            facts = self.ledger.get(waiter.handoff) if waiter.handoff is not None else None
            assert facts is not None, "what is waited for stays in memory"
            self.reply(waiter.address, result_of(facts), facts)
        elif isinstance(waiter, ApprovalWaiter):
            self.reply(waiter.address, DecisionReply(decision=None), self.ledger.get(waiter.handoff or ""))
        else:
            self.reply_of_all(waiter.address, NothingToClaim())

    def next_tick_ms(self, now: Now) -> int:
        """When to tick again, in lease time."""
        candidates = [now.lease_ms + IDLE_TICK_MS]
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
