"""Waiting in tests for something that no event tells: looked at often, with a limit that only a fault reaches."""

import asyncio
import time
from collections.abc import Awaitable, Callable

LIMIT_S = 20.0


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Returns when `condition()` is true."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"it never came to this: {what or condition}"
        await asyncio.sleep(0.01)


async def until_async(condition: Callable[[], Awaitable[object]], what: str = "") -> None:
    """Returns when `await condition()` is true."""
    deadline = time.monotonic() + LIMIT_S
    while not await condition():
        assert time.monotonic() < deadline, f"it never came to this: {what or condition}"
        await asyncio.sleep(0.02)


def until_blocking(condition: Callable[[], object], what: str = "") -> None:
    """Returns when `condition()` is true, without an event loop."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"it never came to this: {what or condition}"
        time.sleep(0.01)
