"""What a package's metadata says of its licence, and whether that asks anything of whoever uses the package.

Owns the families of licences that ask for nothing but to be named, and how each is written. Pure.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from email.message import Message

PERMISSIVE = frozenset({"MIT", "MIT-0", "BSD-2-CLAUSE", "BSD-3-CLAUSE", "BSD", "APACHE-2.0", "ISC", "PSF-2.0"})
"""Identifiers of SPDX, and BSD for what doesn't say which of the two it means; in capitals."""
WORDS = {
    "MIT LICENSE": "MIT",
    "APACHE 2.0": "APACHE-2.0",
    "APACHE LICENSE 2.0": "APACHE-2.0",
    "APACHE LICENSE, VERSION 2.0": "APACHE-2.0",
    "APACHE SOFTWARE LICENSE": "APACHE-2.0",
    "3-CLAUSE BSD LICENSE": "BSD-3-CLAUSE",
    "BSD LICENSE": "BSD",
    "ISC LICENSE (ISCL)": "ISC",
    "MOZILLA PUBLIC LICENSE 2.0 (MPL 2.0)": "MPL-2.0",
}
"""What stands there instead of an identifier."""


def licences_of(metadata: Message) -> list[str]:
    """All that it says: expressions, which count each for itself. Where there is an expression, nothing else does."""
    if expressions := metadata.get_all("License-Expression"):
        return list(expressions)
    classified = [line for line in metadata.get_all("Classifier", []) if line.startswith("License ::")]
    if classified:
        return [line.rpartition(" :: ")[2] for line in classified]
    return [
        text.strip() for text in metadata.get_all("License", [])
    ]  # Some have the whole licence there, which is no name.


def is_permissive(told: Iterable[str], others: Collection[str] = ()) -> bool:
    """Whether all that is told is in the families above, or among `others`; nothing told isn't."""
    allowed = PERMISSIVE | set(others)
    answers = [_holds(text, allowed) for text in told]
    return bool(answers) and all(answers)


def _holds(text: str, allowed: Collection[str]) -> bool:
    """Whether an expression of SPDX can be met by what is allowed, or one of the `WORDS` is."""
    whole = text.strip().upper()
    if whole in WORDS:
        return WORDS[whole] in allowed
    tokens = re.findall(r"[()]|[^\s()]+", whole)
    rest = iter(tokens)
    met, left = _any_of(rest, allowed)
    return met and not left


def _any_of(tokens: Iterator[str], allowed: Collection[str]) -> tuple[bool, str]:
    """`A OR B AND C`; whether it is met, and the token behind it."""
    met, token = _all_of(tokens, allowed)
    while token == "OR":
        other, token = _all_of(tokens, allowed)
        met = met or other
    return met, token


def _all_of(tokens: Iterator[str], allowed: Collection[str]) -> tuple[bool, str]:
    met, token = _one(tokens, allowed)
    while token == "AND":
        other, token = _one(tokens, allowed)
        met = met and other
    return met, token


def _one(tokens: Iterator[str], allowed: Collection[str]) -> tuple[bool, str]:
    token = next(tokens, "")
    if token != "(":
        return token in allowed, next(tokens, "")
    met, closing = _any_of(tokens, allowed)
    return met and closing == ")", next(tokens, "")
