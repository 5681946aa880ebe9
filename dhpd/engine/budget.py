"""Budgets: what a handoff may use up, and what it has.

Owns the caps, their bounds and defaults, and when an amount would pass one. Invariant 6 is decided here: the write that
would pass a cap is refused, whoever's cap it is, before anything of it is recorded. Pure.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from dhp_protocol.errors import BudgetExceeded, InvalidRequest
from dhp_protocol.intent import parse_exact
from dhp_protocol.limits import DEFAULT_MAX_ATTEMPTS, MAX_ATTEMPTS, MAX_DELAY_MS, MAX_SAFE_INTEGER
from dhp_protocol.money import MAX_USD, NANO, nano_usd, usd

DEFAULT_MAX_STALLS = 2
DEFAULT_MAX_INVALID_RESULTS = 3
MAX_BUDGET_BYTES = 4_096
"""Far more than all caps take; reading what is longer would cost time."""

Times = Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)]
Duration = Annotated[int, Meta(ge=1, le=MAX_DELAY_MS)]


class Budget(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The caps in force; None: no such cap. The first three may be reached; of the others the n-th ends it."""

    max_steps: int | None = None
    max_usd_nano: int | None = None
    max_wallclock_ms: int | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    stall_ms: int | None = None
    max_repeats: int | None = None
    max_stalls: int = DEFAULT_MAX_STALLS
    max_invalid_results: int = DEFAULT_MAX_INVALID_RESULTS


NO_BUDGET = Budget()
"""Of whoever names no cap."""


class _Caps(Struct, frozen=True, forbid_unknown_fields=True):
    """A budget as it stands in an intent, and in `budget_add`."""

    max_steps: Annotated[int, Meta(ge=0, le=MAX_SAFE_INTEGER)] | UnsetType = UNSET
    max_usd: Raw | UnsetType = UNSET
    max_wallclock_ms: Duration | UnsetType = UNSET
    max_attempts: Times | UnsetType = UNSET
    stall_ms: Duration | UnsetType = UNSET
    max_repeats: Times | UnsetType = UNSET
    max_stalls: Times | UnsetType = UNSET
    max_invalid_results: Times | UnsetType = UNSET


CAPS = tuple(_Caps.__struct_fields__)
_decode = msgspec.json.Decoder(_Caps).decode


def budget_of(raw: Raw, *, member: str = "budget") -> Budget:
    """The caps of an intent's `budget`; raises `InvalidRequest` naming the cap."""
    return NO_BUDGET if bytes(raw) == b"{}" else Budget(**_given(raw, member))


def _given(raw: Raw, member: str) -> dict[str, int]:
    """The caps that `raw` names, money in nano-dollars."""
    if len(bytes(raw)) > MAX_BUDGET_BYTES:
        raise InvalidRequest(f"{member} may have {MAX_BUDGET_BYTES} bytes.", member=member)
    parse_exact(bytes(raw), member=member)  # A cap named twice is refused: which one is meant nobody can tell.
    try:
        caps = _decode(raw)
    except msgspec.ValidationError as error:
        raise _refusal(raw, str(error), member) from None
    given: dict[str, int] = {}
    for name in CAPS:
        value: Any = getattr(caps, name)
        if value is UNSET:
            continue
        if name == "max_usd":
            given["max_usd_nano"] = nano_usd(value, member=f"{member}.max_usd")
        else:
            given[name] = value
    return given


def _refusal(raw: Raw, problem: str, member: str) -> InvalidRequest:
    try:
        names = msgspec.json.decode(raw, type=dict[str, Raw])
    except msgspec.ValidationError:
        return InvalidRequest(f"{member} must be a JSON object of caps.", member=member)
    unknown = next((name for name in names if name not in CAPS), None)
    if unknown is not None:
        sentence = f"There is no cap {unknown[:64]!r}: the caps are {', '.join(CAPS)}."
        return InvalidRequest(sentence, member=f"{member}.{unknown[:64]}")
    wrong = problem.rpartition("$.")[2].rstrip("`")
    return InvalidRequest(f"{member}.{wrong}: {problem.split(' - at ')[0]}.", member=f"{member}.{wrong}")


