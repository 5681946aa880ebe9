"""The secret that seals questions to persons while their host has them, kept so that a restart of the server doesn't make answers void.

Owns its file, which only its owner may read.
"""

import contextlib
import logging
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger("dhp_client")

SECRET_BYTES = 32


def kept_secret(environment: Mapping[str, str] = os.environ) -> bytes:
    """The secret in `$XDG_STATE_HOME/dhp/mcp.key` (`~/.local/state` unless set), made when there is none.

    Where it can't be kept it is another one for each process: a question that a restart interrupts is asked once more then.
    """
    file = Path(environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "dhp" / "mcp.key"
    try:
        if not file.exists():
            _make(file)
        with file.open("rb") as opened:
            found, secret = os.fstat(opened.fileno()), opened.read()
        if (
            found.st_uid == os.getuid()
            and not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
            and len(secret) == SECRET_BYTES
        ):
            return secret
        log.warning("%s isn't used: it isn't %d bytes that only you can read; delete it", file, SECRET_BYTES)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home.
        log.debug("no secret is kept: %s", error)
    return secrets.token_bytes(SECRET_BYTES)


def _make(file: Path) -> None:
    """Whole or not at all, and the first of several who make it is the one that counts."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(secrets.token_bytes(SECRET_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink()
