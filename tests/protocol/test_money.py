"""Money is exact: what was sent is what is counted and shown, to the nano-dollar."""

import json
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from dhp_protocol.errors import InvalidRequest
from dhp_protocol.money import MAX_USD, NANO, nano_usd, usd

AMOUNTS = st.integers(0, MAX_USD * NANO)


def nano(text: str) -> int:
    return nano_usd(Raw(text.encode()), member="usd")


@given(AMOUNTS)
@example(MAX_USD * NANO)
@example(MAX_USD * NANO - 1)
@example(4_194_304 * NANO + 1)
def test_what_is_shown_reads_back_as_the_same_amount(amount: int) -> None:
    shown = json.dumps(usd(amount))
    assert Decimal(shown) * NANO == amount
    assert nano(shown) == amount


@given(st.lists(st.integers(0, 10_000), max_size=50))
def test_cents_add_up(cents: list[int]) -> None:
    assert sum(nano(f"{each / 100:.2f}") for each in cents) == sum(cents) * NANO // 100


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("-0", 0),
        ("-0.000", 0),
        ("0e999", 0),
        ("0.1", 100_000_000),
        ("1E-2", 10_000_000),
        ("0.30000000000000004", 300_000_000),
        ("0.0000000015", 2),
        ("0.0000000025", 2),
        ("0.0000000001", 1),
        ("1e-400", 1),
    ],
)
def test_an_amount_is_rounded_to_nano_dollars_but_never_to_nothing(text: str, amount: int) -> None:
    assert nano(text) == amount


@pytest.mark.parametrize(
    "text",
    ["-1", "-1e-400", "8000000.0000000001", "1e400", "1e99999999999999999999", '"1"', "true", "null", "[]", "{}"],
)
def test_what_is_no_amount_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        nano(text)
    assert refusal.value.details == {"member": "usd"}
