"""What is served over HTTP lets in whom it should, takes no more than it should, and ends cleanly: over real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from dhp_client import http_guard
from dhp_client.cli import http_server
from dhp_client.cli.http_serving import HttpListener, HttpPlace, http_place
from dhp_client.exceptions import TokenUnreadable
from dhp_client.http_guard import bearer_tokens_in

TOKEN, NEWER = "an-old-token-of-ours", "the-new-token-of-ours"


class Served:
    """An application on a free port: it echoes the body; /slow does when it is told to, /stream and /flood never end."""

    def __init__(self, **place: Any) -> None:
        self.listener = HttpListener(HttpPlace(**{"host": "127.0.0.1", "port": 0, **place}))
        self.stop, self.go_on, self.reached, self.left, self.full = (asyncio.Event() for _ in range(5))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for told in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{told}.complete"})
            return
        body = (await receive())["body"]
        if scope["path"] == "/slow":
            self.reached.set()
            await self.go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while scope["path"] == "/flood":
            sending = asyncio.ensure_future(
                send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
            )
            if not (await asyncio.wait((sending,), timeout=0.2))[0]:
                self.full.set()
            await sending
        if scope["path"] == "/stream":
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            assert (await receive())["type"] == "http.disconnect"
            self.left.set()
            return
        await send({"type": "http.response.body", "body": body})

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.listener.url.removeprefix("http://").rpartition(":")
        return await asyncio.open_connection(host.strip("[]"), int(port))

    async def ask(self, path: str = "/", body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of one answer; a header's `_` is a hyphen."""
        reader, writer = await self.open()
        sent = {"host": "127.0.0.1", "connection": "close", "content-length": str(len(body))}
        writer.write(request(path, sent | {name.replace("_", "-"): value for name, value in headers.items()}) + body)
        answer = await reader.read()
        writer.close()
        return parsed(answer)


def request(path: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items() if value)]
    return "\r\n".join((*lines, "", "")).encode()


def parsed(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
    return int(first.split()[1]), headers, body


@contextlib.asynccontextmanager
async def served(open_paths: tuple[str, ...] = (), **place: Any) -> AsyncIterator[Served]:
    app = Served(**place)
    serving = asyncio.create_task(app.listener.serve(app, stop=app.stop, open_paths=open_paths))
    try:
        yield app
    finally:
        app.stop.set()
        await serving


def secret(folder: Path, text: str, mode: int = 0o600) -> str:
    file = folder / "tokens"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


async def test_a_port_that_is_free_is_taken_and_told() -> None:
    async with served() as app:
        assert int(app.listener.url.rpartition(":")[2]) > 0
        status, _, body = await app.ask(body=b"echo")
        assert (status, body.endswith(b"echo\r\n0\r\n\r\n")) == (200, True)


async def test_a_name_is_listened_on_at_all_its_addresses_on_one_port() -> None:
    async with served(host="localhost") as app:
        for _, _, _, _, (number, *_) in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(number, int(app.listener.url.rpartition(":")[2]))
                writer.write(request("/", {"host": "localhost", "connection": "close"}))
                assert (await reader.read()).startswith(b"HTTP/1.1 200")
                writer.close()


def test_a_place_that_can_be_reached_from_outside_needs_a_token_or_insecure(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match=r"0\.0\.0\.0 can be reached from outside: add --http-token-file"):
        HttpListener(HttpPlace(host="0.0.0.0", port=0))
    for allowed in ({"insecure": True}, {"token_file": secret(tmp_path, TOKEN)}):
        HttpListener(HttpPlace(host="0.0.0.0", port=0, **allowed)).close()  # type: ignore[arg-type]


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(click.ClickException, match="another process"):
        HttpListener(HttpPlace(host="127.0.0.1", port=taken.getsockname()[1]))


@pytest.mark.parametrize(
    "wrong", [("8080", None), ("host:", None), ("host:70000", None), ("h:1", "ftp://x"), ("h:1", "x")]
)
def test_what_is_no_address_is_told(wrong: tuple[str, str | None]) -> None:
    with pytest.raises(click.UsageError, match="is no"):
        http_place(wrong[0], None, False, wrong[1])


async def test_on_loopback_only_names_of_this_machine_and_the_public_one_are_answered() -> None:
    async with served(public_url="https://agents.example/x/") as app:
        assert app.listener.url == "https://agents.example/x"
        app.listener.url = f"http://127.0.0.1:{app.listener._sockets[0].getsockname()[1]}"
        for host in ("localhost", "LOCALHOST:99", "127.0.0.1:1", "[::1]:1", "agents.example"):
            assert (await app.ask(host=host))[0] == 200, host
        for host in ("evil.example", "localhost.evil.example", "192.0.2.1", "[::1", "evil.example@localhost:x"):
            assert (await app.ask(host=host))[0] == 421, host


async def test_a_page_of_another_host_gets_nothing_done() -> None:
    async with served() as app, served(host="0.0.0.0", insecure=True) as outside:
        for origin in ("https://evil.example", "null", "http://[::1"):
            assert (await app.ask(origin=origin))[0] == 403, origin
        assert (await app.ask(origin="http://localhost:6274"))[0] == 200
        assert (await outside.ask(host="agents.example", origin="https://evil.example"))[0] == 403
        assert (await outside.ask(host="agents.example", origin="https://agents.example"))[0] == 200


async def test_a_token_is_asked_for_and_any_line_of_the_file_is_one(tmp_path: Path) -> None:
    file = secret(tmp_path, f"{TOKEN}\n\n {NEWER} \n")
    async with served(open_paths=("/open",), token_file=file) as app:
        for token in (TOKEN, NEWER):
            assert (await app.ask(authorization=f"bearer {token}"))[0] == 200
        assert (await app.ask("/open"))[0] == 200
        assert (await app.ask())[1]["www-authenticate"] == "Bearer"
        for wrong in (f"Basic {TOKEN}", "Bearer", "Bearer ", f"Bearer {TOKEN} {NEWER}", f"Bearer {TOKEN[:-1]}"):
            status, headers, body = await app.ask(authorization=wrong)
            assert (status, headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
            assert TOKEN[:-1].encode() not in body


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (TOKEN, 0o644, "open to others"),
        ("", 0o600, "holds no token"),
        ("short", 0o600, "no token"),
        ("two words but long", 0o600, "no token"),
        ("märchenhaft-und-lang", 0o600, "ASCII"),
    ],
)
def test_a_token_file_that_is_none_is_told_without_its_text(text: str, mode: int, why: str, tmp_path: Path) -> None:
    with pytest.raises(TokenUnreadable, match=why) as refused:
        bearer_tokens_in(secret(tmp_path, text, mode))
    assert not text or text not in str(refused.value)


