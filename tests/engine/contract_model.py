"""The contract's rules once more, as simply as they can be said: budgets, failures, stalls, invalid results, redrive.

Owns what each operation answers and leaves; written from the protocol's text, and sharing nothing with the engine. Money is Decimal,
time one clock, an answer a tuple. Each handoff knows only what it spent itself: what counts against a cap is summed up anew.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

Answer = tuple[Any, ...]
Caps = dict[str, Decimal]
TTL_MS = 4_000
AMOUNTS = (("max_steps", "steps"), ("max_usd", "usd"))


@dataclass
class Work:
    """One handoff; `own` is what it spent itself, `kept` the write that a cap refused."""

    name: str
    parent: "Work | None"
    caps: Caps
    status: str = "pending"
    fence: int = 0
    held: int = 0
    ended: str | None = None
    seq: int = 0
    own: Caps = field(default_factory=lambda: {"steps": Decimal(0), "usd": Decimal(0)})
    children: "list[Work]" = field(default_factory=list)
    failures: int = 0
    stalls: int = 0
    invalid: int = 0
    not_before_ms: int = 0
    lease_end_ms: int = 0
    stall_end_ms: int | None = None
    first_ms: int | None = None
    died_ms: int = 0
    dead_ms: int = 0
    kept: tuple[Caps, int, str | None] | None = None
    nonces: set[Answer] = field(default_factory=set)
    said: dict[str, int] = field(default_factory=dict)

    def used(self, what: str) -> Decimal:
        """What counts against its caps: its own, and all that its descendants spent."""
        return self.own[what] + sum((child.used(what) for child in self.children), Decimal(0))

    @property
    def wallclock_end_ms(self) -> int | None:
        cap = self.caps.get("max_wallclock_ms")
        if cap is None or self.first_ms is None or self.status == "dead":
            return None
        return self.first_ms + int(cap) + self.dead_ms


class ContractModel:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.works: dict[str, Work] = {}

    def dispatch(self, name: str, parent: str | None, caps: Caps) -> None:
        above = None if parent is None else self.works[parent]
        defaults = {"max_attempts": Decimal(3), "max_stalls": Decimal(2), "max_invalid_results": Decimal(3)}
        work = self.works[name] = Work(name, above, defaults | caps)
        if above is not None:
            above.children.append(work)

    # --- time --------------------------------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (next_ms := min((m for w in self.works.values() for m in self.moments(w)), default=end_ms + 1)) <= end_ms:
            self.now_ms = next_ms
            for work in self.works.values():
                if work.status == "running" and self.lease_moment(work) <= next_ms:
                    self.expire(work, "expired" if work.lease_end_ms <= next_ms else "stalled")
                if work.wallclock_end_ms is not None and work.wallclock_end_ms <= next_ms:
                    self.die(work)
        self.now_ms = end_ms

    def moments(self, work: Work) -> Iterable[int]:
        if work.status == "running":
            yield self.lease_moment(work)
        if work.wallclock_end_ms is not None:
            yield work.wallclock_end_ms

    @staticmethod
    def lease_moment(work: Work) -> int:
        return work.lease_end_ms if work.stall_end_ms is None else min(work.lease_end_ms, work.stall_end_ms)

    # --- holds -------------------------------------------------------------------------------------------------------

    def claim(self, work: Work) -> Answer:
        if work.status == "running":
            return ("already_claimed",)
        if work.status == "dead" or (work.status == "pending" and work.not_before_ms > self.now_ms):
            return ("not_claimable",)
        work.status, work.fence, work.ended, work.said = "running", work.fence + 1, None, {}
        work.held, work.not_before_ms = work.fence, 0
        if work.first_ms is None:
            work.first_ms = self.now_ms
        self.renew(work)
        self.moved(work)
        return "granted", work.fence, work.seq

    def late(self, work: Work, fence: int) -> Answer | None:
        if work.status == "running" and fence == work.held:
            return None
        if not work.held or fence > work.held:
            why: str | None = "never_claimed"
        else:
            why = "superseded" if fence < work.held else work.ended
        return "lease_lost", why, work.fence, work.status

    def renew(self, work: Work) -> None:
        work.lease_end_ms = self.now_ms + TTL_MS

    def moved(self, work: Work) -> None:
        stall_ms = work.caps.get("stall_ms")
        work.stall_end_ms = None if stall_ms is None else self.now_ms + int(stall_ms)

    def end(self, work: Work, status: str, why: str) -> None:
        work.status, work.fence = status, work.fence + 1
        work.ended = work.ended or why

    def die(self, work: Work, kept: tuple[Caps, int, str | None] | None = None) -> None:
        self.end(work, "dead", "dead")
        work.died_ms, work.kept = self.now_ms, kept

    def expire(self, work: Work, why: str) -> None:
        self.end(work, "orphaned", why)
        if why == "stalled":
            work.stalls += 1
            over = work.stalls >= work.caps["max_stalls"]
        else:
            work.failures += 1
            over = work.failures >= work.caps["max_attempts"]
        if over:
            self.die(work)

    def heartbeat(self, work: Work, fence: int) -> Answer:
        if self.late(work, fence):
            return ("lost",)
        self.renew(work)
        return ("renewed",)

    def fail(self, work: Work, fence: int, retry: bool, delay_ms: int) -> Answer:
        if late := self.late(work, fence):
            again = work.held == fence and work.ended == "failed"
            return ("failed", work.status, True) if again else late
        self.end(work, "pending", "failed")
        work.failures += 1
        work.not_before_ms = self.now_ms + delay_ms
        if not retry or work.failures >= work.caps["max_attempts"]:
            self.die(work)
        return "failed", work.status, False

    def release(self, work: Work, fence: int) -> Answer:
        if late := self.late(work, fence):
            return ("released", True) if work.held == fence and work.ended == "released" else late
        self.end(work, "pending", "released")
        work.not_before_ms = 0
        return "released", False

    # --- writes ------------------------------------------------------------------------------------------------------

    def exceeded(self, work: Work, asked: Caps, caps: Caps | None = None) -> Answer | None:
        each: Work | None = work
        while each is not None:
            own = caps if caps is not None and each is work else each.caps
            for cap, what in AMOUNTS:
                if cap in own and each.used(what) + asked[what] > own[cap]:
                    return "budget_exceeded", cap, each.name, own[cap], each.used(what), asked[what]
            each = each.parent
        return None

    def spend_now(self, work: Work, asked: Caps) -> None:
        for what, amount in asked.items():
            work.own[what] += amount

    def checkpoint(self, work: Work, fence: int, again: bool, asked: Caps, digest: str | None) -> Answer:
        if late := self.late(work, fence):
            return late
        if again and work.seq:
            self.renew(work)
            return "checkpoint", work.seq, True
        if refusal := self.exceeded(work, asked):
            self.die(work, (asked, work.seq + 1, None))
            return refusal
        self.spend_now(work, asked)
        work.seq += 1
        self.renew(work)
        self.moved(work)
        if digest is not None and (stalled := self.say(work, digest)[1]):
            return stalled
        return "checkpoint", work.seq, False

    def spend(self, work: Work, fence: int, asked: Caps, nonce: str | None) -> Answer:
        if late := self.late(work, fence):
            return late
        if ("spend", nonce) not in work.nonces and any(asked.values()):
            if refusal := self.exceeded(work, asked):
                self.die(work, (asked, 0, nonce))
                return refusal
            self.spend_now(work, asked)
            self.remember(work, "spend", nonce)
        self.renew(work)
        return "spent", work.used("steps"), work.used("usd")

    def activity(self, work: Work, fence: int, digest: str) -> Answer:
        if late := self.late(work, fence):
            return late
        self.renew(work)
        repeats, stalled = self.say(work, digest)
        return stalled or ("repeats", repeats)

    def say(self, work: Work, digest: str) -> tuple[int, Answer | None]:
        if digest in work.said:
            work.said[digest] += 1
        else:
            work.said = dict.fromkeys([*work.said, digest], 0)
            self.moved(work)
        repeats, most = work.said[digest], work.caps.get("max_repeats")
        if most is None or repeats < most:
            return repeats, None
        self.expire(work, "stalled")
        return repeats, ("lease_lost", "stalled", work.fence, work.status)

    def refused_result(self, work: Work, fence: int) -> Answer:
        if late := self.late(work, fence):
            return late
        work.invalid += 1
        left = int(work.caps["max_invalid_results"]) - work.invalid
        self.renew(work)  # Whoever sent it was there, and goes on.
        if not left:
            self.die(work)
        return "result_invalid", left

    # --- from outside ------------------------------------------------------------------------------------------------

    def remember(self, work: Work, operation: str, nonce: str | None) -> None:
        if nonce is not None:
            work.nonces.add((operation, nonce))

    def budget_add(self, work: Work, add: Caps, nonce: str | None) -> Answer:
        if ("budget_add", nonce) not in work.nonces:
            if any(cap not in work.caps for cap in add):
                return ("invalid_request",)
            self.raise_caps(work, add)
            self.remember(work, "budget_add", nonce)
        return "budget", dict(work.caps)

    def raise_caps(self, work: Work, add: Caps) -> None:
        for cap, amount in add.items():
            work.caps[cap] += amount
        if work.stall_end_ms is not None:
            work.stall_end_ms += int(add.get("stall_ms", 0))

    def redrive(self, work: Work, add: Caps, nonce: str | None) -> Answer:
        if ("redrive", nonce) in work.nonces:
            return "status", work.status
        if work.status != "dead":
            return ("wrong_state",)
        if any(cap not in work.caps for cap in add):
            return ("invalid_request",)
        caps = {cap: value + add.get(cap, 0) for cap, value in work.caps.items()}
        asked, seq, spent_nonce = work.kept or ({"steps": Decimal(0), "usd": Decimal(0)}, 0, None)
        if refusal := self.exceeded(work, asked, caps):
            return refusal
        lived_ms = 0 if work.first_ms is None else work.died_ms - work.first_ms - work.dead_ms
        most_ms = caps.get("max_wallclock_ms")
        if most_ms is not None and work.first_ms is not None and lived_ms >= most_ms:
            return "budget_exceeded", "max_wallclock_ms", work.name, most_ms, Decimal(lived_ms), Decimal(1)
        work.dead_ms += self.now_ms - work.died_ms
        self.raise_caps(work, add)
        self.spend_now(work, asked)
        work.seq = seq or work.seq
        work.failures = work.stalls = work.invalid = work.not_before_ms = 0
        work.kept, work.status, work.fence = None, "pending", work.fence + 1
        self.remember(work, "redrive", nonce)
        self.remember(work, "spend", spent_nonce)
        return "status", "pending"
