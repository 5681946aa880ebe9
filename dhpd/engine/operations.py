"""The operations' table: from a request to what carries it out.

Owns what is refused before anything is looked at. `Engine` is the engine as its users see it: requests and time go in,
`journal.ready` and batches come out. Pure.
"""

from collections.abc import Callable
from typing import Any, get_args

from msgspec import UNSET, UnsetType

from dhp_protocol.errors import DHPError, Overloaded, ResultInvalid, StoreUnavailable
from dhp_protocol.messages import (
    Ack,
    Activity,
    AnyRequest,
    ApprovalDecide,
    ApprovalRequest,
    Approvals,
    ApprovalWait,
    BudgetAdd,
    Cancel,
    CheckCapability,
    Checkpoint,
    Checkpoints,
    Claim,
    Complete,
    Dispatch,
    Drain,
    EffectBegin,
    EffectDone,
    Effects,
    Export,
    Fail,
    Forget,
    GetResult,
    GetStatus,
    Goodbye,
    Heartbeat,
    Hello,
    History,
    Import,
    LastCheckpoint,
    ListHandoffs,
    Ping,
    Recover,
    Redrive,
    Release,
    Request,
    Resume,
    Spend,
    Suspend,
)

from .approval_operations import approval_decide, approval_request, approval_wait, approvals, resume, suspend
from .approvals import handoff_of
from .budget_operations import activity, budget_add, redrive, spend
from .claim_operations import claim, fail, recover, release
from .dispatching import PreparedDispatch
from .effect_operations import check_capability, effect_begin, effect_done, effects
from .facts import RUNNING, Handoff
from .leases import Lease
from .moments import Now
from .porting_operations import Arrived, export, import_
from .reading_operations import checkpoints, history, last_checkpoint, list_handoffs, result, status
from .retention_operations import forget, retire
from .roles import ADMIN, Caller, check_fence_owner, check_role, may_claim, may_hold, not_a_worker
from .scarcity import GOES_ON, disk_is_full
from .session_operations import begin_drain, drain, goodbye, heartbeat, hello, ping
from .settling import Settling
from .waiting import Address
from .work_operations import ack, cancel, checkpoint, complete, dispatch

Prepared = ResultInvalid | DHPError | bytes | bool | Arrived | None
"""What had to be had before a request could be decided: `_PREPARED_OPERATIONS` says what for which."""

_Operation = Callable[[Settling, Any, Address, Now], None]
_PreparedOperation = Callable[[Settling, Any, Any, Address, Now], None]

_WITHOUT_STORE = frozenset((Hello, Ping, Heartbeat))
_FENCED = frozenset(kind for kind in get_args(AnyRequest) if hasattr(kind, "fence"))
_ADDS_BYTES = frozenset(
    (
        Dispatch,
        Claim,
        Recover,
        Checkpoint,
        Complete,
        EffectBegin,
        EffectDone,
        ApprovalRequest,
        CheckCapability,
        Import,
    )
)