def test_a_token_file_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(TokenUnreadable, match="No such file"):
        bearer_tokens_in(tmp_path / "none")


async def test_a_body_that_is_too_long_is_refused_whether_it_says_so_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as app:
        monkeypatch.setattr(http_guard, "DISCARDED_WITHIN_S", 0.01)
        for announced in (str(9 * 1024 * 1024), "9" * 19):
            assert (await app.ask(content_length=announced))[0] == 413
        monkeypatch.setattr(http_guard, "DISCARDED_WITHIN_S", 30)
        reader, writer = await app.open()
        writer.write(request("/", {"host": "localhost", "transfer-encoding": "chunked"}))
        with contextlib.suppress(ConnectionError):
            for _ in range(9):
                writer.write(b"100000\r\n" + bytes(0x100000) + b"\r\n")
                await writer.drain()
            writer.write(b"0\r\n\r\n")
        assert parsed(await reader.read())[0] == 413
        writer.close()


async def test_a_stop_cuts_streams_answers_what_hangs_and_lets_the_rest_finish(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "GRACE_S", 30)
    async with served() as app:
        stream, stream_writer = await app.open()
        stream_writer.write(request("/stream", {"host": "localhost"}))
        assert await stream.readuntil(b"begun\r\n")
        finishing = asyncio.create_task(app.ask("/slow"))
        await app.reached.wait()
        app.stop.set()
        await app.left.wait()
        assert await stream.read() == b""  # No last chunk: there would have been more.
        app.go_on.set()
        assert (await finishing)[0] == 200
        stream_writer.close()
    monkeypatch.setattr(http_server, "GRACE_S", 0.05)
    async with served() as app:
        hanging = asyncio.create_task(app.ask("/slow"))
        await app.reached.wait()
        app.stop.set()
        status, headers, _ = await hanging
        assert (status, headers["retry-after"]) == (503, "1")
    assert not caplog.records


async def test_who_connects_and_asks_for_nothing_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_WITHIN_MS", 300)
    monkeypatch.setattr(http_server, "TICKS_PER_LOOK", 1)
    async with served() as app:
        slow_reader, slow = await app.open()
        slow.write(request("/slow", {"host": "127.0.0.1"}))
        await app.reached.wait()
        silent_reader, _ = await app.open()
        half_reader, half = await app.open()
        half.write(b"POST / HTTP/1.1\r\nhost: 127")
        again_reader, again = await app.open()
        again.write(request("/", {"host": "127.0.0.1"}) + b"P")
        assert (await again_reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        for reader in (silent_reader, half_reader, again_reader):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        app.go_on.set()  # What is being answered takes as long as it takes.
        assert (await slow_reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        slow.close()


async def test_a_stop_waits_for_no_reader_that_does_not_read(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as app:
        _, writer = await app.open()
        writer.write(request("/flood", {"host": "localhost"}))
        await app.full.wait()
    writer.close()
    assert not caplog.records


async def test_what_strangers_send_fills_no_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "NOTED_EVERY_MS", float("inf"))
    async with served() as app:
        for _ in range(3):
            reader, writer = await app.open()
            writer.write(b"no request\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400")
            writer.close()
    assert caplog.messages == ["Invalid HTTP request received."]
