"""The journal's records: what has happened to a handoff, one struct per type.

Owns their members and their form in the store (JSON, tagged by `type`). A record says what is so afterwards (`fence`,
sums), so that applying it needs no rules. Payloads lie beside the record, never in it.
"""

import msgspec
from msgspec import Struct

from dhp_protocol.messages import WorkError

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
    max_attempts: int
    bytes: int
    has_schema: bool = False
    not_before_ms: int = 0
    ancestors: tuple[str, ...] = ()
    labels: dict[str, str] | None = None


class Claimed(Record, tag="claimed", frozen=True):
    worker: str
    session: str
    ttl_ms: int
    attempt: int
    was: Status
    nonce: str | None = None
    detached: bool = False


class Checkpointed(Record, tag="checkpointed", frozen=True):
    """Payload: the state."""

    seq: int
    sha256: str
    bytes: int
    steps: int


class Orphaned(Record, tag="orphaned", frozen=True):
    worker: str
    why: str
    failures: int


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


class Cancelled(Record, tag="cancelled", frozen=True):
    reason: str | None = None


class Dead(Record, tag="dead", frozen=True):
    reason: str


class Acked(Record, tag="acked", frozen=True):
    pass


AnyRecord = Dispatched | Claimed | Checkpointed | Orphaned | Released | Failed | Completed | Cancelled | Dead | Acked


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
