"""The work that is handed over in the chaos: a chain of hashes, so that a wrong, lost or doubled step can't look right.

Pure. Step n can only be done by who knows what step n - 1 came to; anybody can tell what it should have come to.
"""

import functools
import hashlib
from typing import Any, TypedDict

KIND = "chaos.chain"


class Inputs(TypedDict):
    """What is asked for: `number` tells one chain from another, a step takes `step_ms`."""

    number: int
    steps: int
    step_ms: int


class State(TypedDict):
    """What a checkpoint holds: the step that is done, and the chain up to it."""

    step: int
    chain: str


def next_state(number: int, state: State | None) -> State:
    """The state after one more step."""
    step, chain = (0, "") if state is None else (state["step"], state["chain"])
    return State(step=step + 1, chain=_linked(number, step + 1, chain))


def chain_at(number: int, step: int) -> str:
    """What the chain must be after `step` steps; empty after none."""
    return _chain(number, step)[-1]


def result_of(state: State | None) -> dict[str, Any]:
    """What the work is completed with."""
    return {"steps": 0, "chain": ""} if state is None else {"steps": state["step"], "chain": state["chain"]}


def right_result(number: int, steps: int) -> dict[str, Any]:
    """What the result must be."""
    return {"steps": steps, "chain": chain_at(number, steps)}


@functools.lru_cache(maxsize=1024)
def _chain(number: int, steps: int) -> tuple[str, ...]:
    links = [""]
    for step in range(1, steps + 1):
        links.append(_linked(number, step, links[-1]))
    return tuple(links)


def _linked(number: int, step: int, before: str) -> str:
    return hashlib.sha256(f"{number} {step} {before}".encode()).hexdigest()
