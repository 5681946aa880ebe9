"""What is installed for the benchmark, and what is said of a package that can't be had."""

from collections.abc import Iterable
from pathlib import Path

from bench import environment

PYTHON = Path("python")


def test_all_are_installed_together_where_that_works() -> None:
    asked: list[list[str]] = []

    def install(python: Path, requirements: Iterable[str]) -> str:
        asked.append(list(requirements))
        return ""

    assert environment.installed(PYTHON, ["one", "two"], install) == {}
    assert asked == [["one", "two"]]


def test_one_that_cannot_be_had_leaves_the_others_and_is_named_with_its_reason() -> None:
    there: set[str] = set()

    def install(python: Path, requirements: Iterable[str]) -> str:
        wanted = set(requirements)
        if "two" in wanted:
            return "no matching distribution"
        there.update(wanted)
        return ""

    assert environment.installed(PYTHON, ["one", "two", "three"], install) == {"two": "no matching distribution"}
    assert there == {"one", "three"}


def test_a_package_that_is_not_there_has_no_version(tmp_path: Path) -> None:
    assert environment.version(tmp_path / "no-interpreter", "pip") is None
