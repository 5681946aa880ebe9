"""Waiting for something, or for what makes that pointless."""

import asyncio
from collections.abc import Awaitable
from typing import Any


async def first_of(future: "asyncio.Future[Any]", *others: Awaitable[Any]) -> None:
    """Returns when one of them is done; `others` are ended then."""
    waiting = [asyncio.ensure_future(other) for other in others]
    try:
        await asyncio.wait([future, *waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for other in waiting:
            other.cancel()
