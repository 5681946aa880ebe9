"""What running handoffs may touch, as read from their intents lately.

Owns which capability sets are kept in memory. Does not own what they mean (`dhpd.engine.capabilities`).
"""

import asyncio
from collections import OrderedDict

from dhpd.engine.capabilities import Capabilities, capabilities_of

from .intent_members import capabilities_in

LONG_SET_BYTES = 8 * 1024
"""Reading a longer one takes more than a moment, so it is done off the loop."""
MAX_KEPT_BYTES = 8 * 1024 * 1024
"""Of the sets as they stand in the intents; the newest is kept, however long."""


class CapabilitySets:
    def __init__(self, max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_kept_bytes = max_kept_bytes
        self._kept: OrderedDict[str, tuple[Capabilities, int]] = OrderedDict()
        self._kept_bytes = 0

    def get(self, handoff: str) -> Capabilities | None:
        """The handoff's set, if it is kept."""
        found = self._kept.get(handoff)
        if found is None:
            return None
        self._kept.move_to_end(handoff)
        return found[0]

    async def take_up(self, handoff: str, intent: bytes) -> None:
        """Reads the set from an intent's canonical bytes, and keeps it."""
        raw = capabilities_in(intent)
        size = len(bytes(raw))
        if size > LONG_SET_BYTES:
            found = await asyncio.to_thread(capabilities_of, raw)
        else:
            found = capabilities_of(raw)
        self._drop(handoff)
        self._kept[handoff] = (found, size)
        self._kept_bytes += size
        while self._kept_bytes > self._max_kept_bytes and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def _drop(self, handoff: str) -> None:
        _, size = self._kept.pop(handoff, (None, 0))
        self._kept_bytes -= size
