"""Money as callers give it, to the JSON number that the wire takes, and back.

Owns that an amount means what its author wrote: 0.1 is a tenth of a dollar, not the binary fraction next to it. Sums and
caps are the daemon's.
"""

from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation

from msgspec import Raw

from dhp_protocol.errors import InvalidRequest

Money = Decimal | int | float | str
"""US dollars. A float counts as its shortest decimal form, a str as the number that it spells."""

_ONE_NANO = Decimal("1e-9")
_FAR_OUT = 30
"""Digits before or after the point beyond which nothing can be meant; the daemon's bounds are far narrower."""
_EXACT = Context(prec=4 * _FAR_OUT, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999, traps=[InvalidOperation])
"""The caller's own context may have any precision."""


def exact_usd(amount: Money, *, member: str = "usd") -> Decimal:
    """The amount, as its author wrote it. Raises TypeError for another type, `InvalidRequest` for no finite number."""
    if isinstance(amount, bool) or not isinstance(amount, Decimal | int | float | str):
        raise TypeError(f"{member} must be a Decimal, int, float or str, not a {type(amount).__name__}.")
    try:
        value = Decimal(float.__repr__(amount) if isinstance(amount, float) else amount)
    except InvalidOperation:
        raise InvalidRequest(f"{member} is a number of US dollars, not {amount!r}.", member=member) from None
    if not value.is_finite() or value.adjusted() > _FAR_OUT:
        raise InvalidRequest(f"{member} is a finite number of US dollars, not {str(amount)[:40]}.", member=member)
    return value


def usd_json(amount: Money, *, member: str = "usd") -> Raw:
    """The amount as a JSON number. Raises as `exact_usd`.

    What has too many digits is rounded as the daemon rounds it: to nano-dollars, but what isn't nothing to one at least.
    """
    value = exact_usd(amount, member=member)
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -_FAR_OUT:
        rounded = value.quantize(_ONE_NANO, context=_EXACT)
        value = _ONE_NANO.copy_sign(value) if value and not rounded else rounded
    return Raw(format(value, "f").encode())


def unspent_usd(limit: float, used: float) -> Decimal:
    """What is left, exactly, of amounts that a reply shows."""
    return _EXACT.subtract(shown_usd(limit), shown_usd(used))


def shown_usd(shown: float) -> Decimal:
    """The exact amount that a reply shows as its nearest double."""
    return Decimal(float.__repr__(float(shown)))
