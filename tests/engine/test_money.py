"""Money adds up exactly, and shows as it is."""

import json
from decimal import ROUND_HALF_EVEN, Decimal

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given
from msgspec import Raw

from dhp_protocol.errors import InvalidRequest
from dhp_protocol.messages import Spend
from dhp_protocol.money import MAX_USD, NANO, nano_usd, usd
from tests.support.engine_world import World

amounts = st.decimals(0, MAX_USD, places=9, allow_nan=False) | st.decimals(0, 2, places=12, allow_nan=False)


def nano(text: str) -> int:
    return nano_usd(Raw(text.encode()), member="usd")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("-0", 0),
        ("-0.0e7", 0),
        ("1", NANO),
        ("1E2", 100 * NANO),
        ("0.1", 100_000_000),
        ("0.30000000000000004", 300_000_000),
        ("1.0000000005", NANO),
        ("1.0000000015", NANO + 2),
        ("1e-9", 1),
        ("8000000", MAX_USD * NANO),
        ("8e6", MAX_USD * NANO),
        ("7999999.999999999", MAX_USD * NANO - 1),
    ],
)
def test_a_number_counts_in_whole_nano_dollars_rounded_half_to_even(text: str, expected: int) -> None:
    assert nano(text) == expected


@pytest.mark.parametrize("text", ["5e-10", "4e-10", "1e-30", "1e-300", "0.00000000000000000001"])
def test_what_is_positive_is_never_nothing(text: str) -> None:
    assert nano(text) == 1


@pytest.mark.parametrize(
    "text",
    [
        "-1",
        "-1e-30",
        "8000000.000000001",
        "1e7",
        "1e400",
        "1e99999999999999999999",
        "1e-99999999999999999999999",
        "1" * 65,
        '"1"',
        "null",
        "true",
        "[1]",
        "{}",
        "NaN",
        "-NaN",
        "Infinity",
        "-Infinity",
        "",
        "-",
        "+1",
        ".5",
    ],
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        nano(text)
    assert caught.value.details["member"] == "usd"


@given(st.integers(0, MAX_USD * NANO))
def test_every_sum_is_shown_as_the_number_that_it_is(sum_nano: int) -> None:
    shown = msgspec.json.encode(usd(sum_nano)).decode()
    assert Decimal(shown) == Decimal(sum_nano) / NANO, "as text, and so in any language that reads decimals"
    assert Decimal(repr(json.loads(shown))) == Decimal(sum_nano) / NANO, "and as a double printed again"
    assert nano(shown) == sum_nano


@given(st.lists(st.decimals(0, 1_000, places=9, allow_nan=False), max_size=20))
def test_what_is_spent_adds_up_like_decimals(spent: list[Decimal]) -> None:
    world = World()
    handoff, fence = world.held()
    shown = 0.0
    for amount in spent:
        shown = world.run(Spend(handoff=handoff, fence=fence, usd=Raw(f"{amount:f}".encode()))).usd
    assert Decimal(repr(shown)) == sum(spent, Decimal(0))


@given(amounts)
def test_rounding_is_that_of_the_decimal_but_for_what_would_be_lost(amount: Decimal) -> None:
    rounded = int(amount.quantize(Decimal("1e-9"), rounding=ROUND_HALF_EVEN).scaleb(9))
    assert nano(f"{amount:f}") == (1 if amount and not rounded else rounded)


def test_ten_dimes_are_a_dollar() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_usd":1}'))
    for _ in range(10):
        reply = world.run(Spend(handoff=handoff, fence=fence, usd=Raw(b"0.1")))
    assert reply.usd == 1
    assert world.status(handoff).status == "running"
