"""What types the pages finds out when something else is answered than is printed."""

from pathlib import Path

import pytest

from .blocks import Block
from .terminals import Walk, fits, steps


@pytest.mark.parametrize(
    ("said", "printed", "fitting"),
    [
        ("a\nb\n", ["a", "b"], True),
        ("a\nb\n", ["a"], False),
        ("a\n", ["a", "b"], False),
        ("seq 12 (of 20)\n", ["seq … (of 20)"], True),
        ("seq 12 (of 21)\n", ["seq … (of 20)"], False),
        ("a\nb\nc\n", ["a", "…", "c"], True),
        ("a\nb\n", ["a", "…", "c"], False),
        ("at 2026-11-30T07:02:29.655Z\n", ["at 2001-01-01T00:00:00.000Z"], True),
        ("at 2026-11-30\n", ["at 2001-01-01T00:00:00.000Z"], False),
        ("[1] 4711\n[1]+  Killed  x\n", [], True),
        ("{}[1]+  Done   x &\n\n", ["{}"], True),
        ("[1]\n", [], False),
    ],
)
def test_only_what_is_printed_fits(said: str, printed: list[str], fitting: bool) -> None:
    assert fits(said, printed) is fitting


def test_a_console_is_taken_apart() -> None:
    told = [(step.by, step.typed, step.printed) for step in steps("more\n$ nc -l\n> {}\n{}\n^C\n$ true\n")]
    assert told == [
        ("nobody", "", ["more"]),
        ("shell", "nc -l", []),
        ("program", "{}", ["{}"]),
        ("interrupt", "", []),
        ("shell", "true", []),
    ]


def test_a_walk_stops_where_something_else_is_answered(tmp_path: Path) -> None:
    walk = Walk(tmp_path, {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
    try:
        walk.follow(block_of("$ x=7\n$ cat\n> $x\n$x\n^C\n$ echo $x\n7\n"))
        with pytest.raises(AssertionError, match="what is answered isn't what is printed"):
            walk.follow(block_of("$ echo $x\n8\n"))
        with pytest.raises(AssertionError, match="as what to save it"):
            walk.follow(block_of("print()", language="python"))
    finally:
        walk.close()


def block_of(text: str, language: str = "console") -> Block:
    return Block("a.md", "A section", language, 0, text, 7, "In a terminal:")
