"""Framing: the vectors, in whatever pieces they arrive, and what is held of an unfinished frame."""

import gc
import random
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhp_protocol.framing import Fault, Frame, Framer, encode_frame

from .vectors import Case, load, parameters, spelled

LONGEST_HEAD = len("9999999999 ")
SMALL = [case for case in load("frames") if sum(len(spelled(chunk)) for chunk in case["chunks"]) < 10_000]


def told(chunks: Iterable[bytes], max_frame_bytes: int) -> list[Frame | Fault]:
    """Everything that a framer makes of these chunks and the end of the stream."""
    framer = Framer(max_frame_bytes)
    events: list[Frame | Fault] = []
    assert not list(framer.feed(b""))
    for chunk in chunks:
        events += framer.feed(chunk)
        # A read at the limit, its head, its CR and its LF: never more, whatever the peer sends.
        assert framer.held_bytes <= max_frame_bytes + LONGEST_HEAD + 2
    events += framer.finish()
    assert framer.held_bytes == 0
    return events


def expected(case: Case) -> list[tuple[object, ...]]:
    return [
        (event["fault"], event["counted"], event["closes"])
        if "fault" in event
        else (spelled(event["frame"]), event["counted"])
        for event in case["events"]
    ]


def plain(events: Iterable[Frame | Fault]) -> list[tuple[object, ...]]:
    return [
        (event.body, event.counted) if isinstance(event, Frame) else (event.error.code, event.counted, event.close)
        for event in events
    ]


@pytest.mark.parametrize("case", parameters("frames"))
def test_vector(case: Case) -> None:
    events = told([spelled(chunk) for chunk in case["chunks"]], case["max_frame_bytes"])
    assert plain(events) == expected(case)
    for event, wanted in zip(events, case["events"], strict=True):
        if isinstance(event, Fault) and "details" in wanted:
            assert event.error.details == wanted["details"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"].replace(" ", "-")) for case in SMALL])
def test_vector_however_it_is_cut(case: Case, rng: random.Random) -> None:
    stream = b"".join(spelled(chunk) for chunk in case["chunks"])
    wanted = expected(case)
    assert plain(told([stream], case["max_frame_bytes"])) == wanted
    assert plain(told((bytes((byte,)) for byte in stream), case["max_frame_bytes"])) == wanted
    for _ in range(20):
        cuts = sorted(rng.choices(range(len(stream) + 1), k=rng.randrange(6)))
        pieces = [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)])]
        assert plain(told(pieces, case["max_frame_bytes"])) == wanted


LINES = st.one_of(
    st.binary(max_size=30).map(lambda body: encode_frame(body, counted=True)),
    st.binary(max_size=30).map(lambda tail: encode_frame(b"{" + tail, counted=False)),
    st.sampled_from([b"\n", b"\r\n", b"\r", b"007 x\n", b"12 x\n", b"5", b"99 ", b"99999999999", b"{", b"0 \n"]),
    st.binary(max_size=40),
)


