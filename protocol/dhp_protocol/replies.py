"""What the daemon says: one struct per reply, and the events.

Owns the members of replies and events. A reply on the wire is one of these with `id` and `ok` before its members
(`reply_body`), or an error (`error_reply_body`). A client ignores members that it doesn't know.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from .errors import DHPError, ErrorBody, error_body
from .limits import Limits
from .messages import RequestId


class Empty(Struct, frozen=True):
    """A reply without members of its own."""


class LeaseTerms(Struct, frozen=True, kw_only=True):
    """The lease clock's terms, in milliseconds."""

    ttl_ms: int
    heartbeat_ms: int
    min_ttl_ms: int
    max_ttl_ms: int
    disconnect_grace_ms: int


class HelloReply(Struct, frozen=True, kw_only=True):
    server: str
    protocol: str
    session: str
    roles: list[str]
    limits: Limits
    lease: LeaseTerms
    features: list[str]
    time: str
    worker: str | UnsetType = UNSET
    """The name in the client's certificate, the only one it may claim under; absent where none was asked for."""


class DispatchReply(Struct, frozen=True, kw_only=True):
    handoff: str
    created: bool
    status: str


class ClaimLease(Struct, frozen=True, kw_only=True):
    ttl_ms: int
    heartbeat_ms: int


class StoredCheckpoint(Struct, frozen=True, kw_only=True):
    """A checkpoint with its state, byte for byte as it was sent; `at` is RFC 3339."""

    seq: int
    state: Raw
    sha256: str
    at: str


class ClaimReply(Struct, frozen=True, kw_only=True):
    """A granted claim. `was` is the status before it: `pending` or `orphaned`."""

    handoff: str
    fence: int
    attempt: int
    lease: ClaimLease
    intent: Raw
    checkpoint: StoredCheckpoint | None
    was: str


class NothingToClaim(Struct, frozen=True, kw_only=True):
    """The wait ended without work."""

    handoff: None = None


class HeartbeatReply(Struct, frozen=True, kw_only=True):
    renewed: list[str]
    lost: list[str]


class CheckpointReply(Struct, frozen=True, kw_only=True):
    seq: int
    sha256: str
    duplicate: bool


class CompleteReply(Struct, frozen=True, kw_only=True):
    duplicate: bool


class FailReply(Struct, frozen=True, kw_only=True):
    """`status` after the failure: `pending` (to be tried again) or `dead`."""

    status: str
    duplicate: bool = False


class ReleaseReply(Struct, frozen=True, kw_only=True):
    duplicate: bool = False


class StatusAfter(Struct, frozen=True, kw_only=True):
    """How the handoff stands after `cancel`, `resume` or `redrive`."""

    status: str


class SuspendReply(Struct, frozen=True, kw_only=True):
    """`status` is `suspended`, or `pending` where the approval had been decided already."""

    status: str
    duplicate: bool = False


class BudgetReply(Struct, frozen=True, kw_only=True):
    """The caps in force."""

    budget: dict[str, int | float]


class SpendReply(Struct, frozen=True, kw_only=True):
    """What counts against the handoff's caps so far."""

    usd: float
    steps: int


class ActivityReply(Struct, frozen=True, kw_only=True):
    """How often in a row this was said before; 0 for something new."""

    repeats: int


class EffectReply(Struct, frozen=True, kw_only=True):
    """`state`: `new` (carry it out), `in_doubt` (an earlier fence began it: find out first), `done` (`result` is there)."""

    state: str
    idempotency_key: str
    result: Raw | UnsetType = UNSET


class EffectDoneReply(Struct, frozen=True, kw_only=True):
    duplicate: bool


class EffectView(Struct, frozen=True, kw_only=True):
    """`state` is `begun` or `done`; `fence` is the one that began it."""

    step: str
    state: str
    fence: int
    sha256: str | None


class EffectsReply(Struct, frozen=True, kw_only=True):
    effects: list[EffectView]
    next: int | None


