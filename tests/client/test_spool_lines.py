"""What a spool file's bytes mean: whole lines count, a torn end doesn't, and nothing else is taken for either."""

import hashlib
import random

import pytest
from msgspec import Raw

from dhp_client.spool_lines import (
    DIGEST_CHARS,
    FIRST_DIGEST,
    Answered,
    Contents,
    Head,
    KeptCheckpoint,
    KeptEffect,
    KeptResult,
    KeptSpend,
    Line,
    Reclaimed,
    Void,
    parsed,
    read,
    written,
)
from dhp_protocol.replies import StoredCheckpoint

HEAD = Head(
    handoff="a" * 64, kind="k", worker="w", fence=3, seq=7, sha256="7" * 64, unanswered=["u" * 64], at="", pid=1
)


def state(n: int) -> KeptCheckpoint:
    return KeptCheckpoint(state=Raw(b'{"n": %d}' % n), sha256=f"{n}" * 64, steps=2, usd=Raw(b"0.1"))


LINES: list[Line] = [
    HEAD,
    state(1),
    KeptSpend(usd=Raw(b"0.25"), steps=3, nonce="once"),
    KeptEffect(step="pay", result=Raw(b'"receipt"')),
    state(2),
    KeptResult(result=Raw(b"[1.0]")),
]


def file_of(*lines: Line) -> bytes:
    data, digest = b"", FIRST_DIGEST
    for line in lines:
        text, digest = written(line, digest)
        data += text
    return data


def contents_of(*lines: Line) -> Contents:
    found = read(file_of(*lines))
    assert found is not None
    assert not found.damaged
    return found


def test_what_was_written_waits_in_order_with_its_bytes_as_they_were() -> None:
    data = file_of(*LINES)
    found = contents_of(*LINES)
    assert [parsed(data[one.start : one.start + one.length]) for one in found.waiting] == LINES[1:]
    assert (found.checkpoints, found.usd, found.steps) == (2, 0.45, 7)
    assert (found.fence, found.seq, found.void) == (3, 7, None)


def test_marks_take_the_oldest_away_and_tell_how_it_stands() -> None:
    found = contents_of(*LINES, Reclaimed(fence=5), Answered(seq=8, sha256="1" * 64), Answered(seq=8, sha256="1" * 64))
    assert (found.fence, found.seq, len(found.waiting), found.checkpoints) == (5, 8, 3, 1)
    found = contents_of(*LINES, Answered(seq=7, sha256=None, error="too_large: no"), Void(why="x", fence=9, status="y"))
    assert (found.errors, found.void) == (["too_large: no"], Void(why="x", fence=9, status="y"))


def test_an_end_torn_anywhere_loses_what_was_not_whole_and_no_more() -> None:
    data = file_of(*LINES)
    whole = [len(file_of(*LINES[: n + 1])) for n in range(len(LINES))]
    for end in range(len(data)):
        found = read(data[:end])
        expected = sum(end >= length for length in whole)
        assert (0 if found is None else 1 + len(found.waiting)) == expected
        assert found is None or (not found.damaged and found.end == whole[expected - 1])


def test_what_is_written_after_a_torn_end_was_cut_off_counts() -> None:
    data = file_of(*LINES)[:-5]
    found = read(data)
    assert found is not None
    text, _ = written(state(9), found.digest)
    mended = read(data[: found.end] + text)
    assert mended is not None
    assert len(mended.waiting) == len(LINES) - 1


def test_any_changed_byte_before_the_last_line_is_damage_and_nothing_behind_it_counts(rng: random.Random) -> None:
    data = file_of(*LINES)
    last = len(file_of(*LINES[:-1]))
    first = len(file_of(HEAD))
    for place in rng.sample(range(first, last - 1), 60):
        changed = bytearray(data)
        changed[place] ^= 1 << rng.randrange(8)
        found = read(bytes(changed))
        assert found is not None
        assert found.damaged
        assert found.end <= place


def test_a_line_that_is_missing_from_the_middle_is_damage() -> None:
    found = read(file_of(*LINES).replace(file_of(*LINES[:2]).removeprefix(file_of(HEAD)), b""))
    assert found is not None
    assert (found.damaged, len(found.waiting)) == (True, 0)


def stored(seq: int, sha256: str) -> StoredCheckpoint:
    return StoredCheckpoint(seq=seq, state=Raw(b""), sha256=sha256, at="")


@pytest.mark.parametrize(
    ("seq", "sha256", "sent"),
    [
        (7, "7" * 64, 0),
        (8, "1" * 64, 1),
        (9, "2" * 64, 4),
        (8, "u" * 64, 0),
        (9, "1" * 64, 1),
        (10, "2" * 64, 4),
        (9, "u" * 64, None),
        (8, "2" * 64, None),
        (11, "2" * 64, None),
        (6, "7" * 64, None),
        (7, "8" * 64, None),
    ],
)
def test_it_goes_on_only_from_a_checkpoint_of_its_own(seq: int, sha256: str, sent: int | None) -> None:
    assert contents_of(*LINES).sent_up_to(stored(seq, sha256)) == sent


def test_what_was_given_up_before_it_leads_nothing_any_more_once_a_checkpoint_is_known_to_be_stored() -> None:
    found = contents_of(*LINES, Answered(seq=8, sha256="1" * 64))
    assert found.sent_up_to(stored(9, "2" * 64)) == 3
    assert found.sent_up_to(stored(10, "2" * 64)) is None
    assert found.sent_up_to(stored(9, "u" * 64)) is None


def test_with_no_checkpoint_before_it_goes_on_only_from_none() -> None:
    none = Head(handoff="a" * 64, kind="k", worker="w", fence=1, seq=0, sha256=None, unanswered=[], at="", pid=1)
    assert contents_of(none, state(1)).sent_up_to(None) == 0
    assert contents_of(*LINES).sent_up_to(None) is None


def test_a_later_version_is_not_guessed_at() -> None:
    later = Head(
        handoff="a" * 64, kind="k", worker="", fence=1, seq=0, sha256=None, unanswered=[], at="", pid=1, version=2
    )
    found = read(file_of(later, state(1)))
    assert found is not None
    assert found.damaged


UNUSABLE = {
    "deeper than anybody reads": b'{"line":"complete","result":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "money that is no number": b'{"line":"spend","usd":"many","steps":1,"nonce":"n"}',
    "money beyond every number": b'{"line":"spend","usd":1e999,"steps":1,"nonce":"n"}',
}


@pytest.mark.parametrize("body", UNUSABLE.values(), ids=UNUSABLE)
def test_a_line_that_no_client_wrote_is_damage_though_its_digest_fits(body: bytes) -> None:
    data = file_of(HEAD, state(1))
    digest = hashlib.sha256(contents_of(HEAD, state(1)).digest + body).hexdigest()[:DIGEST_CHARS].encode()
    contents = read(data + digest + b" " + body + b"\n" + data)
    assert contents is not None
    assert (contents.damaged, len(contents.waiting)) == (True, 1)
