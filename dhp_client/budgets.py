"""Budgets as callers give them: a `Budget`, or a dict with the same names.

Owns their way to JSON, money exactly. Bounds, defaults and what a cap does are the daemon's.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from . import payload
from .money import Money, usd_json


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Caps on one handoff; None: no such cap, or the default.

    `max_steps`, `max_usd` (US dollars) and `max_wallclock_ms` (everything since the first claim) may be reached and not
    passed; the steps and dollars of children count too. The write that would pass one of the first two raises
    `BudgetExceeded`; time passes by itself, so its end takes the work away: `LeaseLost`, why `dead`. `max_attempts` failures (3), `max_stalls` stalls (2) or `max_invalid_results`
    results that don't fit (3) make it dead. `stall_ms` without anything new, or `max_repeats` times the same activity
    again, is a stall.
    """

    max_steps: int | None = None
    max_usd: Money | None = None
    max_wallclock_ms: int | None = None
    max_attempts: int | None = None
    stall_ms: int | None = None
    max_repeats: int | None = None
    max_stalls: int | None = None
    max_invalid_results: int | None = None


CAPS = Budget.__struct_fields__


def budget_json(budget: Budget | Mapping[str, Any], *, member: str = "budget") -> Raw:
    """The caps as JSON. Raises TypeError and ValueError as `payload.encode`, and for money as `money.usd_json`."""
    if isinstance(budget, Budget):
        budget = {name: cap for name in CAPS if (cap := getattr(budget, name)) is not None}
    elif isinstance(budget, Mapping):
        budget = dict(budget)
    if not isinstance(budget, dict) or "max_usd" not in budget:
        return Raw(payload.encode(budget, member=member))
    others = {name: cap for name, cap in budget.items() if name != "max_usd"}
    money = b'"max_usd":' + bytes(usd_json(budget["max_usd"], member=f"{member}.max_usd"))
    rest = payload.encode(others, member=member)
    return Raw(b"{" + money + (b"," if others else b"") + rest[1:])
