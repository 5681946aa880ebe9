"""Frames too long to be taken in in one go: looked at in steps, between which the loop sees to others.

Owns how a long body becomes a request, in the words that a short one would get. What would take long in one piece, such
as finding what is wrong with eight megabytes that are no good request, is asked elsewhere (`explain`).
"""

import asyncio
from collections.abc import Awaitable, Callable

from dhp_protocol.decoding import RequestFault, Unexplained, check_in_steps, decode_checked, is_mostly_payload
from dhp_protocol.messages import AnyRequest

LONG_BODY_BYTES = 64 * 1024
REST_BYTES = 128 * 1024
"""So much beside payloads is decoded in a few milliseconds, whatever it is."""

Explain = Callable[[bytes], Awaitable[RequestFault | None]]


async def decode_long(body: bytes, max_depth: int, explain: Explain) -> AnyRequest:
    """As `decode_request`; raises `RequestFault`. `explain` tells what is wrong with a body, None: nothing."""
    for _ in check_in_steps(body, max_depth):
        await asyncio.sleep(0)
    if is_mostly_payload(body, REST_BYTES):
        try:
            return decode_checked(body)
        except Unexplained:
            pass
    fault = await explain(body)
    if fault is not None:
        raise fault
    return decode_checked(body)  # Good after all: so its parts are within their bounds.
