"""Serving an ASGI application over HTTP, on this program's own event loop: the one way for every command that does.

Owns the options, which addresses need a token, the sockets, and a clean stop. Whom a request is let in from is `http_guard`'s; what is
answered is the application's, and how connections are served `http_server`'s, which is imported by whoever serves.
"""

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Callable, Collection, Generator
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from dhp_protocol.places import host_and_port, host_port_text, is_loopback

from ..http_guard import Application, Guard, bearer_tokens_in
from .settings import Settings

BACKLOG = 1024
FREE_PORT_TRIES = 8
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

F = TypeVar("F", bound=Callable[..., Any])


class HttpPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen, and for whom. `public_url` is what callers reach it by, where that isn't the address itself."""

    host: str
    port: int
    token_file: str | None = None
    insecure: bool = False
    public_url: str | None = None


def with_http_options(
    default: str | None, *, flag: str = "--listen", help: str = "Where to listen; port 0 takes a free one."
) -> Callable[[F], F]:
    """Has a command take `listen`, `http_token_file`, `insecure` and `public_url`, which `http_place` takes in turn.

    `default` None: it is served over HTTP only where `flag` says so.
    """

    def decorate(body: F) -> F:
        for option in (
            click.option(
                "--public-url",
                metavar="URL",
                help="What callers reach this by, such as that of a proxy with TLS.  [default: the address]",
            ),
            click.option("--insecure", is_flag=True, help="Allow other addresses than loopback without a token."),
            click.option(
                "--http-token-file",
                metavar="FILE",
                help="Holds the tokens, one a line, that callers may show: Authorization: Bearer TOKEN.",
            ),
            click.option(flag, "listen", metavar="HOST:PORT", default=default, show_default=True, help=help),
        ):
            body = option(body)
        return body

    return decorate


def http_place(listen: str, http_token_file: str | None, insecure: bool, public_url: str | None) -> HttpPlace:
    """The options' values as a place; raises `click.UsageError`."""
    found = host_and_port(listen)
    if found is None:
        raise click.UsageError(f"{listen!r} is no address: write HOST:PORT.")
    if public_url is not None and not _is_url(public_url):
        raise click.UsageError(f"{public_url!r} is no URL: write https://HOST or https://HOST/PATH.")
    host, port = found
    return HttpPlace(host=host, port=port, token_file=http_token_file, insecure=insecure, public_url=public_url)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment


class HttpListener:
    """Sockets that are bound: whoever connects from now on is answered once `serve` runs.

    `url` is what callers reach it by, without a slash at its end. Raises `click.UsageError` where the address needs a token, `TokenUnreadable`,
    and `click.ClickException` where it can't be listened on.
    """

    def __init__(self, place: HttpPlace) -> None:
        names = _names_of(place.host)
        inside = all(is_loopback(str(name[0])) for name in names)
        if not inside and place.token_file is None and not place.insecure:
            raise click.UsageError(
                f"{place.host} can be reached from outside: add --http-token-file FILE, or --insecure."
            )
        self._tokens = None if place.token_file is None else bearer_tokens_in(place.token_file)
        self._sockets = _bound(place, names)
        port = self._sockets[0].getsockname()[1]
        self.url = (place.public_url or f"http://{host_port_text(place.host, port)}").rstrip("/")
        public_host = urlsplit(self.url).hostname or ""
        self._hosts = {place.host, public_host} if inside else None

    @property
    def hosts(self) -> Collection[str] | None:
        """What callers may call this place by, besides the names of loopback; None: anything."""
        return self._hosts

    def announce(self, settings: Settings, what: str, *, path: str = "") -> None:
        """Says where it listens: a sentence on standard error, or a line of JSON, `{"url": …}`, on standard output."""
        if settings.as_json:
            settings.show({"url": self.url + path})
        else:
            click.echo(f"{what} at {self.url}{path}", err=True)

    async def serve(
        self, application: Application, *, open_paths: Collection[str] = (), stop: asyncio.Event | None = None
    ) -> None:
        """Serves `application` until SIGTERM or Ctrl-C (a second one doesn't wait), or until `stop` is set.

        Its lifespan is run. At the end nobody new is let in, streams are cut, so that their readers know that there would be more, and
        what else runs has a second to finish. `open_paths` ask for no token.
        """
        from .http_server import server_of

        guard = Guard(application, hosts=self._hosts, tokens=self._tokens, open_paths=open_paths)
        server = server_of(guard)
        with contextlib.nullcontext(stop) if stop is not None else told_to_stop() as told:
            serving = asyncio.create_task(server.serve(self._sockets))
            waiting = asyncio.create_task(told.wait())
            try:
                await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
                server.should_exit = True
                await serving

    def close(self) -> None:
        """Gives the address up, where it isn't served."""
        for sock in self._sockets:
            sock.close()


_Name = tuple[Any, ...]
"""A socket's, as `bind` takes it; the port is the second of it."""


def _names_of(host: str) -> list[_Name]:
    """What a host stands for, all of it: nowhere else is listened."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise click.UsageError(f"There is no host {host!r}: give its number, such as 127.0.0.1.") from None
    return list(dict.fromkeys(name for *_, name in found))


def _bound(place: HttpPlace, names: list[_Name]) -> list[socket.socket]:
    """A listening socket for each, all on one port."""
    for _ in range(FREE_PORT_TRIES if place.port == 0 else 1):
        sockets: list[socket.socket] = []
        try:
            for name in names:
                port = sockets[0].getsockname()[1] if sockets else place.port
                with contextlib.suppress(_NotOfThisMachine):
                    sockets.append(_listening((name[0], port, *name[2:])))
            if sockets:
                return sockets
            why = "this machine has no such address"
        except OSError as error:
            for sock in sockets:
                sock.close()
            why = error.strerror or str(error)
            if error.errno == errno.EADDRINUSE:
                why = "another process does; choose where with --listen HOST:PORT (port 0 takes a free one)"
    raise click.ClickException(f"{host_port_text(place.host, place.port)} can't be listened on: {why}.")


class _NotOfThisMachine(Exception):
    """A host may stand for what this machine doesn't have, ::1 where there is no IPv6."""


def _listening(name: _Name) -> socket.socket:
    family = socket.AF_INET6 if ":" in name[0] else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        raise _NotOfThisMachine from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(name)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise _NotOfThisMachine from None
        raise
    sock.setblocking(False)
    return sock


@contextlib.contextmanager
def told_to_stop() -> Generator[asyncio.Event]:
    """Set by the first SIGTERM, Ctrl-C or hang-up (unless the program was started to outlive that), which gives all their usual meaning back."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]

    def usual_again() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    def tell() -> None:
        told.set()
        usual_again()

    for number in numbers:
        loop.add_signal_handler(number, tell)
    try:
        yield told
    finally:
        usual_again()
