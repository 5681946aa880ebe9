"""The invariants hold in small worlds that are always the same, in which much goes wrong."""

import pytest

from .expecting import expect_to_hold
from .play import case_of

WORLDS = 1_000
AT_ONCE = 100


@pytest.mark.parametrize("first", range(0, WORLDS, AT_ONCE))
def test_the_invariants_hold_in_known_worlds(first: int) -> None:
    expect_to_hold(case_of(seed) for seed in range(first, first + AT_ONCE))
