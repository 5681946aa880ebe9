"""Money, exactly: nano-dollars inside, a JSON number of US dollars outside.

Owns the conversion and its bounds. Amounts and their sums stay below 2^23 dollars: from there on doubles lie further apart
than a nano-dollar, and wouldn't show each sum as it is. Pure.
"""

from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

from msgspec import Raw

from .errors import InvalidRequest

MAX_USD = 8_000_000
NANO = 1_000_000_000
_ONE_NANO = Decimal(1).scaleb(-9)
_MAX_NUMBER_CHARS = 64


def nano_usd(raw: Raw, *, member: str) -> int:
    """The nano-dollars of a JSON number; raises `InvalidRequest` naming `member`.

    Rounded half to even, so that 0.1 + 0.2 is 0.3 whoever added it up; but what is positive is one nano-dollar at least, so
    that no amount is too small to count.
    """
    text = bytes(raw)
    if not text or text[:1] not in b"0123456789-" or len(text) > _MAX_NUMBER_CHARS:
        raise _refusal(member)
    try:
        value = Decimal(text.decode("ascii"))
        if not 0 <= value <= MAX_USD:
            raise _refusal(member)
        return int(value.quantize(_ONE_NANO, rounding=ROUND_HALF_EVEN).scaleb(9)) or int(value > 0)
    except (InvalidOperation, UnicodeDecodeError):
        raise _refusal(member) from None


def usd(nano: int) -> float:
    """What the wire shows: the nearest double, which prints as the exact amount."""
    return nano / NANO


def _refusal(member: str) -> InvalidRequest:
    sentence = f"{member} is a number of US dollars from 0 to {MAX_USD}, in {_MAX_NUMBER_CHARS} characters at most."
    return InvalidRequest(sentence, member=member)