class Engine(Settling):
    """The engine, whole. After each call, `journal.ready` holds what may leave at once."""

    def execute(
        self, request: Request | PreparedDispatch, to: Address, now: Now, prepared: Prepared | UnsetType = UNSET
    ) -> bool:
        """Carries out a request whose handoffs are in memory (`missing`), a dispatch with its intent named.

        `prepared` is what had to be had first, for the operations that need something (`_PREPARED_OPERATIONS`) and for no
        others. Tells whether the request was carried out, or refused.
        """
        asked: Any = request.request if isinstance(request, PreparedDispatch) else request
        kind = type(asked)
        done = False
        self.looked_at = None
        self.missed_at = 0
        try:
            check_role(asked, to.caller)
            if not self.available and kind not in _WITHOUT_STORE:
                raise StoreUnavailable("The store can't be reached: try again.", after_ms=200)
            if self.disk_full and type(request) not in GOES_ON:
                raise disk_is_full()
            if kind in _ADDS_BYTES and self.journal.queued_bytes > self.settings.max_queued_bytes:
                raise _overloaded()
            if kind in _FENCED and (facts := self.ledger.get(asked.handoff)) is not None:
                # Every operation with a fence comes through here. A lease's end changes nothing about whose it was.
                self.looked_at = facts
                check_fence_owner(facts, asked.fence, to.caller)
            if prepared is UNSET:
                _OPERATIONS[type(request)](self, request, to, now)
            else:
                _PREPARED_OPERATIONS[type(request)](self, request, prepared, to, now)
            done = True
        except DHPError as error:
            self.refuse(to, error)
        if self.ledger.freed:
            self.serve(now)
        self.seal_if_full(now)
        return done

    def await_verdict(self, request: Complete, to: Address, now: Now, at_most_ms: int) -> Lease | None:
        """A complete has come whose verdict takes a while. From its holder it is a sign of life: the lease is renewed, and doesn't
        end by itself before `verdict_came` has been told of it, for so long at most. None: it isn't its holder's.
        """
        facts = self.ledger.get(request.handoff)
        if facts is None or facts.status != RUNNING or facts.fence != request.fence or not may_hold(facts, to.caller):
            return None
        lease = self.leases.get(facts.id, facts.fence)
        if lease is None or not lease.live(now.lease_ms):
            return None
        self.renew(facts, now)
        self.leases.hold(lease, now.lease_ms, at_most_ms)
        return lease

    def verdict_came(self, lease: Lease, now: Now) -> None:
        """It is answered: if the lease still stands, there is a full ttl from now for what comes next."""
        self.leases.let_go(lease, now.lease_ms)

    def missing(self, request: Request | PreparedDispatch, caller: Caller = ADMIN) -> list[str]:
        """Which handoffs have to be read from the store before `request`, as far as it has them."""
        wanted = _WANTED.get(type(request), _named)(self, request, caller)
        # All are looked up: what is there stays there while the rest is read.
        return [handoff for handoff in wanted if self.ledger.recall(handoff) is None and self._unknown(handoff)]

    def _unknown(self, handoff: str) -> bool:
        """Whether only the store can tell. Of what was forgotten, and isn't yet from the disk, it would tell the old."""
        return self.ledger.get(handoff) is None and self.tombstones.position_of(handoff) <= self.journal.durable

    def admit(self, facts: Handoff, now: Now, read_after: int | None = None) -> bool:
        """Takes up facts that were read for `missing`; False: they may be outdated, and are to be read again.

        `read_after` is the position that was durable when the reading began (None: just now).
        """
        if self._unknown(facts.id):
            if self.tombstones.outdated(facts.id, self.journal.durable if read_after is None else read_after):
                return False
            self.ledger.admit(facts, now.wall_ms)
        return True

    def retire(self, facts: Handoff, acked_before_ms: int, read_after: int, now: Now) -> bool:
        """Forgets what was acknowledged up to then, if retention may; tells whether it did. `facts` were read as for `admit`."""
        return self.admit(facts, now, read_after) and retire(self, facts.id, acked_before_ms, now)

    def open(self, connection: int, *, local: bool = True) -> None:
        """A connection has come; `local`: from this machine."""
        self.sessions.open(connection, local=local)

    def close(self, connection: int, *, local: bool, now: Now) -> None:
        """A connection's input has ended: what waits on it ends empty, and its session may be gone."""
        closed = self.sessions.close(connection)
        if closed is None:
            return
        if self.waiting.count_of(connection) <= self.settings.steps_at_once:
            self.backlog.begin(self.end_waits(connection), now)
        else:  # Many may end at one moment, and their first steps are dear where they wait for many kinds.
            self.backlog.put_off(self.end_waits(connection))
        if closed[1]:
            self.backlog.begin(self.part(closed[0], now.lease_ms, local=local), now)

    def roles_changed(self) -> None:
        """Some callers may do less than before: what they wait for isn't granted to them any more."""
        for waiter in self.waiting.every_claim():
            if not may_claim(waiter.address.caller):
                self.waiting.remove(waiter)
                self.reply(waiter.address, not_a_worker())

    def drain(self, now: Now, stops_in_ms: int | None = None) -> None:
        """No new claims and dispatches from now on."""
        begin_drain(self, now, stops_in_ms)


