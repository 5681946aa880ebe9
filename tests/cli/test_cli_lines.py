"""What a program prints is split into what it says and what is passed through, however it comes."""

import random

import pytest

from dhp_client.programs.lines import UNDECIDED_BYTES, Command, Lines, Misfit

MAX_LINE_BYTES = 1_000


def split(*pieces: bytes) -> tuple[bytes, list[Command | Misfit]]:
    """All that is passed through, and the rest in order."""
    lines = Lines(MAX_LINE_BYTES)
    found = [each for piece in pieces for each in lines.feed(piece)]
    found += lines.end()
    passed = b"".join(each for each in found if isinstance(each, bytes))
    return passed, [each for each in found if not isinstance(each, bytes)]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b'{"checkpoint": {"n": 1}}', Command("checkpoint", {"n": 1})),
        (b' \t{ "result" : null } \r', Command("result", None)),
        (b'{"activity":"\xc3\xa4"}', Command("activity", "ä")),
        (b'{"checkpoint": 123456789012345678901234567890}', Command("checkpoint", 123456789012345678901234567890)),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b""], ids=["ended", "without a line's end"])
def test_a_command_is_an_object_with_just_its_member(line: bytes, command: Command, end: bytes) -> None:
    assert split(line + end) == (b"", [command])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"plain",
        b"{",
        b'"checkpoint"',
        b'["checkpoint"]',
        b'{"level":"info","result":1}',
        b'{"checkpoints": 1}',
        b'x {"result": 1}',
        b"\x00\xff\xfe{",
        b"{" * 200,
        b" " * 200,
    ],
)
def test_what_does_not_begin_as_a_command_is_passed_through_without_a_word(line: bytes) -> None:
    for end in (b"", b"\n", b"\r\n"):
        assert split(line + end) == (line + end, [])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"result": 1, "ms": 3}', "other members"),
        (b'{"checkpoint": NaN}', "no JSON"),
        (b'{"checkpoint": 1} {"checkpoint": 2}', "no JSON"),
        (b'{"checkpoint": "half', "no JSON"),
        (b'{"checkpoint": "\xff"}', "no JSON"),
        (b'{"checkpoint": "' + b"x" * MAX_LINE_BYTES + b'"}', "longer than 1000 bytes"),
    ],
)
def test_what_only_begins_as_a_command_is_passed_through_and_told(line: bytes, why: str) -> None:
    passed, found = split(line[:700], line[700:] + b"\n")
    assert passed == line + b"\n"
    (misfit,) = found
    assert isinstance(misfit, Misfit)
    assert why in misfit.why


def test_the_order_of_what_is_said_and_printed_is_kept() -> None:
    lines = Lines(MAX_LINE_BYTES)
    printed = b'one\n{"checkpoint":1}\ntwo\nthree\n{"result":2}\n{"checkpoint"'
    assert list(lines.feed(printed)) == [b"one\n", Command("checkpoint", 1), b"two\nthree\n", Command("result", 2)]
    assert list(lines.feed(b":3}")) == []
    assert list(lines.end()) == [Command("checkpoint", 3)]


def test_half_a_line_that_is_no_command_is_passed_on_at_once() -> None:
    lines = Lines(MAX_LINE_BYTES)
    assert list(lines.feed(b"Name? ")) == [b"Name? "]
    assert list(lines.feed(b'{"checkpoint":1}\n')) == [b'{"checkpoint":1}\n'], "it isn't at the beginning of a line"
    assert list(lines.feed(b'{"level":"info","text":"' + b"x" * UNDECIDED_BYTES)) != []


def test_an_endless_line_is_never_held_beyond_the_bound() -> None:
    for beginning in (b'{"checkpoint": "', b"{", b"x"):
        lines = Lines(MAX_LINE_BYTES)
        passed = list(lines.feed(beginning))
        for _ in range(50):
            passed += lines.feed(b"y" * 100)
            assert len(lines._held) <= MAX_LINE_BYTES
        assert b"".join(each for each in passed if isinstance(each, bytes)) == beginning + b"y" * 5_000


def test_pieces_of_any_size_come_to_the_same(rng: random.Random) -> None:
    parts = [
        b'{"checkpoint": %d}\n' % rng.randrange(10**6),
        b'{"result": [1, 2]}\r\n',
        b'{"resul": 1}\n',
        b"text \xff\n",
        b"\n",
        b'  {"spend":{"steps":1}}\n',
        b'{"fail": "no", "x": 1}\n',
        b'{"activity"\n',
    ]
    printed = b"".join(rng.choices(parts, k=60))
    whole = split(printed)
    for size in (1, 2, 7, 64):
        assert split(*(printed[at : at + size] for at in range(0, len(printed), size))) == whole
