"""The token file: who may speak over TCP, and what each may do.

Owns its form (TOML), what is wrong with one, and adding to it. A token itself never lies there, only its hash does; and
neither is ever shown. Does not own what a role may do (`dhpd.engine.roles`).
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from dhp_protocol.limits import MAX_NAME_CHARS
from dhpd.config import ConfigError
from dhpd.engine.roles import ROLES, Role

from .replacing import replace

WIDEST_MODE = 0o640
"""A file that others may read is closed to them; the group of one that the daemon reads through it keeps its right."""
TOKEN_BYTES = 32
TOKEN_PREFIX = "dhp_"
"""So that a token which got lost somewhere can be told for one."""


class TokenEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One token: its name, the SHA-256 of its UTF-8 bytes in lower-case hex, and its roles."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    roles: Annotated[list[Role], Meta(min_length=1)]

    def __repr__(self) -> str:
        return f"TokenEntry({self.name!r}, {self.roles})"


class _TokenFile(Struct, forbid_unknown_fields=True):
    token: Annotated[list[TokenEntry], Meta(min_length=1)]


def parse_tokens(text: str, path: Path) -> list[TokenEntry]:
    """The tokens in the text of `path`; raises `ConfigError`, which holds nothing of the text but where it is wrong."""
    import tomllib

    try:
        found = msgspec.convert(tomllib.loads(text), _TokenFile).token
    except msgspec.ValidationError as error:
        raise ConfigError(f"The token file {path} can't be used: {error}.") from None
    except (ValueError, RecursionError) as error:  # TOML has numbers longer than Python reads, and any depth.
        place = re.search(r"\(at [^()]*\)\Z", str(error))
        raise ConfigError(f"The token file {path} isn't TOML{f' {place[0]}' if place else ''}.") from None
    for member in ("name", "sha256"):
        values = [getattr(entry, member) for entry in found]
        if len(set(values)) < len(values):
            raise ConfigError(f"The token file {path} can't be used: two tokens have the same {member}.")
    if not all(entry.name.isprintable() for entry in found):
        raise ConfigError(f"The token file {path} can't be used: a name holds what can't be printed.")
    return found


def parse_roles(text: str) -> list[Role]:
    """Roles as a person writes them, `dispatcher,worker`; raises `ConfigError`."""
    wanted = [word.strip() for word in text.split(",")]
    unknown = [word for word in wanted if word not in ROLES]
    if unknown:
        raise ConfigError(f"{unknown[0]!r} is no role: the roles are {', '.join(ROLES)}.")
    return [role for role in ROLES if role in wanted]


def add_token(path: Path, name: str, roles: Sequence[Role]) -> str:
    """Makes a token, adds it to the file, which is made where there is none, and gives the token. Raises `ConfigError`.

    Readers find the file as it was or as it is then, whole. What stands in it is kept as it is written.
    """
    if not name.isprintable() or not 1 <= len(name) <= MAX_NAME_CHARS:
        raise ConfigError(f"A token's name has 1 to {MAX_NAME_CHARS} characters that can be printed.")
    path = Path(os.path.realpath(path))  # A link stays one.
    token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    try:
        with _alone_in(path.parent):
            before = path.read_text("utf-8") if path.exists() else ""
            if before.strip() and any(entry.name == name for entry in parse_tokens(before, path)):
                raise ConfigError(
                    f"{path} has a token named {name!r} already: choose another name, or remove it there."
                )
            after = _with_entry(before, name, hashlib.sha256(token.encode()).hexdigest(), roles)
            parse_tokens(after, path)
            replace(path, after, partial(_as_before, path))
    except UnicodeDecodeError:
        raise ConfigError(f"The token file {path} isn't UTF-8.") from None
    except OSError as error:
        raise ConfigError(f"The token file {path} can't be written: {error.strerror}.") from None
    return token


def _with_entry(before: str, name: str, sha256: str, roles: Sequence[Role]) -> str:
    if before and not before.endswith("\n"):
        before += "\n"
    # Of what can be printed, JSON writes text as TOML does.
    members = (f"name = {json.dumps(name, ensure_ascii=False)}", f'sha256 = "{sha256}"', f"roles = {json.dumps(roles)}")
    return before + ("\n" if before else "") + "\n".join(("[[token]]", *members)) + "\n"


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two who add at once would each leave the other's token out."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _as_before(path: Path, descriptor: int) -> None:
    """The daemon may run as somebody else than who adds: the file stays whose it was, and as readable."""
    if path.exists():
        before = path.stat()
        if (before.st_uid, before.st_gid) != (os.getuid(), os.getgid()):
            os.fchown(descriptor, before.st_uid, before.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & WIDEST_MODE)
