"""Records as a stranger tells them: only what could stand in a journal is taken for one.

Owns the bounds of every member of a record, and the form in which records travel: as in the journal, without what is of use
here only. Does not own whether a record may follow another one (`porting`). Pure.
"""

from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import Meta, defstruct
from msgspec.structs import FieldInfo, fields, replace

from dhp_protocol import limits
from dhp_protocol.messages import ApprovalId, Count, HandoffId, Kind, LabelName, LabelText, Name, Sha256
from dhp_protocol.money import MAX_USD, NANO

from .budget import CAPS, Budget
from .records import (
    Acked,
    AnyRecord,
    ApprovalDecided,
    ApprovalRequested,
    BudgetAdded,
    Cancelled,
    CapabilityChecked,
    Checkpointed,
    Claimed,
    Completed,
    Dead,
    Dispatched,
    EffectBegun,
    EffectDoneRecord,
    Failed,
    Orphaned,
    Record,
    Redriven,
    Released,
    ResultRefused,
    Resumed,
    Spent,
    Suspended,
    decode_record,
)

MAX_WALL_MS = 253_402_300_799_999
"""The last millisecond of the year 9999: later times can't be shown."""
MAX_POINTER_CHARS = 4_096

BUNDLED: tuple[type[Record], ...] = (
    Dispatched,
    Claimed,
    Checkpointed,
    Spent,
    Orphaned,
    Released,
    Failed,
    Completed,
    ResultRefused,
    Cancelled,
    Suspended,
    Resumed,
    Dead,
    Redriven,
    BudgetAdded,
    EffectBegun,
    EffectDoneRecord,
    ApprovalRequested,
    ApprovalDecided,
    CapabilityChecked,
    Acked,
)
"""What a bundle may hold."""

_WallMs = Annotated[int, Meta(ge=0, le=MAX_WALL_MS)]
_Usd = Annotated[int, Meta(ge=0, le=MAX_USD * NANO)]
_Reason = Annotated[str, Meta(max_length=limits.MAX_REASON_CHARS)]
_Pointer = Annotated[str, Meta(max_length=MAX_POINTER_CHARS)]
_Step = Annotated[str, Meta(min_length=1, max_length=limits.MAX_STEP_CHARS)]
_Labels = Annotated[dict[LabelName, LabelText], Meta(min_length=1, max_length=limits.MAX_LABELS)]
_SomeName = Annotated[str, Meta(max_length=limits.MAX_NAME_CHARS)]

_LEFT_OUT: dict[type, tuple[str, ...]] = {
    Dispatched: ("token",),
    Claimed: ("session", "nonce"),
    Spent: ("nonce",),
    Redriven: ("nonce",),
    BudgetAdded: ("nonce",),
    Dead: ("kept_nonce",),
    ApprovalRequested: ("session",),
    ApprovalDecided: ("session",),
}
"""They are as good as a key here, and open nothing elsewhere; or a token's rights, which its name doesn't give elsewhere.

The tokens that asked, decided or held go along: their names forbid something, and give nothing.
"""

_TYPES: dict[str, Any] = {
    "n": Annotated[int, Meta(ge=1, le=limits.MAX_SAFE_INTEGER)],
    "at_ms": _WallMs,
    "fence": Count,
    "kind": Kind,
    "priority": Annotated[int, Meta(ge=0, le=limits.MAX_PRIORITY)],
    "bytes": Count,
    "not_before_ms": _WallMs,
    "ancestors": Annotated[tuple[HandoffId, ...], Meta(max_length=limits.MAX_PARENT_DEPTH)],
    "labels": _Labels | None,
    "keep_checkpoints": Annotated[int, Meta(ge=1, le=limits.MAX_KEEP_CHECKPOINTS)],
    "worker": Name,
    "session": _SomeName,
    "token": _SomeName | None,
    "nonce": Name | None,
    "ttl_ms": Annotated[int, Meta(ge=1, le=limits.MAX_DELAY_MS)],
    "attempt": Count,
    "seq": Count,
    "sha256": Sha256,
    "steps": Count,
    "usd_nano": _Usd,
    "failures": Count,
    "stalls": Count,
    "reason": _Reason | None,
    "path": _Pointer,
    "rule": _Pointer,
    "left": Count,
    "wake_at_ms": _WallMs,
    "approval": ApprovalId,
    "since_ms": _WallMs,
    "whose": HandoffId | None,
    "cap": Literal[CAPS] | None,
    "kept_steps": Count,
    "kept_usd_nano": _Usd,
    "kept_seq": Count,
    "kept_sha256": Sha256 | None,
    "kept_bytes": Count,
    "dead_ms": _WallMs,
    "step": _Step,
    "action": Annotated[str, Meta(min_length=1, max_length=limits.MAX_ACTION_CHARS)],
    "details_sha256": Sha256,
    "expires_at_ms": _WallMs,
    "note": Annotated[str, Meta(max_length=limits.MAX_NOTE_CHARS)] | None,
    "domain": Annotated[str, Meta(min_length=1, max_length=limits.MAX_LABEL_CHARS)],
    "resource": Annotated[str, Meta(min_length=1, max_length=limits.MAX_RESOURCE_CHARS)],
    "max_steps": Count | None,
    "max_usd_nano": _Usd | None,
    "max_wallclock_ms": Count | None,
    "max_attempts": Count,
    "stall_ms": Count | None,
    "max_repeats": Count | None,
    "max_stalls": Count,
    "max_invalid_results": Count,
}
"""By a member's name, which means the same in every record, but for these."""

