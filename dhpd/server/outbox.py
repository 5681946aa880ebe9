"""What is on its way to one peer, and how much of it may lie unread.

Owns gathering and writing, telling when the peer doesn't read, and which events it loses by that: an event is a hint, so
where there is no room it is left out, and one word later says so. Does not own what is said, nor the end (`connection`).
"""

import asyncio
from typing import TYPE_CHECKING

from .commons import Commons

if TYPE_CHECKING:
    from .connection import Connection


class Outbox:
    def __init__(self, connection: "Connection", commons: Commons) -> None:
        self.frames: list[bytes] = []
        """To be written with the next `write`."""
        self.writable = asyncio.Event()
        self.writable.set()
        self.unread = False
        """More lies unsent than may: the peer doesn't read."""
        self.missed_events = False
        """Some were left out since the peer last read."""
        self._connection = connection
        self._room = commons.unsent
        self._transport: asyncio.Transport | None = None
        self._unsent_bytes = 0
        self._written_bytes = 0

    def open(self, transport: asyncio.Transport, max_unsent_bytes: int) -> None:
        """From now on there is somewhere to write to."""
        self._transport = transport
        transport.set_write_buffer_limits(high=max_unsent_bytes)

    def write(self) -> None:
        """Writes what was gathered, in one go."""
        data = b"".join(self.frames)
        self.frames.clear()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            self._written_bytes += len(data)
            self.measure()

    def gone_bytes(self) -> int:
        """How much has left since the beginning: it grows as long as the peer reads."""
        return self._written_bytes - (self._transport.get_write_buffer_size() if self._transport is not None else 0)

    def measure(self) -> None:
        """Takes note of how much lies unsent at this moment."""
        if self._transport is None:
            return
        before_bytes, self._unsent_bytes = self._unsent_bytes, self._transport.get_write_buffer_size()
        if self._unsent_bytes or before_bytes:
            self._room.hold(self._connection, self._unsent_bytes, got_on=self._unsent_bytes < before_bytes)

    def paused(self) -> None:
        """The peer doesn't read."""
        self.unread = True
        self.writable.clear()
        self.measure()

    def resumed(self) -> None:
        """It has read most of what there was."""
        self.unread = False
        self.writable.set()
        self.measure()

    def close(self) -> None:
        """The connection is gone."""
        self._transport = None
        self._unsent_bytes = 0
        self.writable.set()
        self._room.hold(self._connection, 0)
