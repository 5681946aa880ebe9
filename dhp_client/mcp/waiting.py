"""Waiting within one call: for so long only, with a sign of life meanwhile.

Owns the bound. An agent's host gives up on a call that takes too long, and then nobody gets the answer; so each call ends soon, and the agent
calls again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Annotated, TypeVar

from pydantic import Field

from ..clock import monotonic_ms
from .bridge import Call

T = TypeVar("T")

MAX_WAIT_MS = 20_000
PROGRESS_EVERY_MS = 2_000

WaitMs = Annotated[
    int,
    Field(ge=0, description=f"Wait so long, {MAX_WAIT_MS} at most; when the answer says waiting, call again."),
]


async def with_progress(call: Call, wait_ms: int, what: str, waiting: Awaitable[T]) -> T:
    """What comes of `waiting`, which ends within `wait_ms`; the agent's host is told that this goes on."""
    telling = asyncio.create_task(_tell(call, wait_ms, what))
    try:
        return await waiting
    finally:
        telling.cancel()


async def _tell(call: Call, wait_ms: int, what: str) -> None:
    began_ms = monotonic_ms()
    with contextlib.suppress(Exception):  # Whoever isn't there to hear it doesn't miss it.
        while True:
            await asyncio.sleep(PROGRESS_EVERY_MS / 1000)
            await call.report_progress(min(monotonic_ms() - began_ms, wait_ms), wait_ms, what)
