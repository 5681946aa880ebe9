"""The demo's own web site, as a process: what `pydoc` writes about modules of the standard library, over HTTP.

Owns the pages, and a log of requests that tells a finished one from one that was cut off. One page can be held back
half-way, once, until whoever asked for it is gone. Listens on 127.0.0.1 only, and ends with its standard input.
"""

import hashlib
import importlib
import json
import pydoc
import sys
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

_QUICK_MODULES = """
abc argparse array base64 bdb binascii bisect bz2 calendar cmath cmd code codecs codeop colorsys compileall
contextlib contextvars copy copyreg csv dataclasses datetime difflib dis email errno faulthandler filecmp
fileinput fnmatch fractions functools gc getopt getpass gettext glob graphlib gzip hashlib heapq hmac html
html.parser http http.cookies itertools json json.decoder json.encoder keyword linecache locale logging lzma
marshal math mimetypes mmap modulefinder netrc numbers operator pathlib pickle pickletools pkgutil platform
plistlib pprint profile pstats py_compile pyclbr queue quopri random re reprlib runpy sched secrets select
selectors shelve shlex shutil signal stat statistics string stringprep struct subprocess symtable sysconfig
tabnanny tempfile textwrap threading time timeit token tokenize tomllib trace traceback tracemalloc unicodedata
uuid warnings wave wsgiref.util zipapp zipimport zoneinfo
"""

MODULES: Sequence[str] = _QUICK_MODULES.split()
"""In the order in which the demo fetches them. Each is imported in a blink, and does nothing by being imported."""

_GONE_WITHIN_S = 600.0


def paths(pages: int) -> list[str]:
    """The paths of the first `pages` pages."""
    return [f"/{name}.html" for name in MODULES[:pages]]


def page(path: str) -> bytes | None:
    """The page at `path`, or None where there is none."""
    name = path.removeprefix("/").removesuffix(".html")
    if name not in MODULES:
        return None
    title, body = name, pydoc.html.document(importlib.import_module(name), name)
    return pydoc.html.page(title, body).encode()


class PageServer(ThreadingHTTPServer):
    """Serves `page`, and writes one JSON line to `log` whenever a request has begun, finished or been cut off.

    The first request for `hold_path` gets half of its answer and then nothing more; standard output says so.
    """

    daemon_threads = False  # So that closing the server waits for the last lines of the log.

    def __init__(self, log: IO[str], hold_path: str | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._log = log
        self._hold_path = hold_path
        self._lock = threading.Lock()
        self.address = f"http://127.0.0.1:{self.server_port}"

    def write(self, event: str, path: str, worker: str, **facts: Any) -> None:
        entry = {"at_ms": int(time.time() * 1000), "event": event, "page": self.address + path, "worker": worker}
        with self._lock:
            print(json.dumps({**entry, **facts}), file=self._log, flush=True)

    def holds_back(self, path: str) -> bool:
        with self._lock:
            if path != self._hold_path:
                return False
            self._hold_path = None
            return True


class _Handler(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        worker = self.headers.get("X-Worker", "")
        self.server.write("begun", self.path, worker)
        body = page(self.path)
        if body is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            self._send(body, worker)
        except OSError:
            self.server.write("cut", self.path, worker)
        else:
            self.server.write("finished", self.path, worker, bytes=len(body), sha256=hashlib.sha256(body).hexdigest())

    def _send(self, body: bytes, worker: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.holds_back(self.path):
            self.wfile.write(body[: len(body) // 2])
            print(json.dumps({"event": "held", "page": self.server.address + self.path, "worker": worker}), flush=True)
            self.connection.settimeout(_GONE_WITHIN_S)
            self.connection.recv(1)
            raise ConnectionAbortedError("The client has gone.")
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the log is the server's."""


def main(log_path: str, hold_path: str) -> None:
    """Serves until standard input ends; tells its address on standard output first."""
    with Path(log_path).open("w", encoding="utf-8") as log:
        server = PageServer(log, hold_path or None)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        print(json.dumps({"event": "ready", "address": server.address}), flush=True)
        sys.stdin.buffer.read()
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    main(*sys.argv[1:])