class ApprovalRequestReply(Struct, frozen=True, kw_only=True):
    approval: str


class DecisionReply(Struct, frozen=True, kw_only=True):
    """`decision`: `approved`, `denied`, `expired`, `cancelled`, or null while it is open."""

    decision: str | None
    by: str | None = None
    note: str | None = None
    at: str | None = None


class ApprovalView(Struct, frozen=True, kw_only=True):
    """An approval as a person needs it to decide; `details` as canonical JSON."""

    approval: str
    handoff: str
    action: str
    details: Raw
    decision: str | None
    by: str | None
    note: str | None
    expires_at: str
    used_by: str | None


class ApprovalsReply(Struct, frozen=True, kw_only=True):
    approvals: list[ApprovalView]
    next: int | None


class CapabilityReply(Struct, frozen=True, kw_only=True):
    granted: bool


class KeptView(Struct, frozen=True, kw_only=True):
    """What a cap refused, and a `redrive` applies: amounts, and a checkpoint's `seq` (0: it was a `spend`)."""

    steps: int
    usd: float
    seq: int


class ActivityView(Struct, frozen=True, kw_only=True):
    """The activity that a holder said last: how often it was no news (`ActivityReply`), and how long ago that was."""

    repeats: int
    ago_ms: int


class StatusReply(Struct, frozen=True, kw_only=True):
    """How a handoff stands; `seq` is its last checkpoint's (0: none), `checkpoint_at` that one's, times are RFC 3339.

    `wake_at`: when suspended work comes back by itself; `kept`: what a cap refused; `activity`: what its holder said under
    this fence since the daemon's start (null: nothing); `keep_checkpoints`: so many of the newest are kept, None from a
    daemon that doesn't say.
    """

    handoff: str
    kind: str
    status: str
    holder: str | None
    fence: int
    attempt: int
    seq: int
    steps: int
    usd: float
    failures: int
    stalls: int
    budget: dict[str, int | float]
    reason: str | None
    parent: str | None
    labels: dict[str, str]
    priority: int
    created_at: str
    claimed_at: str | None
    updated_at: str
    lease_left_ms: int | None
    acked: bool
    position: int
    wake_at: str | None = None
    kept: KeptView | None = None
    keep_checkpoints: int | None = None
    checkpoint_at: str | None = None
    activity: ActivityView | None = None


class LastCheckpointReply(Struct, frozen=True, kw_only=True):
    checkpoint: StoredCheckpoint | None


class CheckpointsReply(Struct, frozen=True, kw_only=True):
    checkpoints: list[StoredCheckpoint]
    next: int | None


class HistoryReply(Struct, frozen=True, kw_only=True):
    """`records` as JSON objects: `n`, `position`, `type`, `at`, `fence`, and what the type adds."""

    records: list[dict[str, Any]]
    next: int | None


class ResultReply(Struct, frozen=True, kw_only=True):
    """`result` when `status` is `completed`; `refused` when it is `dead`: the last result that did not fit, if there was one."""

    status: str
    result: Raw | UnsetType = UNSET
    refused: Raw | UnsetType = UNSET


class ListReply(Struct, frozen=True, kw_only=True):
    handoffs: list[StatusReply]
    next: int | None
    position: int


class ExportReply(Struct, frozen=True, kw_only=True):
    """`records` are lines of the bundle, JSON objects."""

    records: list[Raw]
    next: str | None


class ImportReply(Struct, frozen=True, kw_only=True):
    """`created`: it wasn't there before; `taken`: how many records it has more now."""

    handoff: str
    created: bool
    taken: int


class WatchReply(Struct, frozen=True, kw_only=True):
    """Events follow for records after `position`."""

    position: int


class LimitsHit(Struct, kw_only=True):
    """How often each bound was met since the start. The daemon counts in it, so it isn't frozen."""

    connections_refused: int = 0
    connections_displaced: int = 0
    connections_idle: int = 0
    connections_vanished: int = 0
    connections_unread: int = 0
    frames_overloaded: int = 0
    frames_unfinished: int = 0
    waits_refused: int = 0
    lagged: int = 0


