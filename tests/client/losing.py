"""Expecting that a block's work is lost."""

import contextlib
from collections.abc import Iterator

import pytest

import dhp_client


@contextlib.contextmanager
def losing() -> Iterator["pytest.ExceptionInfo[dhp_client.LeaseLost]"]:
    """What runs inside must end in `LeaseLost`."""
    with pytest.raises(dhp_client.LeaseLost) as lost:
        yield lost
