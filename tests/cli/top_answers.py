"""Answers of a daemon that was never there, for tests of what `dhp top` makes of them."""

from typing import Any

from dhp_client.cli.top.gathering import Asked, Facts, Listed
from dhp_client.results import Approval
from dhp_protocol.replies import HealthReply, StatsReply, StatusReply

NOW = "2026-11-29T18:00:00.000Z"


def before(seconds: int) -> str:
    """So long before `NOW`, up to an hour."""
    minutes, rest = divmod(3600 - seconds, 60)
    return f"2026-11-29T17:{minutes:02}:{rest:02}.000Z"


def handoff(number: int = 1, **members: Any) -> StatusReply:
    usual: dict[str, Any] = {
        "handoff": f"{number:064x}"[::-1],
        "kind": "work",
        "status": "pending",
        "holder": None,
        "fence": 1,
        "attempt": 0,
        "seq": 0,
        "steps": 0,
        "usd": 0.0,
        "failures": 0,
        "stalls": 0,
        "budget": {"max_attempts": 3},
        "reason": None,
        "parent": None,
        "labels": {},
        "priority": 5,
        "created_at": before(60),
        "claimed_at": None,
        "updated_at": before(60),
        "lease_left_ms": None,
        "acked": False,
        "position": 1,
    }
    return StatusReply(**{**usual, **members})


def held(number: int = 1, **members: Any) -> StatusReply:
    usual = {"status": "running", "holder": "ada", "attempt": 1, "claimed_at": before(50), "lease_left_ms": 5_200}
    return handoff(number, **{**usual, **members})


def asked(number: int = 1, **members: Any) -> Asked:
    facts: dict[str, Any] = dict.fromkeys(Approval.__struct_fields__)
    own = {
        "approval": f"{number:064x}"[::-1] + "-0123456789abcdef",
        "handoff": f"{number:064x}"[::-1],
        "action": "pay",
        "details": {"usd": 3},
        "expires_at": "2026-11-29T18:10:00.000Z",
    }
    return Asked(Approval(**{**facts, **own, **members}), "order")


def stats(**members: Any) -> StatsReply:
    counts = dict.fromkeys(("pending", "running", "orphaned", "suspended", "completed", "cancelled", "dead"), 0)
    zero = dict.fromkeys(
        ("leases", "waiting_claims", "sessions", "connections", "position", "durable_position", "commits", "records"), 0
    )
    usual: dict[str, Any] = {**zero, "handoffs": counts, "uptime_ms": 60_000, "time": NOW}
    return StatsReply(**{**usual, **members})


def health(**members: Any) -> HealthReply:
    usual: dict[str, Any] = {
        "status": "ok",
        "store": "ok",
        "durability": "power loss",
        "version": "1.2",
        "uptime_ms": 60_000,
    }
    return HealthReply(**{**usual, "clock_offset_ms": 0, **members})


def facts(*running: StatusReply, **members: Any) -> Facts:
    """`dead=[…]` and the like are handoffs of that status."""
    lists = {
        name: Listed(value) if isinstance(value, list) and name != "asked" else value for name, value in members.items()
    }
    return Facts(**{"stats": stats(), "running": Listed(list(running)), **lists})
