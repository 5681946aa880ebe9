"""The demo's own web site: real pages, an honest log, and one answer held back."""

import asyncio
import contextlib
import hashlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

from dhp_client.demo import pages
from dhp_client.demo.fetching import fetch
from dhp_client.processes import Child, Children

PATHS = pages.paths(3)


@contextlib.asynccontextmanager
async def page_server(folder: Path, hold_path: str = "") -> AsyncIterator[tuple[Child, str]]:
    async with Children(folder) as children:
        server = children.start("pages", "dhp_client.demo.pages", str(folder / "log"), hold_path)
        yield server, (await server.wait_for("ready"))["address"]


def log_of(folder: Path) -> list[tuple[str, str, str]]:
    entries = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    return [(entry["event"], urlsplit(entry["page"]).path, entry["worker"]) for entry in entries]


async def get(url: str, worker: str) -> tuple[int, bytes]:
    return await asyncio.to_thread(fetch, url, worker, lambda: None)


async def test_pages_are_documentation_and_the_log_says_who_fetched_them(tmp_path: Path) -> None:
    async with page_server(tmp_path) as (server, address):
        for path in PATHS:
            status, body = await get(address + path, "w")
            assert status == 200
            assert path[1:-5].encode() in body
        await server.end_by_input()
        entries = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    # A page counts as finished a moment after its last byte has left, so the next request may have begun by then.
    assert sorted(log_of(tmp_path)) == sorted((event, path, "w") for path in PATHS for event in ("begun", "finished"))
    hashes = [
        entry["sha256"] for entry in entries if entry["page"].endswith(PATHS[-1]) and entry["event"] == "finished"
    ]
    assert hashes == [hashlib.sha256(body).hexdigest()]


async def test_a_page_that_is_none_is_not_found_and_never_finished(tmp_path: Path) -> None:
    async with page_server(tmp_path) as (server, address):
        for path in ("/antigravity.html", "/../abc.html"):
            status, _ = await get(address + path, "w")
            assert status == 404
        await server.end_by_input()
    assert [event for event, _, _ in log_of(tmp_path)] == ["begun", "begun"]


async def test_the_held_page_is_cut_for_the_first_and_whole_for_the_second(tmp_path: Path) -> None:
    async with page_server(tmp_path, hold_path=PATHS[1]) as (server, address):
        parts = urlsplit(address)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(f"GET {PATHS[1]} HTTP/1.0\r\nX-Worker: a\r\n\r\n".encode())
        assert (await server.wait_for("held"))["page"] == address + PATHS[1]
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        writer.close()
        await writer.wait_closed()
        status, body = await get(address + PATHS[1], "b")
        assert status == 200
        assert body.endswith(b"</html>")
        await server.end_by_input()
    log = log_of(tmp_path)
    assert sorted(log) == sorted(
        [("begun", PATHS[1], "a"), ("cut", PATHS[1], "a"), ("begun", PATHS[1], "b"), ("finished", PATHS[1], "b")]
    )


def test_there_are_pages_enough_for_the_demo_and_each_is_imported_in_silence() -> None:
    assert len(pages.MODULES) == len(set(pages.MODULES)) >= 60
    assert "antigravity" not in pages.MODULES
    assert sys.modules.get("this") is None
