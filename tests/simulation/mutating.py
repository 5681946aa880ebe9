"""Mistakes made on purpose, and whether the simulation notices them.

A mutation is a change to the text of one function, so that a test shows exactly what is wrong. Worlds are then played until one is
seen to fail.
"""

import inspect
import sys
import textwrap
from typing import Any

import pytest
from msgspec.structs import replace

from .play import Case
from .run import usual_case
from .shrinking import Failure, failure_of

SEEDS_TO_CATCH_A_MUTATION = 200


def mutate(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, right: str, wrong: str) -> None:
    """In `owner` (a class or a module), the function `name` has `wrong` where it had `right`, wherever it is used."""
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(right) == 1, f"{name} holds this {source.count(right)} times: {right}"
    scope: dict[str, Any] = {}
    exec(compile(source.replace(right, wrong), f"<mutated {name}>", "exec"), function.__globals__, scope)
    monkeypatch.setattr(owner, name, scope[name])
    for module in [
        module for module in sys.modules.values() if module.__name__.startswith(("dhpd.", "tests.simulation."))
    ]:
        for place, value in list(vars(module).items()):
            if value is function:
                monkeypatch.setattr(module, place, scope[name])
            elif isinstance(value, dict) and not place.startswith("__"):  # A table of operations.
                for key in [key for key, each in value.items() if each is function]:
                    monkeypatch.setitem(value, key, scope[name])


def caught(first: int = 0, **often: float) -> tuple[Case, Failure] | None:
    """The first world that shows what the mutation at hand breaks; None: none of so many does.

    `first` is a seed that has shown it before: it is tried before the others. `often` are faults without which the mistake
    doesn't matter, and how often they strike.
    """
    for seed in (first, *range(SEEDS_TO_CATCH_A_MUTATION)):
        case = usual_case(seed)
        case = replace(case, faults=replace(case.faults, **often))
        failure = failure_of(case)
        if failure is not None:
            print(f"caught by seed {seed}: {failure.message}")
            return case, failure
    return None
