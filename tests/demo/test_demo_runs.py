"""The demo as a person runs it: real processes, a real kill -9, and what is left behind."""

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import dhp_client.sync
from tests.support.ending import ended_half_way

DHP = [sys.executable, "-m", "dhp_client.cli"]
PAGES, KILL_AT = 12, 5


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*DHP, "demo", "--folder", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def outcome_of(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    outcome: dict[str, Any] = json.loads(ran.stdout)
    return outcome


def requests_of(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    lines = (Path(outcome["folder"]) / "requests.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def assert_nobody_listens(address: str) -> None:
    parts = urlsplit(address)
    with pytest.raises(ConnectionRefusedError), socket.create_connection((parts.hostname, parts.port), timeout=5):
        pass


def test_killed_in_the_middle_of_page_5_and_finished_by_the_standby(tmp_path: Path) -> None:
    outcome = outcome_of(demo(tmp_path, "--pages", str(PAGES), "--kill-at", str(KILL_AT), "--json"))
    requests = requests_of(outcome)
    begun = [request["page"] for request in requests if request["event"] == "begun"]
    finished = Counter(request["page"] for request in requests if request["event"] == "finished")
    assert set(finished.values()) == {1}
    assert len(finished) == PAGES
    assert len(begun) == PAGES + 1
    by_worker = Counter(request["worker"] for request in requests if request["event"] == "finished")
    assert by_worker == {"worker-a": KILL_AT - 1, "worker-b": PAGES - KILL_AT + 1}
    with Path(outcome["csv"]).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["url"] for row in rows] == list(dict.fromkeys(begun))
    assert outcome["result"]["pages"] == PAGES
    assert_nobody_listens(outcome["address"])


def test_two_runs_in_one_folder_are_apart_one_tells_in_plain_lines_and_a_graceful_one_hands_back(
    tmp_path: Path,
) -> None:
    ran = demo(tmp_path, "--pages", "10", "--kill-at", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "\x1b" not in ran.stdout
    for told in ("kill -9 for worker-a", "10 of 10 pages  worker-b", "orphaned", "Take-over ", "All of it is so."):
        assert told in ran.stdout
    assert "NOT SO" not in ran.stdout
    second = outcome_of(demo(tmp_path, "--pages", "4", "--kill-at", "2", "--graceful", "--json"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-1", "run-2"]
    assert Path(second["folder"]).name == "run-2"
    assert any("handing back cost no attempt" in check["claim"] for check in second["checks"])
    assert [request["event"] for request in requests_of(second)].count("cut") == 1


def test_a_kept_daemon_answers_and_still_has_the_result(tmp_path: Path) -> None:
    ran = demo(tmp_path, "--pages", "3", "--kill-at", "3", "--keep")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    pid = int(re.findall(r"kill (\d+)$", ran.stdout, re.MULTILINE)[0])
    try:
        address, handoff = re.findall(r"dhp --connect (\S+) status (\S+)", ran.stdout)[0]
        with dhp_client.sync.connect(address) as client:
            assert client.status(handoff).status == "completed"
    finally:
        os.kill(pid, signal.SIGTERM)


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"<title>{self.path}</title>".encode()
        self.send_response(404 if self.path == "/lost" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

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


def test_other_pages_are_fetched_as_well_and_the_kill_is_between_request_and_reply(tmp_path: Path, site: str) -> None:
    urls = tmp_path / "urls"
    urls.write_text("".join(f"{site}/{n}\n\n" for n in (1, 2, 3, 3, 4)))
    outcome = outcome_of(demo(tmp_path, "--urls", str(urls), "--kill-at", "3", "--json"))
    with Path(outcome["csv"]).open(newline="") as file:
        assert [row["title"] for row in csv.DictReader(file)] == ["/1", "/2", "/3", "/4"]
    begun = [urlsplit(r["page"]).path for r in requests_of(outcome) if r["event"] == "begun"]
    assert begun == ["/1", "/2", "/3", "/3", "/4"]


def test_a_claim_that_is_not_so_is_told_and_the_exit_code_says_it(tmp_path: Path, site: str) -> None:
    urls = tmp_path / "urls"
    urls.write_text(f"{site}/1\n{site}/lost\n{site}/3\n")
    ran = demo(tmp_path, "--urls", str(urls))
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert re.search(r"NOT SO .*page 2: 404", ran.stdout)
    assert "1 of 10 claims are not so" in ran.stdout


def test_a_folder_that_cannot_be_used_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = demo(tmp_path / "file" / "folder")
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert "--folder" in ran.stderr


def test_a_demo_that_is_ended_half_way_leaves_nobody_behind(tmp_path: Path) -> None:
    command = [*DHP, "demo", "--pages", "60", "--folder", str(tmp_path)]
    seen = ended_half_way(command, "has claimed it")
    for address in re.findall(r"(?:tcp|http)://127\.0\.0\.1:\d+", seen):
        assert_nobody_listens(address)
