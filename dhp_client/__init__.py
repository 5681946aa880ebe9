"""The client of the Durable Handoff Protocol: work that outlives whoever is doing it.

The names that matter: `connect`, and `dhp_client.sync.connect`, the same without `await`, give a `Client`; its `dispatch`
asks for work, its `claim` takes work as a `Task`; `LeaseLost` says that somebody else has that work by now;
`exit_on_sigterm` has a deploy give it back. All other exceptions are importable from here too: those that the daemon
answers are `DHPError`s, those of the client itself `ClientError`s.

Only the exceptions come with the import itself; each other name brings what it needs when it is first used (`_LATER`), so a
program that hands on work, or only asks, doesn't load what a worker needs.
"""

import importlib
from typing import TYPE_CHECKING, Any

from dhp_protocol.errors import (
    AlreadyClaimed,
    AlreadyDecided,
    ApprovalExpired,
    BadFrame,
    BadJson,
    BudgetExceeded,
    CheckpointConflict,
    DHPError,
    Draining,
    EffectConflict,
    Forbidden,
    FrameTooLarge,
    IdentityMismatch,
    Internal,
    InvalidRequest,
    LeaseLost,
    NotClaimable,
    NotFound,
    NotPrimary,
    OutOfOrder,
    Overloaded,
    ResultInvalid,
    SchemaInvalid,
    StoreUnavailable,
    TooLarge,
    Unauthenticated,
    UnknownOp,
    WrongState,
)

from . import exiting  # noqa: F401 -- First, so that what a program registers for its end runs before leases are released.
from .exceptions import (
    ApprovalDenied,
    BadAddress,
    BadReply,
    CapabilityDenied,
    ClientClosed,
    ClientError,
    ConnectionLost,
    DaemonNotStarted,
    EffectInDoubt,
    InDoubt,
    IntegrityError,
    NoJournal,
    NotAnApprover,
    NotConnected,
    NothingToClaim,
    NotSpooled,
    Suspended,
    TaskEnded,
    TokenUnreadable,
    Untrusted,
    WrongLoop,
)

if TYPE_CHECKING:
    from . import sync
    from .asking import Approved
    from .budgets import Budget
    from .client import Client
    from .connecting import connect
    from .journal import KEEP_ALL, Journal
    from .keepable import Checkpointed, Spent
    from .leaving import exit_on_sigterm
    from .results import Approval, ApprovalPage, CheckpointPage, Result, StateAt
    from .spending import Headroom
    from .spool import Spooled
    from .task import Task
    from .watching import Watch, WatchEvent

__all__ = [
    "KEEP_ALL",
    "AlreadyClaimed",
    "AlreadyDecided",
    "Approval",
    "ApprovalDenied",
    "ApprovalExpired",
    "ApprovalPage",
    "Approved",
    "BadAddress",
    "BadFrame",
    "BadJson",
    "BadReply",
    "Budget",
    "BudgetExceeded",
    "CapabilityDenied",
    "CheckpointConflict",
    "CheckpointPage",
    "Checkpointed",
    "Client",
    "ClientClosed",
    "ClientError",
    "ConnectionLost",
    "DHPError",
    "DaemonNotStarted",
    "Draining",
    "EffectConflict",
    "EffectInDoubt",
    "Forbidden",
    "FrameTooLarge",
    "Headroom",
    "IdentityMismatch",
    "InDoubt",
    "IntegrityError",
    "Internal",
    "InvalidRequest",
    "Journal",
    "LeaseLost",
    "NoJournal",
    "NotAnApprover",
    "NotClaimable",
    "NotConnected",
    "NotFound",
    "NotPrimary",
    "NotSpooled",
    "NothingToClaim",
    "OutOfOrder",
    "Overloaded",
    "Result",
    "ResultInvalid",
    "SchemaInvalid",
    "Spent",
    "Spooled",
    "StateAt",
    "StoreUnavailable",
    "Suspended",
    "Task",
    "TaskEnded",
    "TokenUnreadable",
    "TooLarge",
    "Unauthenticated",
    "UnknownOp",
    "Untrusted",
    "Watch",
    "WatchEvent",
    "WrongLoop",
    "WrongState",
    "connect",
    "exit_on_sigterm",
    "sync",
]

_LATER = {
    "Approval": "results",
    "ApprovalPage": "results",
    "Approved": "asking",
    "Budget": "budgets",
    "CheckpointPage": "results",
    "Checkpointed": "keepable",
    "Client": "client",
    "Headroom": "spending",
    "Journal": "journal",
    "KEEP_ALL": "journal",
    "Result": "results",
    "Spent": "keepable",
    "Spooled": "spool",
    "StateAt": "results",
    "Task": "task",
    "Watch": "watching",
    "WatchEvent": "watching",
    "connect": "connecting",
    "exit_on_sigterm": "leaving",
    "sync": "",
}
"""Public names that are imported when they are first asked for, and the module of each ("": it is one itself)."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_LATER[name] or name}", __name__)
    found = globals()[name] = getattr(module, name) if _LATER[name] else module
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
