"""The operations' table: from a request to what carries it out.

Owns what is refused before anything is looked at. `Engine` is the engine as its users see it: requests and time go in,
`journal.ready` and batches come out. Pure.
"""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from dhp_protocol.errors import DHPError, Overloaded, ResultInvalid, StoreUnavailable
from dhp_protocol.messages import (
    Ack,
    Activity,
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
    Fail,
    GetResult,
    GetStatus,
    Goodbye,
    Heartbeat,
    Hello,
    History,
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
from .facts import Handoff
from .moments import Now
from .reading_operations import checkpoints, history, last_checkpoint, list_handoffs, result, status
from .session_operations import begin_drain, drain, goodbye, heartbeat, hello, ping
from .sessions import disconnect_grace_ms
from .settling import Settling
from .waiting import Address
from .work_operations import ack, cancel, checkpoint, complete, dispatch

_WITHOUT_STORE = (Hello, Ping, Heartbeat)
_SPENDS = (Checkpoint, Spend, Redrive)
"""Their amounts count against every ancestor's caps too."""
_ADDS_BYTES = (Dispatch, Claim, Recover, Checkpoint, Complete)


class Engine(Settling):
    """The engine, whole. After each call, `journal.ready` holds what may leave at once."""

    def execute(self, request: Request, to: Address, now: Now) -> None:
        """Carries out any request but `dispatch` and `complete`, whose handoffs and parents are in memory (`missing`)."""
        self._guarded(_OPERATIONS[type(request)], request, to, now)

    def dispatch(self, prepared: PreparedDispatch, to: Address, now: Now) -> None:
        """Carries out a dispatch whose intent has been named."""
        self._guarded(dispatch, prepared, to, now)

    def complete(self, request: Complete, verdict: ResultInvalid | None, to: Address, now: Now) -> None:
        """Carries out a complete; `verdict` is what the output schema says of the result (None: it fits)."""
        self._guarded(lambda core, r, address, at: complete(core, r, verdict, address, at), request, to, now)

    def redrive(self, request: Redrive, kept_state: bytes | None, to: Address, now: Now) -> None:
        """Carries out a redrive; `kept_state` is the state of the checkpoint that a cap refused, if there was one."""
        self._guarded(lambda core, r, address, at: redrive(core, r, kept_state, address, at), request, to, now)

    def check_capability(self, request: CheckCapability, granted: bool, to: Address, now: Now) -> None:
        """Carries out a capability check; `granted` is what the handoff's intent says."""
        self._guarded(lambda core, r, address, at: check_capability(core, r, granted, address, at), request, to, now)

    def missing(self, request: Request | PreparedDispatch) -> list[str]:
        """Which handoffs have to be read from the store before `request`, as far as it has them."""
        if isinstance(request, PreparedDispatch):
            wanted = [request.handoff]
            if request.request.parent is not UNSET:
                wanted.append(request.request.parent)
        elif isinstance(request, (Claim, Recover)) and request.nonce is not UNSET:
            held = self.ledger.nonce(request.worker, request.nonce)
            wanted = [held[0]] if held is not None else []
            if request.handoff is not UNSET and request.handoff not in wanted:
                wanted.append(request.handoff)
        else:
            handoff = getattr(request, "handoff", UNSET)
            if isinstance(request, (ApprovalWait, ApprovalDecide)):
                handoff = handoff_of(request.approval)
            wanted = [] if handoff is UNSET else [handoff]
            if isinstance(request, _SPENDS) and (facts := self.ledger.get(request.handoff)) is not None:
                wanted.extend(facts.ancestors)
        return [handoff for handoff in wanted if self.ledger.get(handoff) is None]

    def admit(self, facts: Handoff, now: Now) -> None:
        """Takes up facts that were read for `missing`."""
        if self.ledger.get(facts.id) is None:
            self.ledger.admit(facts, now.wall_ms)

    def open(self, connection: int, *, local: bool = True) -> None:
        """A connection has come; `local`: from this machine."""
        self.sessions.open(connection, local=local)

    def close(self, connection: int, *, local: bool, now: Now) -> None:
        """A connection's input has ended: what waits on it ends empty, and its session may be gone."""
        for waiter in self.waiting.of_connection(connection):
            self.end_wait(waiter)
        closed = self.sessions.close(connection)
        if closed is not None and closed[1]:
            for lease in closed[0].leases.values():
                self.leases.shorten(lease, now.lease_ms, disconnect_grace_ms(lease.ttl_ms, local=local))

    def drain(self) -> None:
        """No new claims and dispatches from now on."""
        begin_drain(self)

    def _guarded(
        self, handler: Callable[[Settling, Any, Address, Now], None], request: Any, to: Address, now: Now
    ) -> None:
        kind = type(request.request) if isinstance(request, PreparedDispatch) else type(request)
        self.looked_at = None
        try:
            if not self.available and kind not in _WITHOUT_STORE:
                raise StoreUnavailable("The store can't be reached: try again.", after_ms=200)
            if kind in _ADDS_BYTES and self.journal.queued_bytes > self.settings.max_queued_bytes:
                raise _overloaded()
            handler(self, request, to, now)
        except DHPError as error:
            self.reply(to, error, self.looked_at)
        if self.ledger.freed:
            self.serve(now)
        self.seal_if_full(now)


def _overloaded() -> Overloaded:
    return Overloaded("More is waiting for the disk than may be: send this again a little later.", after_ms=100)


_OPERATIONS: dict[type[Request], Callable[[Settling, Any, Address, Now], None]] = {
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
    ApprovalRequest: approval_request,
    ApprovalWait: approval_wait,
    ApprovalDecide: approval_decide,
    Approvals: approvals,
}
"""What the engine carries out; `dispatch` and `complete` come in by methods of their own, `watch`, `stats` and `health` are the server's."""
