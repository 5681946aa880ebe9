"""Money, exactly: nano-dollars inside, a JSON number of US dollars outside.

Owns the conversion and its bounds. Sums of nano-dollars stay below 2^53, so that a double shows each exactly. Pure.
"""

from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

from msgspec import Raw

from dhp_protocol.errors import InvalidRequest

MAX_USD = 9_000_000
NANO = 1_000_000_000
_ONE_NANO = Decimal(1).scaleb(-9)
_MAX_NUMBER_CHARS = 64


def nano_usd(raw: Raw, *, member: str) -> int:
    """The nano-dollars of a JSON number, rounded to them; raises `InvalidRequest` naming `member`."""
    text = bytes(raw)
    if not text or text[:1] not in b"0123456789-" or len(text) > _MAX_NUMBER_CHARS:
        raise _refusal(member)
    try:
        value = Decimal(text.decode("ascii"))
        if not 0 <= value <= MAX_USD:
            raise _refusal(member)
        return int(value.quantize(_ONE_NANO, rounding=ROUND_HALF_EVEN).scaleb(9))
    except (InvalidOperation, UnicodeDecodeError):
        raise _refusal(member) from None


def usd(nano: int) -> float:
    """What the wire shows: the double nearest to the exact amount, which prints as that amount."""
    return nano / NANO


def _refusal(member: str) -> InvalidRequest:
    return InvalidRequest(f"{member} is a number of US dollars from 0 to {MAX_USD}.", member=member)
