"""What clients say: one struct per operation, one tagged union, one decoder.

Owns each operation's members, their types and bounds. Does not own what they mean (the daemon's engine). Payload
members (`inputs`, `state`, `result`, …) stay raw JSON text, byte for byte. What isn't here is refused by name, never
accepted and ignored.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from . import limits
from .intent import HANDOFF_PATTERN, ID_PREFIX_PATTERN, KIND_PATTERN

RequestId = Annotated[str, Meta(max_length=limits.MAX_ID_BYTES)] | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
HandoffId = Annotated[str, Meta(pattern=HANDOFF_PATTERN)]
IdPrefix = Annotated[str, Meta(pattern=ID_PREFIX_PATTERN)]
Kind = Annotated[str, Meta(pattern=KIND_PATTERN)]
Name = Annotated[str, Meta(min_length=1, max_length=limits.MAX_NAME_CHARS)]
Reason = Annotated[str, Meta(max_length=limits.MAX_REASON_CHARS)]
Count = Annotated[int, Meta(ge=0, le=limits.MAX_SAFE_INTEGER)]
Fence = Count
DelayMs = Annotated[int, Meta(ge=0, le=limits.MAX_DELAY_MS)]
LabelText = Annotated[str, Meta(max_length=limits.MAX_LABEL_CHARS)]
LabelName = Annotated[str, Meta(min_length=1, max_length=limits.MAX_LABEL_CHARS)]
Sha256 = Annotated[str, Meta(pattern=HANDOFF_PATTERN)]
Steps = Annotated[int, Meta(ge=0, le=limits.MAX_STEPS)]
Digest = Annotated[str, Meta(min_length=1, max_length=limits.MAX_DIGEST_CHARS)]
Step = Annotated[str, Meta(min_length=1, max_length=limits.MAX_STEP_CHARS)]
ApprovalId = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}-[0-9a-f]{16}\Z")]
EXPORT_PLACE_PATTERN = r"^(?:[0-9]{1,16}-){4}[0-9a-f]{64}\Z"
Resource = Annotated[str, Meta(min_length=1, max_length=limits.MAX_RESOURCE_CHARS)]
Status = Literal["pending", "running", "orphaned", "suspended", "completed", "cancelled", "dead"]
FINAL: tuple[Status, ...] = ("completed", "cancelled", "dead")
"""What a handoff never leaves by itself."""


class Request(Struct, tag_field="op", frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every request may carry: `id` is echoed in the reply; `traceparent` (W3C) is passed on, or ignored."""

    id: RequestId | UnsetType = UNSET
    traceparent: Raw | UnsetType = UNSET


class Hello(Request, tag="hello", frozen=True):
    """Names the session that this connection belongs to, and proves by a token what it may do."""

    client: Annotated[str, Meta(max_length=limits.MAX_NAME_CHARS)] | UnsetType = UNSET
    session: Name | UnsetType = UNSET
    token: Annotated[str, Meta(min_length=1, max_length=limits.MAX_TOKEN_CHARS)] | UnsetType = UNSET

    def __repr__(self) -> str:
        """Without the token, which is a secret, and the session's name, which is as good as one."""
        return f"Hello(client={self.client!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("client", self.client)]


class Ping(Request, tag="ping", frozen=True):
    """Asks whether the daemon answers."""


class Goodbye(Request, tag="goodbye", frozen=True):
    """Ends the session and releases its leases."""


class Dispatch(Request, tag="dispatch", frozen=True):
    """Asks for a piece of work; the same intent twice is one handoff."""

    kind: Kind
    inputs: Raw
    output_schema: Raw | UnsetType = UNSET
    budget: Raw | UnsetType = UNSET
    capabilities: Raw | UnsetType = UNSET
    key: Annotated[str, Meta(max_length=limits.MAX_KEY_CHARS)] = ""
    handoff: HandoffId | UnsetType = UNSET
    priority: Annotated[int, Meta(ge=0, le=limits.MAX_PRIORITY)] = limits.DEFAULT_PRIORITY
    delay_ms: DelayMs = 0
    parent: HandoffId | UnsetType = UNSET
    labels: Annotated[dict[LabelName, LabelText], Meta(max_length=limits.MAX_LABELS)] | UnsetType = UNSET
    keep_checkpoints: Annotated[int, Meta(ge=1, le=limits.MAX_KEEP_CHECKPOINTS)] = limits.DEFAULT_KEEP_CHECKPOINTS


def intent_bytes(request: Dispatch) -> int:
    """How long the intent's four JSON members are as sent, which is about what naming it costs."""
    members = (request.inputs, request.output_schema, request.budget, request.capabilities)
    return sum(len(bytes(member)) for member in members if member is not UNSET)