def _named(engine: Engine, request: Any, _: Caller) -> list[str]:
    """The handoff that a request names, if it can name one and does."""
    handoff = getattr(request, "handoff", UNSET)
    return [] if handoff is UNSET else [handoff]


def _asked_about(engine: Engine, request: ApprovalWait | ApprovalDecide, _: Caller) -> list[str]:
    return [handoff_of(request.approval)]


def _named_with_parent(engine: Engine, request: PreparedDispatch, _: Caller) -> list[str]:
    parent = request.request.parent
    return [request.handoff] if parent is UNSET else [request.handoff, parent]


def _named_or_granted(engine: Engine, request: Claim | Recover, caller: Caller) -> list[str]:
    """What a claim names, and what one with the same nonce was granted."""
    wanted = [] if request.handoff is UNSET else [request.handoff]
    held = None if request.nonce is UNSET else engine.ledger.nonce(request.worker, request.nonce, caller.token)
    return wanted if held is None or held[0] in wanted else [held[0], *wanted]


def _named_with_ancestors(engine: Engine, request: Checkpoint | Spend | Redrive, _: Caller) -> list[str]:
    """What an amount counts against: every ancestor's caps too."""
    facts = engine.ledger.get(request.handoff)
    return [request.handoff] if facts is None else [request.handoff, *facts.ancestors]


_WANTED: dict[type[Any], Callable[[Engine, Any, Caller], list[str]]] = {
    PreparedDispatch: _named_with_parent,
    Claim: _named_or_granted,
    Recover: _named_or_granted,
    ApprovalWait: _asked_about,
    ApprovalDecide: _asked_about,
    Checkpoint: _named_with_ancestors,
    Spend: _named_with_ancestors,
    Redrive: _named_with_ancestors,
}
"""Which handoffs a request needs in memory, where that isn't just the one that it names."""


def _overloaded() -> Overloaded:
    return Overloaded("More is waiting for the disk than may be: send this again a little later.", after_ms=100)


_OPERATIONS: dict[type[Request | PreparedDispatch], _Operation] = {
    Hello: hello,
    Ping: ping,
    Goodbye: goodbye,
    Claim: claim,
    Recover: recover,
    Heartbeat: heartbeat,
    Checkpoint: checkpoint,
    Fail: fail,
    Release: release,
    Cancel: cancel,
    GetStatus: status,
    LastCheckpoint: last_checkpoint,
    Checkpoints: checkpoints,
    History: history,
    GetResult: result,
    Ack: ack,
    Forget: forget,
    ListHandoffs: list_handoffs,
    Drain: drain,
    Suspend: suspend,
    Resume: resume,
    BudgetAdd: budget_add,
    Spend: spend,
    Activity: activity,
    EffectBegin: effect_begin,
    EffectDone: effect_done,
    Effects: effects,
    ApprovalWait: approval_wait,
    ApprovalDecide: approval_decide,
    Approvals: approvals,
    Export: export,
    PreparedDispatch: dispatch,
}
"""What needs nothing but the request; `watch`, `unwatch`, `stats` and `health` are the server's."""

_PREPARED_OPERATIONS: dict[type[Request | PreparedDispatch], _PreparedOperation] = {
    Complete: complete,  # What the output schema says of the result: why it doesn't fit, or None.
    Redrive: redrive,  # The state of the checkpoint that a cap refused, or None: there is none.
    CheckCapability: check_capability,  # Whether the handoff's intent grants it.
    ApprovalRequest: approval_request,  # The details' canonical form, what is wrong with them, or None: they are short.
    Import: import_,  # The bundle, which has come in whole.
}
"""What needs something beside the request that is read from the store, or that takes long to find out."""
