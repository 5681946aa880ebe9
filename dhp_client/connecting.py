"""Making a client: from an address to a connection that has said hello.

Owns `connect` and its defaults. What can be asked of the client is `client`'s.
"""

import asyncio
import math
import os
import secrets
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

from .addresses import AddressLike, parse_addresses
from .arguments import check_whole
from .client import Client
from .exceptions import TokenUnreadable
from .session import Session
from .spool import MAX_SPOOL_BYTES, Spool
from .trust import Trust, trust_from

IN_DOUBT_MS = 60_000
CONNECT_TIMEOUT_MS = 10_000
RETRY_MS = 30_000
BLOCKED_LOOP_MS = 2_000
TOKEN_VARIABLE = "DHP_TOKEN"
TOKEN_FILE_VARIABLE = "DHP_TOKEN_FILE"


class Connecting:
    """A client that is about to be connected: `await` it, or run a block with it."""

    def __init__(self, address: AddressLike | Iterable[AddressLike] | None, trust: Trust, **settings: Any) -> None:
        self._addresses = parse_addresses(address, trust=trust)
        self._settings = settings
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect(**self._settings).__await__()

    async def __aenter__(self) -> Client:
        self._client = await self
        return self._client

    async def __aexit__(self, *_: object) -> None:
        client, self._client = self._client, None
        assert client is not None
        await client.close()

    async def _connect(
        self,
        *,
        name: str | None,
        session: str | None,
        token: str | None,
        token_file: str | os.PathLike[str] | None,
        in_doubt_ms: int | None,
        connect_timeout_ms: int,
        retry_ms: int,
        spool: str | os.PathLike[str] | None,
        max_spool_bytes: int,
        blocked_loop_ms: int | None,
    ) -> Client:
        kept = None if spool is None else Spool(Path(spool), max_spool_bytes)
        if kept is not None:
            await asyncio.to_thread(kept.check)
        endless = math.inf if kept is not None else IN_DOUBT_MS
        opened = Session(
            self._addresses,
            name=name or "python",
            session=session or secrets.token_urlsafe(24),
            token=token_from(token, token_file),
            retry_ms=retry_ms,
            in_doubt_ms=endless if in_doubt_ms is None else in_doubt_ms,
            spool=kept,
            blocked_loop_ms=blocked_loop_ms,
        )
        try:
            await opened.connection.start(connect_timeout_ms)
        except BaseException:
            opened.let_go()
            raise
        return Client(opened)


def token_from(given: str | None, file: str | os.PathLike[str] | None) -> str | None:
    """The token that was given, or what the file holds, or else what the environment says. Raises `TokenUnreadable`."""
    if given is not None and not isinstance(given, str):
        raise TypeError(f"token must be a str, not {type(given).__name__}.")
    if given is not None or file is not None:
        return (given if file is None else token_in(file)) or None
    token, named = os.environ.get(TOKEN_VARIABLE), os.environ.get(TOKEN_FILE_VARIABLE)
    return token or (token_in(named) if named else None)


def token_in(file: str | os.PathLike[str]) -> str:
    """What a token file of a client's holds. Raises `TokenUnreadable`."""
    try:
        return Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it isn't UTF-8"
        raise TokenUnreadable(f"The token file {os.fsdecode(file)} can't be read: {why}.") from None


def connect(
    address: AddressLike | Iterable[AddressLike] | None = None,
    *,
    name: str | None = None,
    session: str | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    cert_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    server_name: str | None = None,
    in_doubt_ms: int | None = None,
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
    retry_ms: int = RETRY_MS,
    spool: str | os.PathLike[str] | None = None,
    max_spool_bytes: int = MAX_SPOOL_BYTES,
    blocked_loop_ms: int | None = BLOCKED_LOOP_MS,
) -> Connecting:
    """`client = await connect(...)`, or `async with connect(...) as client:`.

    `address` is `tcp://HOST:PORT`, `tls://HOST:PORT`, `unix:PATH`, several of them (tried in turn), or a directory: there a private daemon
    is started if none runs. None means `$DHP_CONNECT`, else the directory `./.dhp`. `name` is how the client introduces
    itself; `session` joins it to a session by name. `token`, or what `token_file` holds, or else `$DHP_TOKEN` or
    `$DHP_TOKEN_FILE`, is what a daemon over TCP may require: it decides which roles the client has. Over TLS the daemon's
    certificate has to be signed by one in `ca_file` (`$DHP_TLS_CA`; else by whom the system trusts), for `server_name` (the
    address's host unless given); `cert_file` and `key_file` (`$DHP_TLS_CERT`, `$DHP_TLS_KEY`) are this client's own.

    `in_doubt_ms`: how long work runs on while nobody answers; a minute unless given, with a spool as long as it takes.
    `retry_ms`: how long calls go on trying. An event loop that doesn't run for `blocked_loop_ms` while work is held is named in
    a warning (None: never).

    `spool` is a directory where tasks keep their checkpoints, spending, effects' ends and results while nobody answers, at most
    `max_spool_bytes` for all that have it. They are sent in order afterwards, by this process or the next that claims the
    handoff, unless somebody else was at work in between; then they stay there, and `Client.spooled` tells of them.

    Raises `NotConnected` after `connect_timeout_ms`; at once `BadAddress` (so `Untrusted`), `NotSpooled` where the spool can't be
    written, and `Unauthenticated` where the token is refused; when it is taken away later, the next call does.
    """
    check_whole(connect_timeout_ms=connect_timeout_ms, retry_ms=retry_ms, max_spool_bytes=max_spool_bytes)
    if in_doubt_ms is not None:
        check_whole(in_doubt_ms=in_doubt_ms)
    if blocked_loop_ms is not None:
        check_whole(blocked_loop_ms=blocked_loop_ms)
        if blocked_loop_ms < 1:  # It would look all the time.
            raise ValueError("blocked_loop_ms must be 1 or more; None: no warning.")
    return Connecting(
        address,
        trust_from(ca_file, cert_file, key_file, server_name),
        name=name,
        session=session,
        token=token,
        token_file=token_file,
        in_doubt_ms=in_doubt_ms,
        connect_timeout_ms=connect_timeout_ms,
        retry_ms=retry_ms,
        spool=spool,
        max_spool_bytes=max_spool_bytes,
        blocked_loop_ms=blocked_loop_ms,
    )
