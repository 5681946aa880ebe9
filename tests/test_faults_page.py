"""docs/faults.md names tests that are there, for each kind of fault at least one."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "faults.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def names_in(file: str) -> frozenset[str]:
    """The names of the tests in that file; none where there is no such file."""
    path = ROOT / file
    if not path.exists():
        return frozenset()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, functions) and node.name.startswith("test_")
    )


def rows() -> list[list[str]]:
    """The cells of every row that names a kind."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] not in ("Kind of fault", "---")]


def test_every_test_that_is_named_is_there() -> None:
    named = NAMED.findall(PAGE.read_text())
    assert len(named) > 100
    assert [f"{file}::{name}" for file, name in named if name not in names_in(file)] == []


def test_every_kind_of_fault_has_a_test() -> None:
    assert len(rows()) > 50
    for row in rows():
        assert len(row) == 2, row
        named = NAMED.findall(row[1])
        assert named, f"no test is named for: {row[0]}"
        assert len(named) == len(set(named)), f"a test is named twice for: {row[0]}"


def test_nothing_looks_like_a_test_and_is_read_as_none() -> None:
    assert PAGE.read_text().count("::") == len(NAMED.findall(PAGE.read_text()))
