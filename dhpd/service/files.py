"""Files that an installation writes, and takes away again, without ever touching what somebody has changed.

Owns how such a file is told from a changed one: its first line holds the hash of all the others.
"""

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from dhpd.replacing import replace

MODE = 0o644
REPLACE = "look at it, and add --force to replace it. What should stay belongs into `systemctl edit dhpd.service`."
REMOVE = "look at it, and add --force to remove it."
_MARK = re.compile(
    r"\A# Written by dhpd \S+ \(`dhpd service install` replaces it unless it was changed: ([0-9a-f]{16})\)\n"
)


class Changed(Exception):
    """Files that somebody has changed, or that aren't ours; the message names them."""

    def __init__(self, paths: Iterable[Path], todo: str) -> None:
        super().__init__(f"{' and '.join(map(str, paths))} was changed, or written by somebody else: {todo}")


def marked(text: str, version: str) -> str:
    """The text with its first line."""
    return f"# Written by dhpd {version} (`dhpd service install` replaces it unless it was changed: {_digest(text)})\n{text}"


def is_unchanged(path: Path) -> bool:
    """Whether it stands as it was written, by this version or another, or isn't there."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return True
    except UnicodeDecodeError:
        return False
    found = _MARK.match(text)
    return found is not None and found[1] == _digest(text[found.end() :])


def write_all(texts: dict[Path, str], *, force: bool) -> list[Path]:
    """Writes each file that doesn't stand there like that, and gives those; raises `Changed` and writes none unless `force`."""
    refuse_changed(texts, force=force, todo=REPLACE)
    written = [path for path, text in texts.items() if not path.exists() or path.read_bytes() != text.encode()]
    for path in written:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        put(path, texts[path], MODE)
    return written


def remove_all(paths: Iterable[Path], *, force: bool) -> list[Path]:
    """Removes those that are there, and gives them; raises `Changed` and removes none unless `force`."""
    there = [path for path in paths if path.exists()]
    refuse_changed(there, force=force, todo=REMOVE)
    for path in there:
        path.unlink()
    return there


def put(path: Path, text: str, mode: int) -> None:
    """Writes it, of that mode."""
    replace(path, text, lambda descriptor: os.fchmod(descriptor, mode))


def refuse_changed(paths: Iterable[Path], *, force: bool, todo: str) -> None:
    """Raises `Changed` for those that somebody has changed; `todo` says what to do about them."""
    changed = [path for path in paths if not is_unchanged(path)]
    if changed and not force:
        raise Changed(changed, todo)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
