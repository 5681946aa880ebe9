"""Expecting how a block's work ends."""

import contextlib
from collections.abc import Iterator
from typing import TypeVar

import pytest

import dhp_client

E = TypeVar("E", bound=Exception)


@contextlib.contextmanager
def losing() -> Iterator["pytest.ExceptionInfo[dhp_client.LeaseLost]"]:
    """What runs inside must end in `LeaseLost`."""
    with pytest.raises(dhp_client.LeaseLost) as lost:
        yield lost


@contextlib.contextmanager
def raising(kind: type[E]) -> Iterator["pytest.ExceptionInfo[E]"]:
    """What runs inside, which is more than one call, must end in this exception."""
    with pytest.raises(kind) as raised:
        yield raised
