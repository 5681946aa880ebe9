"""The small parts of the demo: rows, redirects, progress, children, and the folder of a run."""

import asyncio
import csv
import io
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fastjsonschema
import pytest

from dhp_client.demo.dataset import csv_of, result_of, result_schema, row_of, row_without_answer
from dhp_client.demo.fetching import FetchError, fetch
from dhp_client.demo.progress import Progress
from dhp_client.processes import Child, ChildFailed, Children

PAGE = b'<html><head><title>\n A  "title", </title></head><body><a href=x>1</a><a name=y></a><a href="z">2</a></body>'


def test_a_row_tells_title_links_and_size() -> None:
    row = row_of("http://x/", 200, PAGE)
    assert (row["title"], row["links"], row["bytes"]) == ('A "title",', 2, len(PAGE))


def test_a_body_that_is_no_text_is_a_row_all_the_same() -> None:
    assert row_of("http://x/", 200, b"\xff\x00<title>\xfe")["bytes"] == 10


def test_the_table_reads_back_as_it_was() -> None:
    rows = [row_of("http://x/", 200, PAGE), row_without_answer("http://y/", 'no, "none"')]
    read = list(csv.DictReader(io.StringIO(csv_of(rows).decode(), newline="")))
    assert [{name: str(value) for name, value in row.items()} for row in rows] == read


def test_the_result_meets_its_schema_and_one_with_a_row_missing_does_not() -> None:
    meets = fastjsonschema.compile(result_schema(2))
    rows = [row_of("http://x/", 200, PAGE), row_without_answer("http://y/", "gone")]
    meets(result_of(rows))
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        meets(result_of(rows[:1]))


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(302 if self.path != "/end?x=1" else 200)
        self.send_header("Location", "/loop" if self.path == "/loop" else "/end?x=1")
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_redirects_are_followed_and_the_moment_of_sending_is_told_once(site: str) -> None:
    sent: list[int] = []
    assert fetch(f"{site}/begin", "w", lambda: sent.append(1)) == (200, b"/end?x=1")
    assert sent == [1]


def test_a_circle_of_redirects_ends(site: str) -> None:
    with pytest.raises(FetchError, match="redirects"):
        fetch(f"{site}/loop", "w", lambda: None)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "nowhere", "http://127.0.0.1:1/", "http://127.0.0.1:bad/"])
def test_an_address_that_gives_nothing_is_told_in_a_sentence(url: str) -> None:
    with pytest.raises(FetchError, match=r"127|nowhere"):
        fetch(url, "w", lambda: None)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_over_on_a_terminal_and_lines_stand_above_it() -> None:
    out = _Terminal()
    progress = Progress(4, out)
    progress.reached(2, "a")
    progress.say("gone")
    progress.end()
    bar = f"  [{'#' * 15}{'.' * 15}] 2 of 4 pages  a"
    assert out.getvalue() == f"{bar}\r\x1b[Kgone\n{bar}\n"


def test_plain_lines_elsewhere_one_for_every_tenth_page_and_the_last() -> None:
    out = io.StringIO()
    progress = Progress(12, out)
    for done in range(1, 13):
        progress.reached(done, "a")
    progress.end()
    assert out.getvalue() == "  10 of 12 pages  a\n  12 of 12 pages  a\n"


async def test_a_child_that_ends_early_is_told_with_the_place_of_its_log(tmp_path: Path) -> None:
    async with Children(tmp_path) as children:
        child = children.start("lister", "calendar", "2026")
        with pytest.raises(ChildFailed, match=r"lister ended \(exit code 0\).*lister\.log"):
            await child.wait_for("ready")


async def test_children_are_gone_after_the_block_even_after_an_error(tmp_path: Path) -> None:
    started: list[Child] = []

    async def fail() -> None:
        async with Children(tmp_path) as children:
            started.append(children.start("pages", "dhp_client.demo.pages", str(tmp_path / "log"), ""))
            await started[0].wait_for("ready")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await started[0].ended() == -signal.SIGTERM


async def test_children_are_gone_even_when_the_ending_is_interrupted(tmp_path: Path) -> None:
    started: list[Child] = []

    async def hold() -> None:
        async with Children(tmp_path) as children:
            started.append(children.start("stubborn", "dhp_client.demo.pages", str(tmp_path / "log"), ""))
            await started[0].wait_for("ready")
            started[0].send(signal.SIGSTOP)  # It won't hear SIGTERM.
            await asyncio.to_thread(os.waitid, os.P_PID, started[0].pid, os.WSTOPPED | os.WNOWAIT)
            task.cancel()
            asyncio.get_running_loop().call_later(0.2, task.cancel)
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await started[0].ended() == -signal.SIGKILL