class StatsReply(Struct, frozen=True, kw_only=True):
    """`loop_late_ms`: how late the daemon's loop was, the 99th percentile of the last minute; `worst`: since the start.

    `time` is the daemon's (RFC 3339); `records_by_type` counts, since the start, what is on disk: from two answers come rates.
    """

    handoffs: dict[str, int]
    leases: int
    waiting_claims: int
    sessions: int
    connections: int
    position: int
    durable_position: int
    commits: int
    records: int
    uptime_ms: int
    loop_late_ms: float = 0.0
    loop_late_worst_ms: float = 0.0
    tasks: int = 0
    buffered_bytes: int = 0
    unsent_bytes: int = 0
    memory_bytes: int = 0
    memory_bound_bytes: int = 0
    log_bytes: int = 0
    limits_hit: LimitsHit = msgspec.field(default_factory=LimitsHit)
    disk: str = "ok"
    time: str = ""
    records_by_type: dict[str, int] = {}


class HealthReply(Struct, frozen=True, kw_only=True):
    """`status` is `ok`, `draining`, `disk_full` or `store_unavailable`; `durability` says what an answer survives.

    `disk` is `ok`, or `full`: then only what ends work is taken, and what looks.
    """

    status: str
    store: str
    disk: str = "ok"
    durability: str
    version: str
    uptime_ms: int
    clock_offset_ms: int


class DrainReply(Struct, frozen=True, kw_only=True):
    leases: int


class Event(Struct, tag_field="event", frozen=True, kw_only=True):
    """What the daemon says unasked."""


class LeaseLostEvent(Event, tag="lease_lost", frozen=True):
    """A lease of this session has ended; `fence` is the lost one, `status` the present one."""

    handoff: str
    fence: int
    why: str
    status: str


class CancelledEvent(Event, tag="cancelled", frozen=True):
    """Work held by this session was cancelled."""

    handoff: str
    fence: int
    reason: str | None


class DrainingEvent(Event, tag="draining", frozen=True):
    """The daemon takes no new claims; finish or hand back what is held."""

    after_ms: int = 0


class RecordEvent(Event, tag="record", frozen=True):
    """A record that the watch asked for."""

    handoff: str
    record: Raw


class LaggedEvent(Event, tag="lagged", frozen=True):
    """Something that would have been told is lost for this reader, which was behind.

    `lost` is `records` (of what the watch asked for, up to the position `after`, some are gone; it goes on after it) or `events`
    (of the session: what they told is found out by a heartbeat).
    """

    after: int
    lost: str = "records"


AnyEvent = LeaseLostEvent | CancelledEvent | DrainingEvent | RecordEvent | LaggedEvent

_encode = msgspec.json.Encoder().encode


def reply_body(request_id: RequestId | UnsetType, members: Struct) -> bytes:
    """The body of a reply that says yes."""
    head = b'{"ok":true' if request_id is UNSET else b'{"id":' + _encode(request_id) + b',"ok":true'
    rest = _encode(members)
    return head + b"}" if rest == b"{}" else head + b"," + rest[1:]


class _ErrorReply(Struct, frozen=True, kw_only=True):
    id: RequestId | UnsetType = UNSET
    ok: bool = False
    error: ErrorBody


def error_reply_body(request_id: RequestId | UnsetType, error: DHPError) -> bytes:
    """The body of a reply that says no."""
    return _encode(_ErrorReply(id=request_id, error=error_body(error)))


class ReplyHead(Struct, frozen=True, kw_only=True):
    """What tells a client which kind of body it has: an event has `event`, a reply has `ok`."""

    id: RequestId | UnsetType = UNSET
    ok: bool | UnsetType = UNSET
    error: ErrorBody | UnsetType = UNSET
    event: str | UnsetType = UNSET
