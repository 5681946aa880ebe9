"""Frames too long to be taken in in one go: looked at in steps, between which the loop sees to others.

Owns how a long body becomes a request, in the words that a short one would get, and that however many come at once, no
pass of the loop works on more than one. What would take long in one piece, such as finding what is wrong with eight
megabytes that are no good request, is asked elsewhere (`explain`).
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

SLICE_S = 0.001
"""So long are a long frame's texts looked at, a small step more at most, before the loop has its turn."""

Explain = Callable[[bytes], Awaitable[RequestFault | None]]


class LongFrames:
    """The long frames of all connections: one at a time is worked on, in the order in which they came."""

    def __init__(self, max_depth: int, clock_s: Callable[[], float]) -> None:
        self._max_depth = max_depth
        self._clock_s = clock_s
        self._front = asyncio.Lock()  # Whoever holds it is at the front of the line.

    async def take(self, body: bytes, explain: Explain, hand_over: Callable[[AnyRequest], None]) -> None:
        """Hands the request in `body` over, or raises `RequestFault` as `decode_request` does.

        `explain` tells what is wrong with a body, None: nothing. Whoever waits for that isn't in the line meanwhile. Each walk
        through the body takes a few milliseconds for the longest that there is, and so does the hashing when it is handed
        over: each of these has a pass of the loop to itself.
        """
        async with self._front:
            request = await self._decode(body)
            if request is not None:
                await asyncio.sleep(0)
                hand_over(request)
                return
        fault = await explain(body)
        if fault is not None:
            raise fault
        async with self._front:
            await asyncio.sleep(0)
            request = decode_typed(body)  # Good after all: so its parts are within their bounds.
            await asyncio.sleep(0)
            hand_over(request)

    async def _decode(self, body: bytes) -> AnyRequest | None:
        """The request, where that can be found out here; raises `RequestFault`."""
        steps = check_in_steps(body, self._max_depth)
        while True:
            await asyncio.sleep(0)
            until_s = self._clock_s() + SLICE_S
            if all(self._clock_s() < until_s for _ in steps):
                break
        await asyncio.sleep(0)
        if len(body) > VERY_LONG_BODY_BYTES or not is_mostly_payload(body, REST_BYTES):
            return None
        await asyncio.sleep(0)
        try:
            request = decode_typed(body)
        except Unexplained:
            return None
        await asyncio.sleep(0)
        check_members(request, body)
        return request
