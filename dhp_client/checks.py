"""What `dhp demo` and `dhp chaos` claim of a run: whether each claim is so, and how that is shown.

Pure. What is claimed, and of what, is theirs.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct


class Check(Struct, frozen=True):
    """A claim, and whether it is so; `found` says what was seen."""

    ok: bool
    claim: str
    found: str


def check_lines(checks: Iterable[Check]) -> Iterator[str]:
    """One line each, for people."""
    for check in checks:
        yield f"  {'ok    ' if check.ok else 'NOT SO'}  {check.claim} ({check.found})"