def added(budget: Budget, raw: Raw, *, member: str) -> Budget:
    """The budget with the positive amounts of `raw` added to its caps; raises `InvalidRequest`.

    A cap that isn't set can't be added to: it would set one where there was none.
    """
    changed: dict[str, int] = {}
    for name, amount in _given(raw, member).items():
        shown = "max_usd" if name == "max_usd_nano" else name
        present = getattr(budget, name)
        if present is None:
            raise InvalidRequest(
                f"This handoff has no cap {shown}: there is nothing to add to.", member=f"{member}.{shown}"
            )
        most = MAX_USD * NANO if name == "max_usd_nano" else MAX_SAFE_INTEGER
        if amount <= 0 or present + amount > most:
            raise InvalidRequest(
                f"{member}.{shown} must be positive, and the sum in bounds.", member=f"{member}.{shown}"
            )
        changed[name] = present + amount
    if not changed:
        raise InvalidRequest(f"{member} names no cap: say what to add.", member=member)
    return msgspec.structs.replace(budget, **changed)


def budget_view(budget: Budget) -> dict[str, int | float]:
    """The caps in force as the wire shows them."""
    view: dict[str, int | float] = {}
    for name in CAPS:
        value = budget.max_usd_nano if name == "max_usd" else getattr(budget, name)
        if value is not None:
            view[name] = usd(value) if name == "max_usd" else value
    return view


class Account(Protocol):
    """One handoff's caps on amounts, and what it and its descendants have used."""

    @property
    def id(self) -> str: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def steps(self) -> int: ...
    @property
    def usd_nano(self) -> int: ...


class Shortfall(Struct, frozen=True, gc=False):
    """A cap that something would pass, and by how much; money in dollars."""

    cap: str
    limit: float
    used: float
    asked: float
    lacking: float
    whose: str


def exceeded(accounts: Sequence[Account], steps: int, usd_nano: int) -> Shortfall | None:
    """The first cap, from the handoff itself upwards, that these amounts would pass; None: none.

    Raises `InvalidRequest` where no cap is in the way, but a sum would leave the bounds within which it is exact.
    """
    for account in accounts:
        limit, limit_nano = account.budget.max_steps, account.budget.max_usd_nano
        sum_steps, sum_nano = account.steps + steps, account.usd_nano + usd_nano
        if limit is not None and sum_steps > limit:
            return Shortfall("max_steps", limit, account.steps, steps, sum_steps - limit, account.id)
        if limit_nano is not None and sum_nano > limit_nano:
            used, asked, lacking = usd(account.usd_nano), usd(usd_nano), usd(sum_nano - limit_nano)
            return Shortfall("max_usd", usd(limit_nano), used, asked, lacking, account.id)
    for account in accounts:
        if account.steps + steps > MAX_SAFE_INTEGER:
            raise _out_of_bounds("steps", MAX_SAFE_INTEGER, account.id)
        if account.usd_nano + usd_nano > MAX_USD * NANO:
            raise _out_of_bounds("usd", MAX_USD, account.id)
    return None


def _out_of_bounds(member: str, limit: int, whose: str) -> InvalidRequest:
    sentence = (
        f"The sum of {member} of handoff {whose} would pass {limit}, beyond which nothing can be counted: send none."
    )
    return InvalidRequest(sentence, member=member, limit=limit, whose=whose)


def write_refused(shortfall: Shortfall, handoff: str) -> BudgetExceeded:
    """The refusal of a write, with all that a program needs to decide what to do."""
    used = f"{shortfall.used} of {shortfall.limit} used, {shortfall.asked} asked"
    return _refused(
        shortfall, f"This would pass {_cap_of(shortfall, handoff)} ({used}): parked as dead, with all it has."
    )


def redrive_refused(shortfall: Shortfall, handoff: str) -> BudgetExceeded:
    """The refusal of a redrive: what it takes first."""
    to = handoff if shortfall.whose == handoff else f"{shortfall.whose}, of which it is a descendant,"
    sentence = f"The handoff stays dead: budget_add at least {shortfall.lacking} of {shortfall.cap} to {to} first."
    return _refused(shortfall, sentence)


def _cap_of(shortfall: Shortfall, handoff: str) -> str:
    return shortfall.cap if shortfall.whose == handoff else f"{shortfall.cap} of its ancestor {shortfall.whose}"


def _refused(shortfall: Shortfall, sentence: str) -> BudgetExceeded:
    return BudgetExceeded(sentence, **msgspec.structs.asdict(shortfall))
