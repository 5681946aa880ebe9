"""Whom an HTTP face of the client lets in, and how much it takes from them: an ASGI application around another one.

Owns bearer tokens, the check of `Host` and `Origin`, bounds on bodies, and answering what still runs at the end. Knows nothing of what
is asked, nor of the server that it runs in (`cli.http_serving`).
"""

import asyncio
import contextlib
import hashlib
import hmac
import os
import re
import stat
from collections.abc import Awaitable, Callable, Collection, MutableMapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dhp_protocol.places import is_loopback

from .exceptions import TokenUnreadable

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 8 * 1024 * 1024
"""As long as a frame of the daemon's: more couldn't be passed on."""
BODY_WITHIN_S = 30
DISCARDED_WITHIN_S = 1
MAX_LENGTH_DIGITS = 15

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^\[\]:/@?#\s]+))(?::\d*)?")
MIN_TOKEN_CHARS = 16


class BearerTokens:
    """Tokens, any of which lets a caller in. Only their hashes are kept, and every one is compared, in constant time."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._digests = [_digest(token.encode()) for token in tokens]

    def admits(self, authorization: bytes) -> bool:
        """Whether the header `Authorization` holds one of them."""
        scheme, _, token = authorization.partition(b" ")
        given = _digest(token.strip())
        matches = [hmac.compare_digest(given, digest) for digest in self._digests]
        return scheme.lower() == b"bearer" and any(matches)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def bearer_tokens_in(file: str | os.PathLike[str]) -> BearerTokens:
    """The tokens in a file, one a line, so that a new one can be let in before the old one is taken out.

    Raises `TokenUnreadable` where the file can't be read, others may read it, or a line is no token; it holds nothing of the text.
    """
    path = os.fsdecode(file)
    try:
        with Path(path).open("rb") as opened:
            found = os.fstat(opened.fileno())
            text = opened.read().decode("ascii")
    except OSError as error:
        raise TokenUnreadable(f"The token file {path} can't be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise TokenUnreadable(f"The token file {path} holds what no token has: letters outside of ASCII.") from None
    # As dhpd has it for a key: a file of another user's, root's most often, may be read through its group.
    open_to = stat.S_IRWXO | (stat.S_IRWXG if found.st_uid == os.geteuid() else stat.S_IWGRP)
    if stat.S_ISREG(found.st_mode) and found.st_mode & open_to:
        mode = stat.S_IMODE(found.st_mode)
        raise TokenUnreadable(f"The token file {path} is open to others (mode {mode:04o}): chmod 600 it.")
    tokens = [token.strip() for token in text.split("\n") if token.strip()]
    if not tokens:
        raise TokenUnreadable(f"The token file {path} holds no token: write one a line.")
    if any(len(token) < MIN_TOKEN_CHARS or len(token.split()) > 1 for token in tokens):
        raise TokenUnreadable(
            f"The token file {path} holds a line that is no token: {MIN_TOKEN_CHARS} characters or more, without spaces."
        )
    return BearerTokens(tokens)


class Guard:
    """`app`, for those that may speak to it.

    `hosts` are the names that the header `Host` may hold besides those of the machine itself (None: any). A page of another
    host's in a browser never gets through. `tokens` None: nobody is asked for one, nor is anybody for what is at `open_paths`.
    """

    def __init__(
        self,
        app: Application,
        *,
        hosts: Collection[str] | None,
        tokens: BearerTokens | None = None,
        open_paths: Collection[str] = (),
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._tokens = tokens
        self._open_paths = open_paths
        self._max_body_bytes = max_body_bytes
        self._running: set[asyncio.Task[Any]] = set()
        self._ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(scope, receive, send)
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            await self._answer(request)
        except asyncio.CancelledError:
            if not self._ending:
                raise
            await request.refuse(503, "This server is being stopped: ask again.", ("retry-after", "1"))
        finally:
            self._running.discard(task)

    async def idle(self, within_s: float) -> None:
        """Returns when nothing runs any more, or after so long."""
        if self._running:
            await asyncio.wait(self._running, timeout=within_s)

    async def end(self, within_s: float) -> None:
        """Answers what still runs that the server stops."""
        self._ending = True
        for task in self._running:
            task.cancel()
        await self.idle(within_s)

    async def _answer(self, request: "_Request") -> None:
        host, origin = request.header(b"host"), request.header(b"origin")
        if self._hosts is not None and not _is_here(_host_in(host), self._hosts):
            await request.refuse(421, "Host names another server than this one: ask it by its own address.")
        elif origin and not self._is_own(origin, host):
            await request.refuse(403, "This comes from a page of another host's, which mustn't ask here.")
        elif self._tokens is not None and request.path not in self._open_paths and not request.shows(self._tokens):
            challenge = 'Bearer error="invalid_token"' if request.header(b"authorization") else "Bearer"
            await request.refuse(401, "Say who you are: Authorization: Bearer TOKEN.", ("www-authenticate", challenge))
        elif await request.takes_body(self._max_body_bytes):
            await self._app(request.scope, request.receive, request.send)

    def _is_own(self, origin: bytes, host: bytes) -> bool:
        """Whether a page from `origin` is this server's own, or this machine's."""
        try:
            page = urlsplit(origin.decode("latin-1")).hostname or ""
        except ValueError:
            return False
        return page == _host_in(host) if self._hosts is None else _is_here(page, self._hosts)


class _Request:
    """One request, its body held back until it is there as a whole."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.path: str = scope["path"]
        self._receive = receive
        self._send = send
        self._body: bytes | None = None
        self._started = False

    def header(self, name: bytes) -> bytes:
        """Its value; empty where it isn't there, or there twice."""
        values = [value for key, value in self.scope["headers"] if key == name]
        return values[0] if len(values) == 1 else b""

    def shows(self, tokens: BearerTokens) -> bool:
        return tokens.admits(self.header(b"authorization"))

    async def takes_body(self, max_bytes: int) -> bool:
        """Reads the body; False where that was refused, or nobody is there any more."""
        announced = self.header(b"content-length")
        body = bytearray()
        more = True
        too_much = announced.isdigit() and (len(announced) > MAX_LENGTH_DIGITS or int(announced) > max_bytes)
        try:
            async with asyncio.timeout(BODY_WITHIN_S):
                while more and not too_much:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        return False
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    too_much = len(body) > max_bytes
        except TimeoutError:
            await self.refuse(408, f"The body took longer than {BODY_WITHIN_S} s.")
            return False
        if too_much:
            await self._discard_rest(more)
            await self.refuse(413, f"The body may have {max_bytes} bytes: send less.")
            return False
        self._body = bytes(body)
        return True

    async def _discard_rest(self, more: bool) -> None:
        """An answer that overtakes a body is lost with the connection's reset, so the rest is taken in; but not for ever."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARDED_WITHIN_S):
                while more:
                    more = (await self._receive()).get("more_body", False)

    async def receive(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            return await self._receive()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        self._started = True
        await self._send(message)

    async def refuse(self, status: int, sentence: str, *headers: tuple[str, str]) -> None:
        """Answers with one sentence, unless an answer has begun."""
        if self._started:
            return
        text = sentence.encode() + b"\n"
        told = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(text))), *headers]
        if status in (408, 413):
            told.append(("connection", "close"))  # The rest of the body isn't read.
        encoded = [(name.encode(), value.encode()) for name, value in told]
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})
        await self.send({"type": "http.response.body", "body": text})


def _host_in(header: bytes) -> str:
    """The name in a `Host` header, without its port; empty where it is none."""
    match = _HOST.fullmatch(header.decode("latin-1").lower())
    return match["v6"] or match["name"] if match else ""


def _is_here(name: str, hosts: Collection[str]) -> bool:
    return name in hosts or name == "localhost" or is_loopback(name)
