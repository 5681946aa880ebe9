"""What is known about one handoff: the sum of its records, without payloads.

Owns the shape of a handoff in memory and in the store's table of facts. Values are frozen: a change is a new object,
so the object of before is the undo. Does not own how records add up (`apply`) or who may cause them (the rules).
"""

from typing import Final, Literal

from msgspec import Struct

from dhp_protocol.limits import DEFAULT_KEEP_CHECKPOINTS

from .budget import Budget

Status = Literal["pending", "running", "orphaned", "suspended", "completed", "cancelled", "dead"]

PENDING: Final = "pending"
RUNNING: Final = "running"
ORPHANED: Final = "orphaned"
SUSPENDED: Final = "suspended"
COMPLETED: Final = "completed"
CANCELLED: Final = "cancelled"
DEAD: Final = "dead"

STATUSES: tuple[Status, ...] = (PENDING, RUNNING, ORPHANED, SUSPENDED, COMPLETED, CANCELLED, DEAD)
FINAL: frozenset[Status] = frozenset((COMPLETED, CANCELLED, DEAD))


class Hold(Struct, frozen=True, gc=False, array_like=True):
    """The newest claim: whose it is or was, and why it ended (None: it hasn't).

    `ended` is one of the `why` values of `lease_lost`, `own_end` whether its worker ended it by a `suspend`. A repeated claim
    with the same nonce is answered from here. `token` is the name of the token that claimed (None: no token was in use).
    """

    worker: str
    session: str
    fence: int
    ttl_ms: int
    claimed_at_ms: int
    was: Status
    nonce: str | None
    detached: bool
    ended: str | None = None
    token: str | None = None
    own_end: bool = False


class CheckpointFacts(Struct, frozen=True, gc=False, array_like=True):
    """The newest checkpoint, and where in the journal its state lies."""

    seq: int
    sha256: str
    position: int
    at_ms: int


class EffectFacts(Struct, frozen=True, gc=False, array_like=True):
    """One effect: the fence that began it, and where its result lies (0: it isn't done)."""

    begun_fence: int
    done_position: int = 0
    sha256: str | None = None


class ApprovalFacts(Struct, frozen=True, gc=False, array_like=True):
    """One approval: what it is bound to, who asked first and who since (by session and by token), and what was decided.

    `fence` is the newest one under which it was asked for; `decided_session` and `decided_token` are the decider's.
    """

    id: str
    action: str
    details_sha256: str
    details_position: int
    expires_at_ms: int
    session: str
    token: str | None
    decision: str | None = None
    by: str | None = None
    note: str | None = None
    decided_at_ms: int = 0
    used_by: str | None = None
    further_askers: tuple[tuple[str, str | None], ...] = ()
    fence: int = 0
    decided_session: str = ""
    decided_token: str | None = None


class KeptWrite(Struct, frozen=True, gc=False, array_like=True):
    """What the write brought that a cap refused: amounts, and a checkpoint's state (`seq` 0: none) at `position`.

    `nonce` is a spend's.
    """

    steps: int
    usd_nano: int
    seq: int
    sha256: str | None
    position: int
    nonce: str | None = None


class Handoff(Struct, frozen=True, gc=False, array_like=True):
    """The facts of one handoff.

    `steps` and `usd_nano` are what counts against its caps: its own and all its descendants'. `failures`, `stalls` and
    `invalid_results` count since it was last redriven. `nonce_marks` are what is remembered of nonces, by operation
    (`former_nonces` only keeps a place in stored facts). `token` is the name of the token that dispatched it. `bundled` is how
    many of its records travel, checkpoints apart. `capable`: its intent grants anything. `open_until_ms`: when the first of its open approvals expires (0: none is open). `exported_n` is the `n` of its newest `exported` record. `number` is the position of its first record (its place in the order of dispatch, and where its intent lies);
    `position` that of its newest; `anchor` that of its newest record that isn't a checkpoint, so that history can be
    walked even where checkpoints were pruned; `n` counts its records. The last of its `ancestors` is its parent. Times are
    wall-clock milliseconds.
    """

    id: str
    kind: str
    status: Status
    priority: int
    number: int
    position: int
    anchor: int
    n: int
    fence: int
    budget: Budget
    has_schema: bool
    created_at_ms: int
    updated_at_ms: int
    attempt: int = 0
    failures: int = 0
    steps: int = 0
    not_before_ms: int = 0
    hold: Hold | None = None
    checkpoint: CheckpointFacts | None = None
    result_position: int = 0
    result_sha256: str | None = None
    reason: str | None = None
    ancestors: tuple[str, ...] = ()
    labels: dict[str, str] | None = None
    acked: bool = False
    usd_nano: int = 0
    stalls: int = 0
    invalid_results: int = 0
    first_claimed_at_ms: int = 0
    dead_ms: int = 0
    keep_checkpoints: int = DEFAULT_KEEP_CHECKPOINTS
    wake_at_ms: int = 0
    wake_approval: str | None = None
    kept: KeptWrite | None = None
    refused_position: int = 0
    effects: dict[str, EffectFacts] | None = None
    approvals: dict[str, ApprovalFacts] | None = None
    former_nonces: tuple[str, ...] = ()
    capable: bool = False
    died_at_ms: int = 0
    open_until_ms: int = 0
    acked_at_ms: int = 0
    exported_n: int = 0
    nonce_marks: dict[str, bytes] | None = None
    token: str | None = None
    bundled: int = 0

    @property
    def parent(self) -> str | None:
        """The handoff that it is a child of."""
        return self.ancestors[-1] if self.ancestors else None

    @property
    def seq(self) -> int:
        """The newest checkpoint's seq; 0 when there is none."""
        return self.checkpoint.seq if self.checkpoint is not None else 0

    @property
    def final(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self.status in FINAL

    @property
    def holder(self) -> str | None:
        """The worker that runs it now."""
        return self.hold.worker if self.hold is not None and self.status == RUNNING else None

    @property
    def asking(self) -> bool:
        """Whether a question that was asked under the present fence is open."""
        if not self.open_until_ms:
            return False
        return any(
            approval.decision is None and approval.fence == self.fence for approval in (self.approvals or {}).values()
        )
