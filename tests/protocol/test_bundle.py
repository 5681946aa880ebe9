"""Bundles: the vectors, what is made can be read, and no byte of a line can be changed unseen."""

import base64
import hashlib
import json
import random
from typing import Any

import pytest
from msgspec import Raw

from dhp_protocol.bundle import (
    PIECE_BYTES,
    BundledRecord,
    BundleReader,
    BundleWriter,
    Envelope,
    Trailer,
    check_bundle,
)
from dhp_protocol.errors import InvalidRequest
from dhp_protocol.intent import Intent, canonical_intent, handoff_id
from tests.protocol.vectors import Case, load, parameters
from tests.support.bundles import forged

INTENT = canonical_intent(Intent(kind="k", inputs=Raw(b"{}")))
HANDOFF = handoff_id(INTENT)


def made(records: list[tuple[dict[str, Any], str | None, bytes | None]]) -> list[bytes]:
    writer = BundleWriter()
    lines = [writer.envelope(HANDOFF, INTENT, n=9, seq=1, steps=2, usd_nano=3)]
    lines += [writer.record(*record) for record in records]
    return [*lines, writer.trailer()]


def refused_line(lines: list[bytes]) -> int:
    with pytest.raises(InvalidRequest) as caught:
        check_bundle(lines)
    assert caught.value.details["member"] == "records"
    line: int = caught.value.details["line"]
    return line


@pytest.mark.parametrize("case", parameters("bundles"))
def test_vectors(case: Case) -> None:
    lines = [line.encode() for line in case["lines"]]
    if "handoff" in case:
        assert check_bundle(lines).handoff == case["handoff"]
    else:
        assert refused_line(lines) == case["line"]


def test_what_is_written_is_what_a_forger_of_another_make_would_write() -> None:
    lines = made(
        [({"n": 1, "text": "\u00e9\U0001f600"}, None, None), ({"n": 2, "\uffff": 1, "\U0001f600": 2}, None, None)]
    )
    assert forged([json.loads(line) for line in lines]) == [json.loads(line) for line in lines]


@pytest.mark.parametrize("payload", [b"1", b'"\\u0000\\"\xc3\xa9"', b'{"a": [1.50, -0]}', b'"' + b'\\"' * 500 + b'"'])
def test_payloads_come_out_byte_for_byte(payload: bytes) -> None:
    sha256 = hashlib.sha256(payload).hexdigest()
    lines = made([({"n": 1}, sha256, payload)])
    assert max(map(len, lines)) < 1_000 + len(payload) * 4 / 3
    reader = BundleReader()
    envelope, record, trailer = (reader.take(line) for line in lines)
    assert isinstance(envelope, Envelope)
    assert record == BundledRecord({"n": 1}, sha256, payload)
    assert isinstance(trailer, Trailer)
    assert reader.finished


AT_A_PIECE = [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 2]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("a", "payload"),
        ("\u00e9", "payload"),
        ("\u20ac", "payload"),
        ("\U0001f600", "payload"),
        ("aaaaaa\\n", "payload"),  # One in eight is escaped.
        ('\\"', "payload_base64"),
        ("a\\\\", "payload_base64"),
    ],
)
@pytest.mark.parametrize("size", [10, *AT_A_PIECE])
@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_a_long_payload_goes_in_pieces_as_whatever_is_shorter(text: str, form: str, size: int, shift: int) -> None:
    payload = ('"' + "x" * shift + text * (size // len(text.encode()) + 1) + '"').encode()
    sha256 = hashlib.sha256(payload).hexdigest()
    writer = BundleWriter(1, "0")
    pieces = list(writer.record_pieces({"n": 1}, sha256, payload))
    assert max(map(len, pieces)) <= 4 / 3 * PIECE_BYTES + 4, "of one in eight, no more is escaped"
    line = json.loads(b"".join(pieces))
    assert list(line) == ["record", "sha256", form, "chain"]
    assert line["chain"] == writer.chain
    carried = line[form]
    assert (carried.encode() if form == "payload" else base64.b64decode(carried, validate=True)) == payload
    text_bytes = len(json.dumps(payload.decode(), ensure_ascii=False).encode())
    assert (form == "payload") == (text_bytes <= len(base64.b64encode(payload)) + 2), "whichever is shorter"


@pytest.mark.parametrize("size", [10, *AT_A_PIECE])
def test_a_long_intent_goes_in_pieces_as_text(size: int) -> None:
    intent = b'{"inputs":"%b"}' % (b'\\"' * size)
    line = b"".join(BundleWriter().envelope_pieces(HANDOFF, intent, n=9, seq=0, steps=0, usd_nano=0))
    assert json.loads(line)["intent"].encode() == intent
    assert line == BundleWriter().envelope(HANDOFF, intent, n=9, seq=0, steps=0, usd_nano=0)


def test_a_bundle_goes_on_where_another_writer_stopped() -> None:
    first = BundleWriter()
    lines = [first.envelope(HANDOFF, INTENT, n=9, seq=0, steps=0, usd_nano=0), first.record({"n": 1})]
    second = BundleWriter(first.lines, first.chain)
    lines += [second.record({"n": 2}), second.trailer()]
    assert lines == made_of(2)


def made_of(records: int) -> list[bytes]:
    writer = BundleWriter()
    lines = [writer.envelope(HANDOFF, INTENT, n=9, seq=0, steps=0, usd_nano=0)]
    lines += [writer.record({"n": number}) for number in range(1, records + 1)]
    return [*lines, writer.trailer()]


def test_a_refusal_is_short_however_long_the_line() -> None:
    lines = made([])
    lines[0] = lines[0][:-1] + b',"' + b"x" * 100_000 + b'":1}'
    with pytest.raises(InvalidRequest) as caught:
        check_bundle(lines)
    assert len(caught.value.message) < 500


def test_no_byte_is_changed_unseen(rng: random.Random) -> None:
    for case in load("bundles"):
        if "handoff" not in case:
            continue
        lines = [line.encode() for line in case["lines"]]
        meaning = [json.loads(line) for line in lines]
        for _ in range(400):
            number = rng.randrange(len(lines))
            text = bytearray(lines[number])
            text[rng.randrange(len(text))] = rng.randrange(256)
            changed = [*lines[:number], bytes(text), *lines[number + 1 :]]
            try:
                check_bundle(changed)
            except InvalidRequest as error:
                assert error.details["line"] == number + 1  # noqa: PT017
            else:
                assert [json.loads(line) for line in changed] == meaning
