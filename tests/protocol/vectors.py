"""The conformance vectors as pytest parameters, one per case."""

from typing import Any

import pytest

from dhp_client.conform.vectors import Case, load, spelled

__all__ = ["Case", "load", "parameters", "spelled"]


def parameters(name: str) -> list[Any]:
    """The cases of one vector file as pytest parameters under their names."""
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in load(name)]
