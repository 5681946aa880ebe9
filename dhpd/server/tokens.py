"""The tokens in force: which one a caller has proved, and what becomes of it when the file changes.

Owns the comparison, and following the file. A secret is hashed at once, compared with every token in constant time, and
never kept. Does not own the file's form (`dhpd.token_file`), nor connections (`admission`).
"""

import asyncio
import contextlib
import hashlib
import hmac
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from dhpd.config import ConfigError
from dhpd.engine.roles import Caller
from dhpd.token_file import TokenEntry, parse_tokens

LOOK_EVERY_S = 1.0

_log = logging.getLogger(__name__)


class _Look(Struct, frozen=True):
    """Which file it was, and what stood in it, or why it can't be used."""

    identity: tuple[int, ...] | None
    entries: list[TokenEntry]
    problem: str | None = None


class Tokens:
    def __init__(self, path: Path) -> None:
        """Reads the file; raises `ConfigError`."""
        self._path = path
        self._callers: dict[tuple[str, str], Caller] = {}  # By name and hash.
        self._asked = asyncio.Event()
        self._askers: list[asyncio.Future[str | None]] = []
        first = _read(path)
        if first.problem is not None:
            raise ConfigError(first.problem)
        self._seen = self._tried = first.identity
        self._take(first.entries)

    def find(self, token: str) -> Caller | None:
        """Who has this token; it takes as long whether or not anybody does."""
        digest = hashlib.sha256(token.encode()).hexdigest()
        found = None
        for (_, sha256), caller in self._callers.items():
            if hmac.compare_digest(sha256, digest):
                found = caller
        return found

    async def reload(self) -> str | None:
        """Has the file read again, whether or not it looks changed; tells what is wrong with it, and that all stayed as it was.

        Whoever follows does it, so that nobody takes up an older reading after a newer one.
        """
        asker: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._askers.append(asker)
        self._asked.set()
        return await asker

    async def follow(self, changed: Callable[[], None]) -> None:
        """Takes up what changes in the file, and calls `changed` then; one that can't be used leaves all as it was."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._asked.wait()
            askers, self._askers = self._askers, []
            self._asked.clear()
            look = await asyncio.to_thread(self._look, bool(askers))
            refused = None
            if look is not None and look.problem is not None:
                refused = f"{look.problem} The tokens from before stay in force."
                _log.error("%s", refused)
            elif look is not None:
                self._take(look.entries)
                _log.info("the token file was read: %d tokens are in force", len(look.entries))
                changed()
            for asker in askers:
                if not asker.done():
                    asker.set_result(refused)

    def _look(self, asked: bool) -> _Look | None:
        """The file, unless it is the one that was tried last, or is just being written where it lies."""
        identity = _identity(self._path)
        seen, self._seen = self._seen, identity
        written_in_place = None not in (seen, identity) and seen != identity and seen[:2] == identity[:2]  # type: ignore[index]
        if not asked and (identity == self._tried or written_in_place):
            return None
        look = _read(self._path)
        self._tried = look.identity
        return look

    def _take(self, entries: list[TokenEntry]) -> None:
        before, self._callers = self._callers, {}
        for entry in entries:
            key = (entry.name, entry.sha256)
            caller = before.pop(key, None) or Caller(entry.name, ())
            caller.roles = frozenset(entry.roles)
            self._callers[key] = caller
        for gone in before.values():
            gone.roles = frozenset()


def _read(path: Path) -> _Look:
    identity = None
    try:
        # A pipe that nobody writes to isn't waited for.
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            identity = _identity_of(found)  # Before its text: what changes afterwards is seen later.
            _check_file(path, found.st_mode)
            return _Look(identity, parse_tokens(file.read().decode(), path))
    except OSError as error:
        return _Look(identity, [], f"The token file {path} can't be read: {error.strerror}.")
    except UnicodeDecodeError:
        return _Look(identity, [], f"The token file {path} isn't UTF-8.")
    except ConfigError as error:
        return _Look(identity, [], str(error))


def _check_file(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise ConfigError(f"The token file {path} isn't a plain file.")
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        sentence = (
            f"others may write it (mode {stat.S_IMODE(mode):04o}), and could make themselves tokens: chmod go-w it"
        )
        raise ConfigError(f"The token file {path} can't be used: {sentence}.")


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        return _identity_of(path.stat())
    except OSError:
        return None


def _identity_of(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
