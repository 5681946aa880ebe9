"""Frames too long to be taken in in one go: looked at in steps, between which the loop sees to others.

Owns how a long body becomes a request, in the words that a short one would get. What would take long in one piece, such
as finding what is wrong with eight megabytes that are no good request, is asked elsewhere (`explain`).
"""

import asyncio
from collections.abc import Awaitable, Callable

from dhp_protocol.decoding import (
    RequestFault,
    Unexplained,
    check_in_steps,
    check_members,
    decode_typed,
    is_mostly_payload,
)
from dhp_protocol.messages import AnyRequest

LONG_BODY_BYTES = 64 * 1024
REST_BYTES = 128 * 1024
"""So much beside payloads is decoded in a few milliseconds, whatever it is."""
VERY_LONG_BODY_BYTES = 4 * 1024 * 1024 + REST_BYTES
"""Longer than any payload that is taken, unless the daemon is set so: what is too long is found elsewhere."""

Explain = Callable[[bytes], Awaitable[RequestFault | None]]


async def decode_long(body: bytes, max_depth: int, explain: Explain) -> AnyRequest:
    """As `decode_request`; raises `RequestFault`. `explain` tells what is wrong with a body, None: nothing.

    Each of the walks through the body takes a few milliseconds for the longest that there is, and is a step.
    """
    for _ in check_in_steps(body, max_depth):
        await asyncio.sleep(0)
    if len(body) <= VERY_LONG_BODY_BYTES and is_mostly_payload(body, REST_BYTES):
        await asyncio.sleep(0)
        try:
            request = decode_typed(body)
        except Unexplained:
            pass
        else:
            await asyncio.sleep(0)
            check_members(request, body)
            return request
    fault = await explain(body)
    if fault is not None:
        raise fault
    return decode_typed(body)  # Good after all: so its parts are within their bounds.
