"""Answers that need the journal, read once what they show is on disk.

Owns what becomes of each `Lookup`. A page is cut to what fits a frame.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from dhp_protocol.errors import StoreUnavailable
from dhp_protocol.replies import (
    ApprovalsReply,
    ApprovalView,
    CheckpointReply,
    CheckpointsReply,
    ClaimLease,
    ClaimReply,
    EffectReply,
    HistoryReply,
    LastCheckpointReply,
    ListReply,
    ResultReply,
    StoredCheckpoint,
)
from dhpd.engine.facts import COMPLETED, CheckpointFacts
from dhpd.engine.leases import heartbeat_ms
from dhpd.engine.lookups import (
    ApprovalItem,
    ApprovalsLookup,
    CheckpointsLookup,
    ClaimLookup,
    EffectLookup,
    ExportLookup,
    HistoryLookup,
    LastCheckpointLookup,
    ListLookup,
    Lookup,
    ResultLookup,
)
from dhpd.engine.views import LeaseView, record_view, rfc3339, status_reply
from dhpd.engine.writing import OlderCheckpoint, answer_older

from .backend import StoreBackend
from .exporting import export_page

T = TypeVar("T")
LeaseOf = Callable[[str, int], LeaseView]
"""How the lease of (handoff, fence) stands."""

PAGES = (CheckpointsLookup, HistoryLookup, ListLookup, ApprovalsLookup, ExportLookup, OlderCheckpoint)
"""What may take a while to read."""

MAX_PAGE_BYTES = 1024 * 1024
"""A page ends here, or after its first item: many slow readers of long pages would cost memory."""
_PAGE_OVERHEAD_BYTES = 1024
_ITEM_OVERHEAD_BYTES = 256
_DETAILS_AT_ONCE = 16
"""Details may be long, and few of them fit a page."""
_encode = msgspec.json.Encoder().encode


async def resolve(lookup: Lookup, store: StoreBackend, max_frame_bytes: int, lease_of: LeaseOf) -> Struct:
    """The reply that `lookup` stands for; raises `DHPError` where it comes to a refusal, `DiskError` if the disk fails."""
    room_bytes = min(max_frame_bytes, MAX_PAGE_BYTES) - _PAGE_OVERHEAD_BYTES
    match lookup:
        case ClaimLookup():
            return await _claim(lookup, store)
        case LastCheckpointLookup():
            (found,) = await _with_states(store, [lookup.checkpoint])
            return LastCheckpointReply(checkpoint=found)
        case ResultLookup():
            payloads = await store.payloads([lookup.result_position])
            result = _payload(payloads, lookup.result_position)
            if lookup.status == COMPLETED:
                return ResultReply(status=COMPLETED, result=result)
            return ResultReply(status=lookup.status, refused=result)
        case CheckpointsLookup():
            return await _checkpoints(lookup, store, room_bytes)
        case HistoryLookup():
            records = await store.records_of(lookup.head, lookup.after, lookup.limit)
            if not records:
                raise _gone()
            views = [record_view(stored.position, stored.record) for stored in records]
            fitting = _fitting(views, lambda view: len(_encode(view)), room_bytes)
            more = bool(fitting) and fitting[-1]["n"] < lookup.newest_n
            return HistoryReply(records=fitting, next=fitting[-1]["n"] if more else None)
        case ListLookup():
            return await _list(lookup, store, room_bytes, lease_of)
        case EffectLookup():
            payloads = await store.payloads([lookup.done_position])
            result = _payload(payloads, lookup.done_position)
            return EffectReply(state="done", idempotency_key=lookup.idempotency_key, result=result)
        case ApprovalsLookup():
            return await _approvals(lookup, store, room_bytes)
        case ExportLookup():
            return await export_page(lookup, store, room_bytes, max_frame_bytes - _PAGE_OVERHEAD_BYTES)
        case OlderCheckpoint():
            return await _older(lookup, store)


async def _claim(lookup: ClaimLookup, store: StoreBackend) -> ClaimReply:
    newest = lookup.checkpoint
    positions = [lookup.intent_position] if newest is None else [lookup.intent_position, newest.position]
    payloads = await store.payloads(positions)
    return ClaimReply(
        handoff=lookup.handoff,
        fence=lookup.fence,
        attempt=lookup.attempt,
        lease=ClaimLease(ttl_ms=lookup.ttl_ms, heartbeat_ms=heartbeat_ms(lookup.ttl_ms)),
        intent=_payload(payloads, lookup.intent_position),
        checkpoint=None if newest is None else _stored(newest, _payload(payloads, newest.position)),
        was=lookup.was,
    )


async def _checkpoints(lookup: CheckpointsLookup, store: StoreBackend, room_bytes: int) -> CheckpointsReply:
    page: list[StoredCheckpoint] = []
    for facts in await store.checkpoints_of(lookup.head, lookup.after, lookup.limit):
        (found,) = await _with_states(store, [facts])
        room_bytes -= len(bytes(found.state)) + _ITEM_OVERHEAD_BYTES
        if room_bytes < 0 and page:
            break
        page.append(found)
    if not page:
        raise _gone()
    more = lookup.newest is not None and page[-1].seq < lookup.newest.seq
    return CheckpointsReply(checkpoints=page, next=page[-1].seq if more else None)


async def _list(lookup: ListLookup, store: StoreBackend, room_bytes: int, lease_of: LeaseOf) -> ListReply:
    handoffs, after = await store.handoffs(lookup)
    views = [status_reply(facts, lease_of(facts.id, facts.fence)) for facts in handoffs]
    fitting = _fitting(views, lambda view: len(_encode(view)), room_bytes)
    if len(fitting) < len(views):
        after = handoffs[len(fitting) - 1].number
    return ListReply(handoffs=fitting, next=after, position=lookup.position)


async def _approvals(lookup: ApprovalsLookup, store: StoreBackend, room_bytes: int) -> ApprovalsReply:
    page: list[ApprovalView] = []
    for start in range(0, len(lookup.items), _DETAILS_AT_ONCE):
        some = lookup.items[start : start + _DETAILS_AT_ONCE]
        payloads = await store.payloads([item.approval.details_position for item in some])
        for item in some:
            view = _approval(item, _payload(payloads, item.approval.details_position))
            room_bytes -= len(_encode(view)) + 1
            if room_bytes < 0 and page:
                return ApprovalsReply(approvals=page, next=lookup.items[len(page) - 1].approval.details_position)
            page.append(view)
    return ApprovalsReply(approvals=page, next=lookup.next)


def _approval(item: ApprovalItem, details: Raw) -> ApprovalView:
    approval = item.approval
    return ApprovalView(
        approval=approval.id,
        handoff=item.handoff,
        action=approval.action,
        details=details,
        decision=item.decision,
        by=approval.by,
        note=approval.note,
        expires_at=rfc3339(approval.expires_at_ms),
        used_by=approval.used_by,
    )


async def _older(lookup: OlderCheckpoint, store: StoreBackend) -> CheckpointReply:
    found = await store.checkpoints_of(lookup.head, lookup.seq - 1, 1)
    first_kept = found[0].seq if found else None
    return answer_older(lookup, found[0].sha256 if first_kept == lookup.seq else None, first_kept)


async def _with_states(store: StoreBackend, checkpoints: list[CheckpointFacts]) -> list[StoredCheckpoint]:
    payloads = await store.payloads([facts.position for facts in checkpoints])
    return [_stored(facts, _payload(payloads, facts.position)) for facts in checkpoints]


def _stored(facts: CheckpointFacts, state: Raw) -> StoredCheckpoint:
    return StoredCheckpoint(seq=facts.seq, state=state, sha256=facts.sha256, at=rfc3339(facts.at_ms))


def _payload(payloads: dict[int, bytes], position: int) -> Raw:
    found = payloads.get(position)
    if found is None:
        raise _gone()
    return Raw(found)


def _gone() -> StoreUnavailable:
    """What was there when it was looked at is there no more: it has been forgotten since."""
    return StoreUnavailable("What this answer shows could not be read: send the same request again.")


def _fitting(items: list[T], size_bytes: Callable[[T], int], room_bytes: int) -> list[T]:
    """As many of `items` as have room, and at least one."""
    for index, item in enumerate(items):
        room_bytes -= size_bytes(item) + 1
        if room_bytes < 0 and index:
            return items[:index]
    return items
