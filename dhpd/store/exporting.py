"""Pages of a bundle, read from the journal.

Owns which records and payloads go into a page, where the next one goes on, and that a long line is made in steps, between
which the loop sees to others. Does not own the form of the lines (`dhp_protocol.bundle`).
"""

import asyncio
from collections.abc import Iterator

from msgspec import Raw

from dhp_protocol.bundle import BundleWriter
from dhp_protocol.errors import InvalidRequest, StoreUnavailable, TooLarge
from dhp_protocol.replies import ExportReply
from dhpd.engine.foreign_records import members_of, payload_sha256
from dhpd.engine.lookups import ExportLookup
from dhpd.engine.records import Checkpointed, Exported, stays

from .backend import StoreBackend, StoredRecord

RECORDS_AT_ONCE = 256
PIECES_OF_A_STEP = 8
"""So many pieces of a line are made before the loop sees to others; a short line has fewer."""
PLACE_BYTES = 1_024
"""Kept free for the trailer, and for the place where the next page goes on."""


async def export_page(lookup: ExportLookup, store: StoreBackend, room_bytes: int, most_bytes: int) -> ExportReply:
    """The next lines, as many as have room, and at least one; a line has `most_bytes` at most.

    Whatever has happened since the `exported` record isn't shown, and checkpoints that were pruned since then are left out.
    """
    writer = BundleWriter(lookup.lines, lookup.chain)
    lines: list[Raw] = []
    room_bytes -= PLACE_BYTES
    after = lookup.after
    if not lookup.lines:
        intent = await _payload(store, lookup.number)
        envelope = writer.envelope_pieces(
            lookup.handoff, intent, n=lookup.n, seq=lookup.seq, steps=lookup.steps, usd_nano=lookup.usd_nano
        )
        lines.append(_fitting(await _in_steps(envelope), most_bytes))
        room_bytes -= len(bytes(lines[0]))
    while True:
        records = await store.records_of(lookup.head, after, RECORDS_AT_ONCE)
        if not records:
            raise StoreUnavailable("What this answer shows could not be read: send the same request again.")
        for stored in records:
            if stored.handoff != lookup.handoff or (
                stored.record.n >= lookup.n and not isinstance(stored.record, Exported)
            ):
                raise InvalidRequest("This is no place in a bundle of this handoff: export it anew.", member="after")
            if stored.record.n == lookup.n:
                lines.append(Raw(writer.trailer()))
                return ExportReply(records=lines, next=None)
            before = writer.lines, writer.chain
            line = await _line(stored, lookup, store, writer)
            if line is not None:
                room_bytes -= len(line) + 1
                if room_bytes < 0 and lines:
                    place = f"{lookup.number}-{lookup.n}-{after}-{before[0]}-{before[1]}"
                    return ExportReply(records=lines, next=place)
                lines.append(_fitting(line, most_bytes))
            after = stored.record.n


async def _line(stored: StoredRecord, lookup: ExportLookup, store: StoreBackend, writer: BundleWriter) -> bytes | None:
    """The record's line; None: it isn't part of the bundle."""
    record = stored.record
    pruned = isinstance(record, Checkpointed) and record.seq <= lookup.replaced_seq
    if stays(record) or pruned:
        return None
    sha256 = payload_sha256(record)
    payload = None if sha256 is None else (await store.payloads([stored.position])).get(stored.position)
    if payload is None and isinstance(record, Checkpointed):
        return None  # It was pruned just now.
    return await _in_steps(writer.record_pieces(members_of(record), sha256, payload))


async def _in_steps(pieces: Iterator[bytes]) -> bytes:
    """The whole line."""
    made = []
    for piece in pieces:
        made.append(piece)
        if len(made) % PIECES_OF_A_STEP == 0:
            await asyncio.sleep(0)
    return b"".join(made)


async def _payload(store: StoreBackend, position: int) -> bytes:
    payloads = await store.payloads([position])
    if position not in payloads:
        raise StoreUnavailable("What this answer shows could not be read: send the same request again.")
    return payloads[position]


def _fitting(line: bytes, most_bytes: int) -> Raw:
    if len(line) > most_bytes:
        sentence = "A line of this bundle doesn't fit into a frame: set max_frame_bytes higher."
        raise TooLarge(sentence, member="records", limit=most_bytes, size=len(line))
    return Raw(line)
