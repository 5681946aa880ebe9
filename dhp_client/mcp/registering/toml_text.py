"""Changing one table of a TOML text, and nothing else.

Owns a table of plain values (text, lists of text) at the text's end, or where it stands. Python reads TOML but doesn't write it, so
each change is read again, and given up where anything else came of it. Pure. Raises `NotChanged`.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from .refusals import NotChanged

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


def read(text: str) -> dict[str, Any]:
    """What the text holds."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:  # An integer of thousands of digits is a ValueError of Python's.
        raise NotChanged(f"it is no TOML: {error}") from None


def with_table(text: str, group: str, name: str, values: Mapping[str, Any]) -> str:
    """The text, in which the table `group.name` has these values; others in it stay."""
    before = read(text)
    tables = before.get(group, {})
    if not isinstance(tables, dict):
        raise NotChanged(f"its {group} is no table")
    found = tables.get(name)
    if not isinstance(found, dict | None):
        raise NotChanged(f"its {group}.{name} is no table")
    wanted = {**(found or {}), **values}
    if found == wanted:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"{key} = {_dumped(value)}" for key, value in values.items() if (found or {}).get(key) != value]
    if found is None:
        gap = "" if not text else newline if text.endswith("\n") else newline * 2
        changed = text + gap + newline.join([f"[{group}.{name}]", *lines, ""])
    else:
        start, end = _place(text, group, name)
        block = text[start:end]
        for line in lines:
            key = line.partition(" ")[0]
            there = re.compile(rf"^[ \t]*{key}[ \t]*=[^\r\n]*", re.MULTILINE)
            if there.search(block):
                block = there.sub(lambda _, line=line: line, block, count=1)  # type: ignore[misc]
            else:
                head, ending, rest = block.partition("\n")
                block = f"{head}{ending}{line}{newline}{rest}" if ending else f"{head}{newline}{line}{newline}"
        changed = text[:start] + block + text[end:]
    return _checked(changed, before, group, name, wanted)


def without_table(text: str, group: str, name: str) -> str:
    """The text without the table `group.name` and those below it."""
    before = read(text)
    if not isinstance(before.get(group), dict) or name not in before[group]:
        return text
    start, end = _place(text, group, name, below=True)
    kept = text[:start]
    if not text[end:].strip():  # The blank line before it was put there with it.
        kept = kept.rstrip() + ("\r\n" if "\r\n" in text else "\n") if kept.strip() else ""
    return _checked(kept + text[end:], before, group, name, None)


def _place(text: str, group: str, name: str, *, below: bool = False) -> tuple[int, int]:
    """From the table's header to the next one; `below`: to the next that isn't of a table below it."""
    quoted = rf"""(?:{re.escape(name)}|"{re.escape(name)}"|'{re.escape(name)}')"""
    header = re.compile(rf"^[ \t]*\[[ \t]*{re.escape(group)}[ \t]*\.[ \t]*{quoted}[ \t]*\]", re.MULTILINE)
    found = header.search(text)
    if found is None:
        raise NotChanged(f"{group}.{name} is written in a way of its own")
    inner = re.compile(rf"[ \t]*\[+[ \t]*{re.escape(group)}[ \t]*\.[ \t]*{quoted}[ \t]*\.")
    for following in _HEADER.finditer(text, found.end()):
        if not (below and inner.match(text, following.start())):
            return found.start(), following.start()
    return found.start(), len(text)


def _checked(changed: str, before: dict[str, Any], group: str, name: str, wanted: dict[str, Any] | None) -> str:
    """The changed text, if exactly that has changed."""
    others = {key: value for key, value in before.get(group, {}).items() if key != name}
    entries = {**others, **({} if wanted is None else {name: wanted})}
    try:
        after = read(changed)
    except NotChanged:
        after = {}
    if {**before, group: entries} != {group: {}, **after}:
        raise NotChanged(f"{group}.{name} is written in a way of its own")
    return changed


def _dumped(value: Any) -> str:
    """Text and lists of text look in TOML as they do in JSON."""
    return json.dumps(value, ensure_ascii=False)
