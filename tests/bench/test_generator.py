"""What the load generator says is what happened: good answers count, others are told, and a daemon holds what was counted."""

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import generator
from bench.generator import GeneratorFault, run, start
from bench.setting import Setting
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

ERROR = {"ok": False, "error": {"code": "internal", "message": "Out of order.", "retry": "later"}}

Answer = Callable[[dict[str, Any]], dict[str, Any] | None]
"""Members of the answer to a request, beside `id` unless it has one of its own; None closes the connection."""


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    if not any(shutil.which(name) for name in generator.COMPILERS):
        pytest.skip("there is no C compiler to build the load generator with")
    folder = tmp_path_factory.mktemp("generator")
    binary = generator.build(folder / "load")
    return Setting(folder, binary, folder, folder, seconds=0.2, warmup_seconds=0.05)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("daemon") / "data") as running:
        yield running


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """The address of a server that answers one connection as it is told."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as requests:
            for request in requests:
                said = json.loads(request[request.index(b" ") + 1 :])
                members = answer(said)
                if members is None:
                    return
                body = json.dumps({"id": said["id"], **members}, separators=(",", ":")).encode()
                connection.sendall(b"%d %s\n" % (len(body), body))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)
        assert not thread.is_alive()


def pinged(setting: Setting, address: str, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and what was printed."""
    command = [setting.generator, "dhp-ping", address, *words]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout)


def handoffs(daemon: DaemonProcess, kind: str) -> list[dict[str, Any]]:
    with WireClient(daemon.tcp) as client:
        listed = client.call("list", kind=kind, limit=1000)
        assert listed["next"] is None
        return [client.status(handoff["handoff"]) for handoff in listed["handoffs"]]


def test_only_good_answers_count_and_the_first_other_one_is_told(setting: Setting) -> None:
    answered = iter(range(1, 100))

    def some_are_refused(request: dict[str, Any]) -> dict[str, Any]:
        return {"ok": True} if request["op"] == "hello" or next(answered) % 4 else ERROR

    with answering(some_are_refused) as address:
        code, told = pinged(setting, address, "--count", "10")
    assert code == 1
    assert (told["ops"], told["answered"], told["errors"]) == (8, 8, 2)
    assert told["first_error"].startswith("ping: ")
    assert '"code":"internal"' in told["first_error"]


def test_a_run_with_an_error_is_no_measurement(setting: Setting) -> None:
    with (
        answering(lambda request: {"ok": True} if request["op"] == "hello" else ERROR) as address,
        pytest.raises(GeneratorFault, match="Out of order"),
    ):
        run(setting, "dhp-ping", address, count=3)


def test_a_connection_that_is_closed_is_an_error(setting: Setting) -> None:
    with answering(lambda request: {"ok": True} if request["op"] == "hello" else None) as address:
        code, told = pinged(setting, address)
    assert (code, told["ops"], told["errors"]) == (1, 0, 1)
    assert "closed" in told["first_error"]


def test_an_answer_to_another_request_is_an_error(setting: Setting) -> None:
    with answering(lambda request: {"ok": True} if request["op"] == "hello" else {"id": 9, "ok": True}) as address:
        code, told = pinged(setting, address)
    assert (code, told["ops"]) == (1, 0)
    assert told["first_error"].startswith("an answer that nobody waits for")


def test_nobody_there_is_an_error(setting: Setting, tmp_path: Path) -> None:
    code, told = pinged(setting, f"unix:{tmp_path}/nobody")
    assert (code, told["ops"]) == (1, 0)
    assert told["first_error"].startswith("can't connect")


def test_latency_is_how_long_the_answer_took(setting: Setting) -> None:
    pause = threading.Event()

    def slowly(request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] == "ping":
            pause.wait(0.02)
        return {"ok": True}

    with answering(slowly) as address:
        load = run(setting, "dhp-ping", address, count=5)
    assert load.ops == 5
    # Within 1.6 % of the true value, which is at least the pause.
    assert 19_600 <= load.p50_us <= load.p99_us <= load.max_us
    assert load.seconds >= 0.1


@pytest.mark.parametrize("depth", [1, 8])
def test_a_daemon_holds_the_checkpoints_that_were_counted(setting: Setting, daemon: DaemonProcess, depth: int) -> None:
    kind = f"counted-{depth}"
    load = run(setting, "dhp-checkpoint", daemon.tcp, connections=3, depth=depth, count=100, bytes=1000, kind=kind)
    assert load.ops == load.answered == 100
    found = handoffs(daemon, kind)
    assert len(found) == 3
    assert sum(handoff["seq"] for handoff in found) == 100
    with WireClient(daemon.tcp) as client:
        records = [record for one in found for record in client.call("history", handoff=one["handoff"])["records"]]
    assert {record["bytes"] for record in records if record["type"] == "checkpointed"} == {1000}


def test_what_is_answered_includes_what_the_rate_leaves_out(setting: Setting, daemon: DaemonProcess) -> None:
    load = run(setting, "dhp-checkpoint", daemon.tcp, connections=2, depth=4, kind="timed", preload=5)
    assert load.ops <= load.answered
    assert load.answered > 0
    assert sum(handoff["seq"] for handoff in handoffs(daemon, "timed")) == load.answered + 2 * 5
    assert load.per_second == pytest.approx(load.ops / 0.2, abs=0.1)


def test_a_paced_run_never_runs_ahead_of_its_rate(setting: Setting, daemon: DaemonProcess) -> None:
    load = run(setting, "dhp-checkpoint", daemon.tcp, connections=2, rate=200, kind="paced")
    assert 0 < load.answered <= 200 * 0.25 + 1
    assert sum(handoff["seq"] for handoff in handoffs(daemon, "paced")) == load.answered


def test_one_in_the_background_goes_on_until_it_is_asked(setting: Setting, daemon: DaemonProcess) -> None:
    beside = start(setting, "dhp-checkpoint", daemon.tcp, connections=2, kind="beside")
    run(setting, "dhp-heartbeat", daemon.tcp, connections=2)
    load = beside.result()
    assert load.seconds >= setting.seconds
    assert sum(handoff["seq"] for handoff in handoffs(daemon, "beside")) == load.answered


def test_what_was_dispatched_is_claimed_once_each(setting: Setting, daemon: DaemonProcess) -> None:
    run(setting, "dhp-dispatch", daemon.tcp, connections=4, depth=4, count=40, kind="queue")
    run(setting, "dhp-claim", daemon.tcp, connections=4, count=40, kind="queue", detached=True)
    assert [handoff["attempt"] for handoff in handoffs(daemon, "queue")] == [1] * 40
    with pytest.raises(GeneratorFault, match='"handoff":null'):
        run(setting, "dhp-claim", daemon.tcp, count=1, kind="queue")


def test_lives_and_completions_end_completed(setting: Setting, daemon: DaemonProcess) -> None:
    run(setting, "dhp-life", daemon.tcp, connections=2, depth=2, count=6, life_checkpoints=3, kind="life")
    run(setting, "dhp-complete", daemon.tcp, connections=4, count=10, kind="done")
    assert [(life["status"], life["seq"]) for life in handoffs(daemon, "life")] == [("completed", 3)] * 6
    assert [done["status"] for done in handoffs(daemon, "done")] == ["completed"] * 10
