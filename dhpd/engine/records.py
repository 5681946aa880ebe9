"""The journal's records: what has happened to a handoff, one struct per type.

Owns their members and their form in the store (JSON, tagged by `type`). A record says what is so afterwards (`fence`,
sums), so that applying it needs no rules. Payloads lie beside the record, never in it.
"""

import msgspec
from msgspec import Struct

from dhp_protocol.limits import DEFAULT_KEEP_CHECKPOINTS
from dhp_protocol.messages import WorkError

from .budget import Budget
from .facts import Status


class Record(Struct, tag_field="type", frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One thing that happened: the `n`-th to its handoff, at the wall-clock time `at_ms`; `fence` is the one after it."""

    n: int
    at_ms: int
    fence: int


class Dispatched(Record, tag="dispatched", frozen=True):
    """Payload: the intent's canonical bytes. `ancestors`: the parent is the last one."""

    kind: str
    priority: int
    budget: Budget
    bytes: int
    has_schema: bool = False
    not_before_ms: int = 0
    ancestors: tuple[str, ...] = ()
    labels: dict[str, str] | None = None
    keep_checkpoints: int = DEFAULT_KEEP_CHECKPOINTS
    capable: bool = False
    token: str | None = None


class Claimed(Record, tag="claimed", frozen=True):
    worker: str
    ttl_ms: int
    attempt: int
    was: Status
    session: str = ""
    nonce: str | None = None
    detached: bool = False
    token: str | None = None


class Checkpointed(Record, tag="checkpointed", frozen=True):
    """Payload: the state."""

    seq: int
    sha256: str
    bytes: int
    steps: int
    usd_nano: int = 0


class Spent(Record, tag="spent", frozen=True):
    """`by`: the descendant that spent it; None: the handoff itself."""

    steps: int
    usd_nano: int
    by: str | None = None
    nonce: str | None = None


class Orphaned(Record, tag="orphaned", frozen=True):
    """`why` is `expired` (a failure) or `stalled` (none)."""

    worker: str
    why: str
    failures: int
    stalls: int = 0


class Released(Record, tag="released", frozen=True):
    worker: str
    reason: str | None = None
    not_before_ms: int = 0


class Failed(Record, tag="failed", frozen=True):
    worker: str
    error: WorkError
    retry: bool
    failures: int
    not_before_ms: int = 0


class Completed(Record, tag="completed", frozen=True):
    """Payload: the result."""

    worker: str
    sha256: str
    bytes: int


class ResultRefused(Record, tag="result_refused", frozen=True):
    """Payload: the result."""

    worker: str
    path: str
    rule: str
    left: int
    sha256: str
    bytes: int


class Cancelled(Record, tag="cancelled", frozen=True):
    reason: str | None = None


class Suspended(Record, tag="suspended", frozen=True):
    worker: str | None = None
    reason: str | None = None
    wake_at_ms: int = 0
    approval: str | None = None


class Resumed(Record, tag="resumed", frozen=True):
    """`why` is `resume`, `wake` or `approval`."""

    why: str


class Dead(Record, tag="dead", frozen=True):
    """Payload: the state of the checkpoint that a cap refused, if it was one. `since_ms`: when it was due, if that was earlier."""

    reason: str
    cap: str | None = None
    whose: str | None = None
    kept_steps: int = 0
    kept_usd_nano: int = 0
    kept_seq: int = 0
    kept_sha256: str | None = None
    kept_bytes: int = 0
    since_ms: int = 0
    kept_nonce: str | None = None


class Redriven(Record, tag="redriven", frozen=True):
    """With what a cap had refused: its amounts, and its checkpoint (`seq` 0: none). Payload: that checkpoint's state."""

    dead_ms: int
    nonce: str | None = None
    steps: int = 0
    usd_nano: int = 0
    seq: int = 0
    sha256: str | None = None
    bytes: int = 0


class BudgetAdded(Record, tag="budget_added", frozen=True):
    """`budget`: the caps in force from now on."""

    budget: Budget
    nonce: str | None = None


class EffectBegun(Record, tag="effect_begun", frozen=True):
    step: str
    approval: str | None = None


class EffectDoneRecord(Record, tag="effect_done", frozen=True):
    """Payload: the effect's result."""

    step: str
    sha256: str
    bytes: int


class ApprovalRequested(Record, tag="approval_requested", frozen=True):
    """Payload: the details' canonical bytes."""

    approval: str
    action: str
    details_sha256: str
    expires_at_ms: int
    session: str = ""
    token: str | None = None


class ApprovalDecided(Record, tag="approval_decided", frozen=True):
    approval: str
    decision: str
    by: str | None = None
    note: str | None = None
    session: str = ""
    token: str | None = None


class CapabilityChecked(Record, tag="capability_checked", frozen=True):
    domain: str
    resource: str
    granted: bool


class Acked(Record, tag="acked", frozen=True):
    pass


class Exported(Record, tag="exported", frozen=True):
    """A bundle was made of all records before this one. Stays here: it is no part of any bundle."""


class Imported(Record, tag="imported", frozen=True):
    """Records from elsewhere came before this one, which stays here. With the sums of those that the bundle held no more."""

    steps: int = 0
    usd_nano: int = 0


class Forgotten(Record, tag="forgotten", frozen=True):
    """The last one: the handoff and all its records are gone. The next of the same id, if there is one, begins anew."""


AnyRecord = (
    Dispatched
    | Claimed
    | Checkpointed
    | Spent
    | Orphaned
    | Released
    | Failed
    | Completed
    | ResultRefused
    | Cancelled
    | Suspended
    | Resumed
    | Dead
    | Redriven
    | BudgetAdded
    | EffectBegun
    | EffectDoneRecord
    | ApprovalRequested
    | ApprovalDecided
    | CapabilityChecked
    | Acked
    | Exported
    | Imported
    | Forgotten
)


def stays(record: AnyRecord) -> bool:
    """Whether the record is of use here only, and no part of a bundle.

    A descendant's spending is a sum that the bundle tells as a whole: there may be far more of it than of anything else.
    """
    return isinstance(record, Exported | Imported) or (isinstance(record, Spent) and record.by is not None)


class Change(Struct, frozen=True, gc=False):
    """A record that a rule asks for, with its payload."""

    record: AnyRecord
    payload: bytes | None = None


class Entry(Struct, frozen=True, gc=False):
    """A record in its place in the journal.

    `prev` is the position of the same handoff's record before this one, `anchor` that of its last record before this
    one that isn't a checkpoint (0: none).
    """

    position: int
    handoff: str
    prev: int
    anchor: int
    record: AnyRecord
    payload: bytes | None


encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(AnyRecord).decode