@given(lines=st.lists(LINES, max_size=8), cuts=st.lists(st.integers(0, 300), max_size=8))
def test_any_stream_gives_the_same_events_however_it_is_cut(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(lines)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    whole = plain(told([stream], 25))
    assert plain(told([stream[start:end] for start, end in pairwise(edges)], 25)) == whole
    assert plain(told((bytes((byte,)) for byte in stream), 25)) == whole
    closing = [event for event in whole if event[-1] is True and len(event) == 3]
    assert closing in ([], whole[-1:]), "nothing comes after what closes"


@given(bodies=st.lists(st.tuples(st.binary(max_size=60), st.booleans()), max_size=10))
def test_what_is_encoded_is_read_back(bodies: list[tuple[bytes, bool]]) -> None:
    clean = [
        (body.replace(b"\n", b"").replace(b"\r", b""), counted) if counted else (b"{" + body.hex().encode(), counted)
        for body, counted in bodies
    ]
    stream = b"".join(encode_frame(body, counted=counted) for body, counted in clean)
    assert plain(told([stream], 1000)) == clean


def test_an_endless_line_is_never_held() -> None:
    framer = Framer(1000)
    assert plain(framer.feed(b"x" * 5000)) == [("bad_frame", False, False)]
    for _ in range(100):
        assert not list(framer.feed(b"y" * 5000))
        assert framer.held_bytes == 0


def test_a_frame_that_is_too_long_is_never_held() -> None:
    framer = Framer(1000)
    assert plain(framer.feed(b"1000000 ")) == [("frame_too_large", True, False)]
    for _ in range(100):
        assert not list(framer.feed(b"y" * 10_000))
        assert framer.held_bytes == 0
    assert plain(framer.feed(b"\n2 {}\n")) == [(b"{}", True)]


def test_a_reader_that_stops_half_way_misses_nothing() -> None:
    framer = Framer(1000)
    assert isinstance(next(framer.feed(b"2 {}\n{}\n{}\n")), Frame)
    assert plain(framer.feed(b"")) == [(b"{}", False), (b"{}", False)]


def test_after_a_fault_that_closes_nothing_is_taken_in() -> None:
    framer = Framer(1000)
    assert plain(framer.feed(b"01 {}\n")) == [("bad_frame", False, True)]
    assert not list(framer.feed(b"2 {}\n"))
    assert framer.held_bytes == 0
    assert not list(framer.finish())


def test_of_a_read_that_ends_in_the_middle_of_a_frame_only_that_is_kept() -> None:
    framer = Framer(1_000)
    read = b"2 {}\n" * 10_000 + b"2"
    assert len(list(framer.feed(read))) == 10_000
    assert framer.held_bytes == 1
    assert not any(read is held for held in gc.get_referents(framer.__dict__)), "many connections say nothing for long"


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_reader_that_asks_for_no_more_has_the_framer_hold_nothing_that_was_read(counted: bool, pieces: int) -> None:
    framer = Framer(1_000)
    data = encode_frame(b'{"op":"ping","text":"' + b"x" * 500 + b'"}', counted=counted)
    cut = len(data) if pieces == 1 else len(data) // 2
    for piece in (data[:cut], data[cut:]):
        framer.hold(piece)
    assert isinstance(framer.next(), Frame)
    held = [value for value in framer.__dict__.values() if isinstance(value, bytes | bytearray)]
    assert held == [b""], "many connections say nothing for long"


@pytest.mark.parametrize("piece_bytes", [1, 7, 1_000])
@pytest.mark.parametrize("counted", [True, False])
def test_a_frame_that_is_given_up_is_skipped_and_the_next_one_is_taken(counted: bool, piece_bytes: int) -> None:
    body = b'{"op":"ping","text":"' + b"x" * 500 + b'"}'
    stream = encode_frame(body, counted=counted) + encode_frame(b"{}", counted=counted)
    for cut in range(1, len(stream) - len(encode_frame(b"{}", counted=counted))):
        framer = Framer(1_000)
        assert list(framer.feed(stream[:cut])) == []
        told = framer.give_up()
        if told is None:
            assert counted, "only a length that isn't whole is kept"
            assert cut <= 3
            continue
        assert (told, framer.held_bytes) == (counted, 0)
        rest = stream[cut:]
        pieces = (rest[start : start + piece_bytes] for start in range(0, len(rest), piece_bytes))
        assert [item for piece in pieces for item in framer.feed(piece)] == [Frame(b"{}", counted)]


def test_nothing_is_given_up_where_nothing_is_held() -> None:
    framer = Framer(1_000)
    assert list(framer.feed(b"{}\n")) == [Frame(b"{}", False)]
    assert framer.give_up() is None
    assert list(framer.feed(b"{}\n")) == [Frame(b"{}", False)]
