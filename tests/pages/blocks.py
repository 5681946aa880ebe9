"""The fenced blocks of the pages, as tests take them to run them.

Owns finding a block by the place where it stands, and which pages there are. Does not own running anything (`terminals`, and each
page's own test), nor seeing that every block is taken by a test (`test_every_block_is_run`), which goes by the calls of the
functions here: so their arguments are literals, or names of literals in the test's module.
"""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "bench/README.md",
    *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").glob("**/*.md"))),
)
"""Of `protocol/SPEC.md` tests/protocol and tests/conformance look at all that it says, examples among it."""

_FENCE = re.compile(r"^ *(`{3,}|~{3,}) *(\S*)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$")


class Block(NamedTuple):
    """One fenced block."""

    page: str
    section: str
    """The heading above it, of whatever level."""
    language: str
    """What stands behind the fence; empty where nothing does."""
    number: int
    """Of the blocks of this language in this section, from 0."""
    text: str
    line: int
    """Of its fence, from 1."""
    before: str
    """The paragraph before it."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line} ({self.section}, {self.language or 'no language'}, {self.number})"


def block(page: str, section: str, language: str, number: int = 0) -> str:
    """The text of one block. Whoever takes it runs it."""
    found = [it for it in blocks_of(page) if (it.section, it.language, it.number) == (section, language, number)]
    assert len(found) == 1, f"{page} has no such block: {section!r}, {language!r}, {number}"
    return found[0].text


def programs(page: str) -> dict[str, tuple[str, str]]:
    """By section, a Python program and what it prints: all that such a page has."""
    sections: dict[str, list[Block]] = {}
    for it in blocks_of(page):
        sections.setdefault(it.section, []).append(it)
    pairs = {}
    for section, found in sections.items():
        assert [it.language for it in found] == ["python", "text"], f"{page}, {section}: a program, and what it prints"
        pairs[section] = (found[0].text, found[1].text)
    return pairs


def every_block(page: str) -> tuple[Block, ...]:
    """All of them, in order. Whoever takes them runs each."""
    return blocks_of(page)


@cache
def blocks_of(page: str) -> tuple[Block, ...]:
    """All of them, in order. Taking them from here claims nothing."""
    found: list[Block] = []
    section, paragraph, blank = "", "", True
    fence: tuple[str, str] | None = None
    inside: list[str] = []
    opened = 0
    for number, line in enumerate((ROOT / page).read_text("utf-8").splitlines(), 1):
        at = _FENCE.match(line)
        if fence is not None:
            if at is not None and at[1].startswith(fence[0]) and not at[2]:
                language, text = fence[1], "".join(f"{line}\n" for line in inside)
                nth = sum((it.section, it.language) == (section, language) for it in found)
                found.append(Block(page, section, language, nth, text, opened, paragraph))
                fence, paragraph = None, ""
            else:
                inside.append(line)
        elif at is not None:
            fence, inside, opened = (at[1], at[2]), [], number
        elif (heading := _HEADING.match(line)) is not None:
            section, paragraph = heading[1], ""
        elif line.strip():
            paragraph = line if blank else f"{paragraph} {line}"
        blank = not line.strip()
    assert fence is None, f"{page}:{opened}: this block has no end"
    return tuple(found)


def table(page: str, section: str, level: str = "##") -> list[list[str]]:
    """The rows of the table in that section of a page's text."""
    (text,) = re.findall(rf"^{level} {section}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
