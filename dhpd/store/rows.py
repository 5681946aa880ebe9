"""How records and facts lie in rows.

Owns the columns' order and the encoding of facts; the columns themselves stand in `schema`.
"""

from typing import Any

import msgspec

from dhpd.engine.facts import Handoff
from dhpd.engine.records import Checkpointed, Entry, Redriven, encode_record
from dhpd.engine.retention import prune_once_below

_encode = msgspec.msgpack.Encoder().encode
decode_facts = msgspec.msgpack.Decoder(Handoff).decode


def record_row(entry: Entry) -> tuple[Any, ...]:
    """A row of `journal`."""
    record = entry.record
    return (
        entry.position,
        bytes.fromhex(entry.handoff),
        record.n,
        record.seq or None if isinstance(record, (Checkpointed, Redriven)) else None,
        entry.prev,
        entry.anchor,
        encode_record(record),
        entry.payload,
    )


def facts_row(facts: Handoff) -> tuple[Any, ...]:
    """A row of `handoffs`."""
    return (
        facts.number,
        bytes.fromhex(facts.id),
        facts.status,
        facts.kind,
        facts.holder,
        _encode(facts),
        None if facts.parent is None else bytes.fromhex(facts.parent),
        facts.acked_at_ms if facts.acked else None,
        prune_once_below(facts),
    )


def encoded_label(name: str, value: str) -> bytes:
    """What stands in the encoded facts of every handoff that has this label."""
    return _encode(name) + _encode(value)
