"""Numbers are exact: none is rounded, and none takes long."""

import pytest

from .support import verdict


@pytest.mark.parametrize("number", [b"1", b"1.0", b"-0", b"-0.0", b"1e3", b"1.5e1", b"1e400", b"1e5000", b"9" * 400])
def test_whole_numbers_are_integers_however_they_are_written(number: bytes) -> None:
    assert verdict({"type": "integer"}, number) is None
    assert verdict({"type": ["number"]}, number) is None


@pytest.mark.parametrize("number", [b"0.1", b"1.5", b"1e-400", b"1.0000000000000000000000000000000000001", b"15e-1"])
def test_others_are_not(number: bytes) -> None:
    assert verdict({"type": "integer"}, number) == ("", "type")
    assert verdict({"type": "number"}, number) is None


@pytest.mark.parametrize(
    ("number", "divisor", "fits"),
    [
        (b"19.99", b"0.01", True),
        (b"19.995", b"0.01", False),
        (b"0.3", b"0.1", True),
        (b"1e308", b"0.5", True),
        (b"1e308", b"0.123456789", False),
        (b"1e5000", b"7", False),
        (b"7e5000", b"7", True),
        (b"1e-5000", b"1e-5001", True),
        (b"1e-5000", b"3", False),
        (b"0", b"1e-400", True),
        (b"9007199254740993", b"2", False),
        (b"123456789012345678901234567890", b"10", True),
        (b"-4.5", b"1.5", True),
        (b"0.00751", b"0.0001", False),
    ],
)
def test_multiples_are_exact(number: bytes, divisor: bytes, fits: bool) -> None:
    assert (verdict(b'{"multipleOf": %b}' % divisor, number) is None) is fits


@pytest.mark.parametrize(
    ("schema", "number", "fits"),
    [
        (b'{"minimum": 9007199254740993}', b"9007199254740992", False),
        (b'{"exclusiveMaximum": 0.1}', b"0.09999999999999999999999", True),
        (b'{"exclusiveMaximum": 0.1}', b"0.1000", False),
        (b'{"maximum": 1e308}', b"1e309", False),
        (b'{"maximum": 1e400}', b"1e399", True),
        (b'{"minimum": -1.5}', b"-1.5", True),
    ],
)
def test_bounds_are_exact(schema: bytes, number: bytes, fits: bool) -> None:
    assert (verdict(schema, number) is None) is fits


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (b"1", b"1.0", True),
        (b"0", b"-0.0", True),
        (b"1e2", b"100", True),
        (b"1.50", b"1.5", True),
        (b"1e5000", b"10e4999", True),
        (b"9007199254740993", b"9007199254740992", False),
        (b"0.1", b"0.1000000000000000055511151231257827", False),
        (b"1", b"true", False),
        (b"0", b"false", False),
        (b"1", b'"1"', False),
        (b"0.5", b'["NaN","0.5"]', False),
    ],
)
def test_equality_is_that_of_json(one: bytes, other: bytes, equal: bool) -> None:
    for wrapped in (b"%b", b"[%b]", b'{"a": [%b]}'):
        assert (verdict(b'{"const": %b}' % (wrapped % one), wrapped % other) is None) is equal
        assert (verdict(b'{"enum": [null, %b]}' % (wrapped % one), wrapped % other) is None) is equal
        assert (verdict({"uniqueItems": True}, b"[%b, %b]" % (wrapped % one, wrapped % other)) is not None) is equal


@pytest.mark.parametrize("number", [b"1" * 5_000, b"0." + b"1" * 5_000, b"1e99999999999999999999", b"1" * 1_000_000])
def test_numbers_beyond_any_use_are_refused_and_not_rounded(number: bytes) -> None:
    assert verdict(True, number) == ("", "limit")


def test_counts_may_be_written_as_decimals() -> None:
    assert verdict({"minItems": 2.0}, [1]) == ("", "minItems")
