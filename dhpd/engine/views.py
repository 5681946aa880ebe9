"""How facts and records look on the wire.

Owns the wire forms of a handoff's status, of a record, and of a time. Pure.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from dhp_protocol.money import usd
from dhp_protocol.replies import ActivityView, KeptView, StatusReply

from .budget import budget_view
from .facts import SUSPENDED, Handoff
from .leases import Lease
from .records import AnyRecord, BudgetAdded, Dispatched

_HIDDEN = frozenset(("session", "nonce", "kept_nonce", "has_schema", "capable", "keep_checkpoints", "dead_ms"))
"""Members of a record that only the daemon needs; a session's name and a nonce are as good as a key."""
_TIMES = {"not_before_ms": "not_before", "since_ms": "since", "wake_at_ms": "wake_at", "expires_at_ms": "expires_at"}
_MONEY = {"usd_nano": "usd", "kept_usd_nano": "kept_usd"}


def rfc3339(wall_ms: int) -> str:
    """A wall-clock time in UTC, to the millisecond."""
    whole, ms = divmod(wall_ms, 1000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"


class LeaseView(Struct, frozen=True):
    """What a lease adds to how its handoff stands."""

    left_ms: int | None = None
    activity: ActivityView | None = None


NO_LEASE = LeaseView()


def lease_view(lease: Lease, now_ms: int) -> LeaseView:
    """How the lease of what runs stands."""
    return LeaseView(max(0, lease.deadline_ms - now_ms), lease.said(now_ms))


def status_reply(facts: Handoff, lease: LeaseView = NO_LEASE) -> StatusReply:
    """How a handoff stands."""
    kept, checkpoint = facts.kept, facts.checkpoint
    sleeps = facts.status == SUSPENDED and facts.wake_at_ms
    return StatusReply(
        handoff=facts.id,
        kind=facts.kind,
        status=facts.status,
        holder=facts.holder,
        fence=facts.fence,
        attempt=facts.attempt,
        seq=facts.seq,
        steps=facts.steps,
        failures=facts.failures,
        usd=usd(facts.usd_nano),
        stalls=facts.stalls,
        budget=budget_view(facts.budget),
        reason=facts.reason,
        parent=facts.parent,
        labels=facts.labels or {},
        priority=facts.priority,
        created_at=rfc3339(facts.created_at_ms),
        claimed_at=rfc3339(facts.hold.claimed_at_ms) if facts.hold is not None else None,
        updated_at=rfc3339(facts.updated_at_ms),
        lease_left_ms=lease.left_ms,
        acked=facts.acked,
        position=facts.position,
        wake_at=rfc3339(facts.wake_at_ms) if sleeps else None,
        kept=None if kept is None else KeptView(steps=kept.steps, usd=usd(kept.usd_nano), seq=kept.seq),
        keep_checkpoints=facts.keep_checkpoints,
        checkpoint_at=rfc3339(checkpoint.at_ms) if checkpoint is not None else None,
        activity=lease.activity,
    )


def record_view(position: int, record: AnyRecord) -> dict[str, Any]:
    """A record as `history` and `watch` show it: what is absent isn't so."""
    members = msgspec.to_builtins(record)
    view: dict[str, Any] = {
        "n": record.n,
        "position": position,
        "type": members["type"],
        "at": rfc3339(record.at_ms),
        "fence": record.fence,
    }
    for name, value in members.items():
        if name in _TIMES:
            view[_TIMES[name]] = rfc3339(value)
        elif name in _MONEY:
            view[_MONEY[name]] = usd(value)
        elif isinstance(record, (BudgetAdded, Dispatched)) and name == "budget":
            view["budget"] = budget_view(record.budget)
        elif name == "ancestors":
            view["parent"] = value[-1]
        elif name not in view and name not in _HIDDEN and name != "at_ms":
            view[name] = value
    return view
