"""Answers that need the journal: what to read, and what to make of it.

Owns the shapes. The engine decides what an answer shows and up to which position; the store reads it once that
position is on disk (`dhpd.store.reading`).
"""

from msgspec import UNSET, Struct, UnsetType

from .facts import COMPLETED, ApprovalFacts, CheckpointFacts, Status
from .writing import OlderCheckpoint


class ClaimLookup(Struct, frozen=True):
    """A grant: its intent and its newest checkpoint's state are to be read."""

    handoff: str
    fence: int
    attempt: int
    ttl_ms: int
    was: Status
    intent_position: int
    checkpoint: CheckpointFacts | None


class LastCheckpointLookup(Struct, frozen=True):
    checkpoint: CheckpointFacts


class ResultLookup(Struct, frozen=True):
    """A result, or, of what is dead, the last one that didn't fit."""

    result_position: int
    status: Status = COMPLETED


class CheckpointsLookup(Struct, frozen=True):
    """A page of checkpoints after the seq `after`; `head` is the handoff's newest record."""

    head: int
    newest: CheckpointFacts | None
    after: int
    limit: int


class HistoryLookup(Struct, frozen=True):
    """A page of records after the `n` `after`."""

    head: int
    newest_n: int
    after: int
    limit: int


class ListLookup(Struct, frozen=True):
    """A page of handoffs after the number `after`; `newest_first`, of those before it, backwards (0: from the end)."""

    position: int
    after: int
    limit: int
    status: Status | UnsetType
    kind: str | UnsetType
    worker: str | UnsetType
    label: str | UnsetType
    prefix: str | UnsetType = UNSET
    newest_first: bool = False


class EffectLookup(Struct, frozen=True):
    """A finished effect: its result is to be read."""

    idempotency_key: str
    done_position: int


class ApprovalItem(Struct, frozen=True):
    handoff: str
    approval: ApprovalFacts
    decision: str | None


class ApprovalsLookup(Struct, frozen=True):
    """A page of approvals, whose details are to be read."""

    items: list[ApprovalItem]
    next: int | None


class ExportLookup(Struct, frozen=True):
    """A page of the bundle of the records up to the `exported` one at `n`, after the `n` `after`.

    `lines` and `chain` are how far the bundle is; `head` is the handoff's newest record, `number` its first one, where its
    intent lies. Checkpoints up to `replaced_seq` aren't part of it. `seq`, `steps` and `usd_nano` are for the first page.
    """

    handoff: str
    number: int
    head: int
    n: int
    after: int
    lines: int
    chain: str
    replaced_seq: int
    seq: int
    steps: int
    usd_nano: int


def first_seq_shown(lookup: "Lookup") -> int | None:
    """From which of its handoff's checkpoints on the answer shows any (None: it shows none)."""
    match lookup:
        case ClaimLookup() | LastCheckpointLookup():
            return None if lookup.checkpoint is None else lookup.checkpoint.seq
        case CheckpointsLookup():
            return lookup.after + 1
        case OlderCheckpoint():
            return lookup.seq
        case ExportLookup():
            return lookup.replaced_seq + 1
    return None


Lookup = (
    ClaimLookup
    | LastCheckpointLookup
    | ResultLookup
    | CheckpointsLookup
    | HistoryLookup
    | ListLookup
    | EffectLookup
    | ApprovalsLookup
    | ExportLookup
    | OlderCheckpoint
)