_TYPES_IN: dict[tuple[type, str], Any] = {
    (Orphaned, "why"): Literal["expired", "stalled"],
    (Resumed, "why"): Literal["resume", "wake", "approval"],
    (ApprovalDecided, "decision"): Literal["approved", "denied", "expired"],
    (ApprovalDecided, "by"): _SomeName | None,
    (Spent, "by"): HandoffId | None,
    (Dead, "reason"): _Reason,
    (Suspended, "worker"): Name | None,
    (Suspended, "approval"): ApprovalId | None,
    (EffectBegun, "approval"): ApprovalId | None,
    (Redriven, "sha256"): Sha256 | None,
}

_UNBOUNDED = (str, int, bytes, dict)
"""Types of members that need bounds; any other says by itself all that may stand there."""


def _bounded_type(shape: type, field: FieldInfo) -> Any:
    found = _TYPES_IN.get((shape, field.name), _TYPES.get(field.name))
    if found is not None:
        return found
    assert field.type not in _UNBOUNDED, f"{shape.__name__}.{field.name} has no bounds"
    return _bounded(field.type) if field.type is Budget else field.type


def _bounded(shape: type) -> Any:
    """A struct like `shape` that takes neither unknown members nor values out of bounds."""
    left_out = _LEFT_OUT.get(shape, ())
    return defstruct(
        shape.__name__,
        [
            (field.name, _bounded_type(shape, field), *(() if field.required else (field.default,)))
            for field in fields(shape)
            if field.name not in left_out
        ],
        kw_only=True,
        forbid_unknown_fields=True,
        omit_defaults=True,
        tag_field=shape.__struct_config__.tag_field,  # type: ignore[attr-defined]
        tag=shape.__struct_config__.tag,  # type: ignore[attr-defined]
    )


_DEFAULTS: dict[type, dict[str, Any]] = {
    shape: {field.name: field.default for field in fields(shape) if field.name in names}
    for shape, names in _LEFT_OUT.items()
}
_decode_bounded = msgspec.json.Decoder(Union[tuple(_bounded(shape) for shape in BUNDLED)]).decode  # noqa: UP007
_encode = msgspec.json.Encoder().encode


def foreign_record(members: dict[str, Any]) -> AnyRecord:
    """The record with these members; raises `msgspec.ValidationError` where nothing of the kind could be in a journal."""
    text = _encode(members)
    _decode_bounded(text)
    return decode_record(text)


def portable(record: AnyRecord) -> AnyRecord:
    """The record as it is anywhere."""
    defaults = _DEFAULTS.get(type(record))
    return record if defaults is None else replace(record, **defaults)


def members_of(record: AnyRecord) -> dict[str, Any]:
    """A record's members as a bundle holds them."""
    members: dict[str, Any] = msgspec.to_builtins(portable(record))
    return members


def payload_sha256(record: AnyRecord) -> str | None:
    """The hash of the payload that lies beside the record (None: none does)."""
    match record:
        case Checkpointed() | Completed() | ResultRefused() | EffectDoneRecord() | Redriven():
            return record.sha256
        case Dead():
            return record.kept_sha256
        case ApprovalRequested():
            return record.details_sha256
        case _:
            return None
