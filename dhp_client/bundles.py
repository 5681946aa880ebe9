"""Bundles: a handoff out of one daemon and into another.

Owns putting the pages of an export together, and cutting a bundle into requests. What a bundle is, is `dhp_protocol.bundle`'s.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Raw

from dhp_protocol.errors import DHPError, InvalidRequest, NotFound
from dhp_protocol.limits import MAX_BUNDLE_LINES
from dhp_protocol.messages import Export, Import
from dhp_protocol.replies import AnyEvent, Empty, ExportReply, ImportReply

from .arguments import check_id
from .backoff import Patience
from .calls import Calls, or_unset
from .clock import monotonic_ms
from .connection import may_pass
from .exceptions import ConnectionLost, IntegrityError, NotConnected
from .link import Link
from .own_doing import imported_before

if TYPE_CHECKING:
    from dhp_protocol.bundle import Envelope

PART_BYTES = 1024 * 1024
_PART_OVERHEAD_BYTES = 1024


class Bundles(Calls):
    """The part of the client that moves work between daemons."""

    async def export(self, handoff: str) -> bytes:
        """The handoff with all that is known of it, as a bundle: JSON lines, to be kept in a file or given to `import_`.

        Work that isn't final is suspended by that, whoever holds it; only `resume` with `force` takes it up there again.
        """
        check_id(handoff)
        lines: list[bytes] = []
        place: str | None = None
        while place is not None or not lines:
            page = await self._call(Export(handoff=handoff, after=or_unset(place)), ExportReply)
            lines.extend(bytes(line) for line in page.records)
            place = page.next
        await asyncio.to_thread(_check, lines, handoff)
        return b"".join(line + b"\n" for line in lines)

    async def import_(self, bundle: bytes | Iterable[bytes | str]) -> ImportReply:
        """Brings a handoff in, whole or not at all: `bundle` is what `export` gave, or its lines.

        `created` is false where it was there already: then it goes on with what it lacks (`taken` records), or is left as it
        is. What isn't final arrives suspended: `resume` it. Raises `InvalidRequest` with the `line` (from 1) that was
        changed, is missing, or out of place.
        """
        lines = list(_lines_of(bundle))
        envelope = await asyncio.to_thread(_checked, lines)
        before = await self._position_of(envelope.handoff)
        patience = Patience(self._session.connection.retry_ms)
        again = False
        while True:
            self._session.check_usable()
            try:
                reply = await self._bring_in(lines)
                if again and not reply.taken:
                    return await imported_before(self._session.connection, reply, before)
                return reply
            except (OSError, ConnectionLost, NotConnected, DHPError) as error:
                if isinstance(error, DHPError) and not may_pass(error):
                    raise
                after_ms = error.after_ms or 0 if isinstance(error, DHPError) else 0
                pause_ms = patience.pause_ms(monotonic_ms(), at_least_ms=after_ms)
                if pause_ms is None:
                    raise
            again = True
            await asyncio.sleep(pause_ms / 1000)

    async def _position_of(self, handoff: str) -> int:
        """Of its newest record; 0: it isn't there."""
        try:
            return (await self._status(handoff)).position
        except NotFound:
            return 0

    async def _bring_in(self, lines: list[bytes]) -> ImportReply:
        """On a connection of its own, since a daemon takes in one bundle at a time on each."""
        connection = self._session.connection
        link = await connection.open_side_link(_unheard, _unminded)
        try:
            *parts, last = _parts(lines, min(PART_BYTES, connection.limits.max_frame_bytes - _PART_OVERHEAD_BYTES))
            for part in parts:
                await connection.exchange_on(link, Import(records=part), Empty)
            return await connection.exchange_on(link, Import(records=last), ImportReply)
        finally:
            link.abort()


def _lines_of(bundle: bytes | Iterable[bytes | str]) -> Iterator[bytes]:
    """The lines that hold anything, without their ends."""
    for line in bundle.split(b"\n") if isinstance(bundle, bytes) else bundle:
        text = (line.encode() if isinstance(line, str) else line).strip()
        if text:
            yield text


def _parts(lines: list[bytes], part_bytes: int) -> Iterator[list[Raw]]:
    """The lines in parts of that many bytes, or of one line that is longer."""
    part: list[Raw] = []
    size = 0
    for line in lines:
        if part and (size + len(line) + 1 > part_bytes or len(part) == MAX_BUNDLE_LINES):
            yield part
            part, size = [], 0
        part.append(Raw(line))
        size += len(line) + 1
    yield part


def _checked(lines: list[bytes]) -> "Envelope":
    """The bundle's envelope. Raises `InvalidRequest`."""
    from dhp_protocol.bundle import (
        check_bundle,
    )  # Brings the daemon's own decoding along, which nothing else here needs.

    return check_bundle(lines)


def _check(lines: list[bytes], handoff: str) -> None:
    """Raises `IntegrityError` unless these are a whole bundle of that handoff, which nobody has changed on the way."""
    try:
        envelope = _checked(lines)
    except InvalidRequest as error:
        raise IntegrityError(f"The daemon sent no good bundle: {error}") from None
    if envelope.handoff != handoff:
        raise IntegrityError(f"The daemon sent the bundle of {envelope.handoff}, asked for {handoff}.")


def _unheard(event: AnyEvent) -> None:
    """Nothing that is said to this connection is of interest."""


def _unminded(link: Link) -> None:
    """Whoever waits on the connection hears of its end by itself."""