class Claim(Request, tag="claim", frozen=True):
    """Takes a handoff under a lease: the one named, or the first of the given kinds."""

    worker: Name
    handoff: HandoffId | UnsetType = UNSET
    kinds: Annotated[list[Kind], Meta(min_length=1, max_length=limits.MAX_KINDS)] | UnsetType = UNSET
    wait_ms: int = 0
    ttl_ms: int | UnsetType = UNSET
    nonce: Name | UnsetType = UNSET
    detached: bool = False


class Recover(Request, tag="recover", frozen=True):
    """Takes the named handoff, but only if it is orphaned."""

    worker: Name
    handoff: HandoffId
    wait_ms: int = 0
    ttl_ms: int | UnsetType = UNSET
    nonce: Name | UnsetType = UNSET
    detached: bool = False


class LeaseRef(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One held lease."""

    handoff: HandoffId
    fence: Fence


class Heartbeat(Request, tag="heartbeat", frozen=True):
    """Renews leases."""

    leases: Annotated[list[LeaseRef], Meta(max_length=limits.MAX_LEASES)]


class Checkpoint(Request, tag="checkpoint", frozen=True):
    """Stores the state from which a standby would go on."""

    handoff: HandoffId
    fence: Fence
    state: Raw
    seq: Annotated[int, Meta(ge=1, le=limits.MAX_SAFE_INTEGER)] | UnsetType = UNSET
    sha256: Sha256 | UnsetType = UNSET
    steps: Steps = 1
    usd: Raw | UnsetType = UNSET
    activity: Digest | UnsetType = UNSET


class Complete(Request, tag="complete", frozen=True):
    """Ends the work with its result."""

    handoff: HandoffId
    fence: Fence
    result: Raw


class WorkError(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Why the work failed."""

    type: Name
    message: Annotated[str, Meta(max_length=limits.MAX_ERROR_CHARS)] = ""


class Fail(Request, tag="fail", frozen=True):
    """Ends the attempt: retried unless the failures are used up or `retry` is false."""

    handoff: HandoffId
    fence: Fence
    error: WorkError
    retry: bool = True
    delay_ms: DelayMs | UnsetType = UNSET


class Release(Request, tag="release", frozen=True):
    """Hands the work back; costs no attempt."""

    handoff: HandoffId
    fence: Fence
    reason: Reason | UnsetType = UNSET
    delay_ms: DelayMs = 0


class Cancel(Request, tag="cancel", frozen=True):
    """Ends the work from outside; a final one stays as it is."""

    handoff: HandoffId
    reason: Reason | UnsetType = UNSET
    children: bool = False


class Suspend(Request, tag="suspend", frozen=True):
    """Puts the work aside: by its worker with the fence, or from outside without. It wakes by a time, or an approval."""

    handoff: HandoffId
    fence: Fence | UnsetType = UNSET
    wake_ms: DelayMs | UnsetType = UNSET
    approval: ApprovalId | UnsetType = UNSET
    reason: Reason | UnsetType = UNSET


class Resume(Request, tag="resume", frozen=True):
    """Takes suspended work up again."""

    handoff: HandoffId
    force: bool = False


class Redrive(Request, tag="redrive", frozen=True):
    """Brings dead work back, with more of what is capped if it needs that."""

    handoff: HandoffId
    budget_add: Raw | UnsetType = UNSET
    nonce: Name | UnsetType = UNSET


class BudgetAdd(Request, tag="budget_add", frozen=True):
    """Gives more of what is capped."""

    handoff: HandoffId
    add: Raw
    nonce: Name | UnsetType = UNSET


class Spend(Request, tag="spend", frozen=True):
    """Says what was used up beside checkpoints."""

    handoff: HandoffId
    fence: Fence
    usd: Raw | UnsetType = UNSET
    steps: Steps = 0
    nonce: Name | UnsetType = UNSET


class Activity(Request, tag="activity", frozen=True):
    """Says what the worker is doing, so that standing still and going round in circles are told apart from work."""

    handoff: HandoffId
    fence: Fence
    digest: Digest


class EffectBegin(Request, tag="effect_begin", frozen=True):
    """Asks whether an effect on the outside world may be carried out."""

    handoff: HandoffId
    fence: Fence
    step: Step
    approval: ApprovalId | UnsetType = UNSET


class EffectDone(Request, tag="effect_done", frozen=True):
    """Says that an effect was carried out, and what came of it."""

    handoff: HandoffId
    fence: Fence
    step: Step
    result: Raw


class Effects(Request, tag="effects", frozen=True):
    """Asks for a page of a handoff's effects, in the order in which they were begun; `after` is what `next` gave."""

    handoff: HandoffId
    after: Count = 0
    limit: int = 1_000


class ApprovalRequest(Request, tag="approval_request", frozen=True):
    """Asks a person for their word on exactly this action with these details."""

    handoff: HandoffId
    fence: Fence
    action: Annotated[str, Meta(min_length=1, max_length=limits.MAX_ACTION_CHARS)]
    details: Raw
    timeout_ms: Annotated[int, Meta(ge=1, le=limits.MAX_DELAY_MS)]


class ApprovalWait(Request, tag="approval_wait", frozen=True):
    """Asks for the decision, waiting for it up to `wait_ms`."""

    approval: ApprovalId
    wait_ms: int = 0


class ApprovalDecide(Request, tag="approval_decide", frozen=True):
    """A person's decision."""

    approval: ApprovalId
    decision: Literal["approve", "deny"]
    note: Annotated[str, Meta(max_length=limits.MAX_NOTE_CHARS)] | UnsetType = UNSET


class Approvals(Request, tag="approvals", frozen=True):
    """Asks for a page of approvals of live handoffs, or of the handoff named, ended or not."""

    status: Literal["open", "approved", "denied", "expired", "cancelled"] | UnsetType = UNSET
    handoff: HandoffId | UnsetType = UNSET
    after: Count = 0
    limit: int = 100


class CheckCapability(Request, tag="check_capability", frozen=True):
    """Asks whether the intent grants a resource."""

    handoff: HandoffId
    fence: Fence
    domain: Annotated[str, Meta(min_length=1, max_length=limits.MAX_LABEL_CHARS)]
    resource: Resource


class GetStatus(Request, tag="status", frozen=True):
    """Asks how one handoff stands."""

    handoff: HandoffId


class LastCheckpoint(Request, tag="last_checkpoint", frozen=True):
    """Asks for the newest checkpoint."""

    handoff: HandoffId


class Checkpoints(Request, tag="checkpoints", frozen=True):
    """Asks for a page of checkpoints, oldest first; `after` is a seq."""

    handoff: HandoffId
    after: Count = 0
    limit: int = 100


class History(Request, tag="history", frozen=True):
    """Asks for a page of records, oldest first; `after` is an `n`."""

    handoff: HandoffId
    after: Count = 0
    limit: int = 100


class GetResult(Request, tag="result", frozen=True):
    """Asks for the result, waiting for it up to `wait_ms`."""

    handoff: HandoffId
    wait_ms: int = 0


class Ack(Request, tag="ack", frozen=True):
    """Says that the handoff's end has been taken note of."""

    handoff: HandoffId


class Forget(Request, tag="forget", frozen=True):
    """Removes what has ended, and all it holds, now."""

    handoff: HandoffId


class ListHandoffs(Request, tag="list", frozen=True):
    """Asks for a page of statuses in the order of dispatch; `after` is what `next` gave.

    `prefix` is what the ids begin with; `newest_first` turns the order round.
    """

    status: Status | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    worker: Name | UnsetType = UNSET
    prefix: IdPrefix | UnsetType = UNSET
    newest_first: bool = False
    label: Annotated[str, Meta(max_length=2 * limits.MAX_LABEL_CHARS + 1, pattern="=")] | UnsetType = UNSET
    after: Count = 0
    limit: int = 100


class Export(Request, tag="export", frozen=True):
    """Asks for a page of a handoff's bundle; without `after` work that isn't final is put aside first."""

    handoff: HandoffId
    after: Annotated[str, Meta(pattern=EXPORT_PLACE_PATTERN)] | UnsetType = UNSET


class Import(Request, tag="import", frozen=True):
    """Brings the next lines of a bundle; at its trailer, it is applied."""

    records: Annotated[list[Raw], Meta(min_length=1, max_length=limits.MAX_BUNDLE_LINES)]


class Watch(Request, tag="watch", frozen=True):
    """Asks for each record as an event from now on; with `after` (a position) replays from there first."""

    handoff: HandoffId | UnsetType = UNSET
    kinds: Annotated[list[Kind], Meta(min_length=1, max_length=limits.MAX_KINDS)] | UnsetType = UNSET
    after: Count | UnsetType = UNSET


class Unwatch(Request, tag="unwatch", frozen=True):
    """Ends this connection's watch."""


class Stats(Request, tag="stats", frozen=True):
    """Asks for counts and rates."""


class Health(Request, tag="health", frozen=True):
    """Asks whether the daemon and its store are well."""


class Drain(Request, tag="drain", frozen=True):
    """Stops new claims and dispatches; what is held goes on."""


AnyRequest = (
    Hello
    | Ping
    | Goodbye
    | Dispatch
    | Claim
    | Recover
    | Heartbeat
    | Checkpoint
    | Complete
    | Fail
    | Release
    | Cancel
    | Suspend
    | Resume
    | Redrive
    | BudgetAdd
    | Spend
    | Activity
    | EffectBegin
    | EffectDone
    | Effects
    | ApprovalRequest
    | ApprovalWait
    | ApprovalDecide
    | Approvals
    | CheckCapability
    | GetStatus
    | LastCheckpoint
    | Checkpoints
    | History
    | GetResult
    | Ack
    | Forget
    | ListHandoffs
    | Export
    | Import
    | Watch
    | Unwatch
    | Stats
    | Health
    | Drain
)
