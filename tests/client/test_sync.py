"""The sync client: the same, without await."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import pytest

import dhp_client
from dhp_client import sync
from tests.client.losing import losing
from tests.client.waiting import until_blocking
from tests.support.daemon_process import DaemonProcess


@pytest.fixture
def client(shared_daemon: DaemonProcess) -> Iterator[sync.Client]:
    with sync.connect(shared_daemon.address) as client:
        yield client


def test_from_dispatch_to_result(client: sync.Client, kind: str) -> None:
    made = client.dispatch(kind, {"n": 1}, labels={"a": "b"})
    with client.claim(kinds=kind, worker="me", wait_ms=1_000) as task:
        assert (task.handoff, task.kind, task.inputs, task.worker) == (made.handoff, kind, {"n": 1}, "me")
        assert (task.fence, task.attempt, task.was, task.seq, task.state) == (1, 1, "pending", 0, None)
        assert (task.lost, task.in_doubt, task.ended) == (False, False, None)
        assert task.checkpoint({"page": 1}).seq == 1
        assert task.state == {"page": 1}
        child = task.dispatch(f"{kind}-child", {})
        task.complete({"ok": True})
    assert client.result(made.handoff, wait_ms=1_000).result == {"ok": True}
    assert client.status(child.handoff).parent == made.handoff
    last = client.last_checkpoint(made.handoff)
    assert last is not None
    assert last.state == {"page": 1}
    assert [checkpoint.seq for checkpoint in client.checkpoints(made.handoff).checkpoints] == [1]
    assert client.history(made.handoff).records[-1]["type"] == "completed"
    assert [found.handoff for found in client.list(kind=kind).handoffs] == [made.handoff]
    client.ack(made.handoff)
    assert client.cancel(child.handoff).status == "cancelled"
    assert client.stats().connections >= 1
    assert client.health().status == "ok"
    client.ping()


def test_nothing_to_claim_is_false_or_an_exception_where_a_block_was_to_run(client: sync.Client, kind: str) -> None:
    assert not client.claim(kinds=kind)
    with pytest.raises(dhp_client.NothingToClaim), client.claim(kinds=kind, wait_ms=10):
        pytest.fail("there was nothing to run this with")


def test_a_block_ends_the_work_as_the_async_one_does(client: sync.Client, kind: str) -> None:
    made = client.dispatch(kind, {})
    with client.claim(kinds=kind):
        pass
    with pytest.raises(ZeroDivisionError), client.claim(kinds=kind):
        raise ZeroDivisionError("oh")
    with pytest.raises(SystemExit), client.claim(kinds=kind, wait_ms=20_000):
        raise SystemExit
    types = [record["type"] for record in client.history(made.handoff).records]
    assert types == ["dispatched", "claimed", "released", "claimed", "failed", "claimed", "released"]


def test_errors_are_the_same_classes(client: sync.Client) -> None:
    with pytest.raises(dhp_client.NotFound):
        client.status("0" * 64)
    with pytest.raises(ValueError):
        client.claim()


def test_a_blocked_main_thread_keeps_its_lease(client: sync.Client, kind: str) -> None:
    made = client.dispatch(kind, {})
    with client.claim(kinds=kind, ttl_ms=1_500) as task:
        time.sleep(3.3)
        task.complete(1)
    assert client.status(made.handoff).attempt == 1


def test_a_loss_sets_a_flag_runs_the_callback_and_is_raised_by_the_next_call(
    client: sync.Client, shared_daemon: DaemonProcess, kind: str
) -> None:
    told: list[sync.Task] = []
    made = client.dispatch(kind, {})
    with losing() as lost, client.claim(kinds=kind, on_lost=told.append) as task:
        client.cancel(made.handoff)
        until_blocking(lambda: task.lost)
        until_blocking(lambda: told)
        with pytest.raises(dhp_client.LeaseLost):
            task.checkpoint(1)
    assert lost.value.details["why"] == "cancelled"
    assert told[0].handoff == task.handoff


def test_a_callback_that_uses_the_client_is_refused_instead_of_hanging(client: sync.Client, kind: str) -> None:
    outcome: list[BaseException] = []

    def use(task: sync.Task) -> None:
        try:
            client.ping()
        except BaseException as error:
            outcome.append(error)

    made = client.dispatch(kind, {})
    task = client.claim(kinds=kind, on_lost=use)
    assert task
    client.cancel(made.handoff)
    until_blocking(lambda: outcome)
    assert isinstance(outcome[0], RuntimeError)


def test_a_client_serves_many_threads_and_one_loop_serves_all_clients(
    client: sync.Client, shared_daemon: DaemonProcess, kind: str
) -> None:
    made: list[str] = []

    def dispatch_some(start: int) -> None:
        made.extend(client.dispatch(kind, {"n": start + n}).handoff for n in range(10))

    threads = [threading.Thread(target=dispatch_some, args=(100 * n,)) for n in range(5)]
    with sync.connect(shared_daemon.address) as other:
        for thread in threads:
            thread.start()
        other.ping()
        for thread in threads:
            thread.join()
        assert len([thread for thread in threading.enumerate() if thread.name == "dhp-sync"]) == 1
    assert len(set(made)) == 50


def test_a_closed_client_says_so(shared_daemon: DaemonProcess, kind: str) -> None:
    client = sync.connect(shared_daemon.address)
    client.dispatch(kind, {})
    task = client.claim(kinds=kind)
    assert task
    client.close()
    client.close()
    assert client.closed
    with pytest.raises(dhp_client.ClientClosed):
        client.ping()
    with pytest.raises(dhp_client.ClientClosed), client:
        pytest.fail("there is no client to run this with")
    with pytest.raises(dhp_client.ClientClosed):
        task.checkpoint(1)


def test_a_collected_client_gives_back_what_it_held(
    client: sync.Client, shared_daemon: DaemonProcess, kind: str
) -> None:
    made = client.dispatch(kind, {})
    other = sync.connect(shared_daemon.address)
    task = other.claim(kinds=kind, ttl_ms=60_000)
    assert task
    del other
    gc.collect()
    task.checkpoint(1)
    del task
    gc.collect()
    until_blocking(lambda: client.status(made.handoff).status == "pending")


def test_every_method_and_property_has_its_docstring() -> None:
    for documented in (sync.Client, sync.Task, sync.Watches):
        offered = {name: member for part in documented.__mro__ for name, member in vars(part).items() if name[0] != "_"}
        assert [name for name, member in offered.items() if not member.__doc__] == []


def test_records_are_watched_with_a_for_loop(client: sync.Client, kind: str) -> None:
    made = client.dispatch(kind, {})
    before = client.status(made.handoff).position - 1  # From 0 on, what others' retention has removed is told of, too.
    client.cancel(made.handoff)
    with client.watch(kinds=kind, after=before) as events:
        seen = [next(events).type, next(events).type]
    assert seen == ["dispatched", "cancelled"]
    assert list(events) == []
    with pytest.raises(dhp_client.NotFound):
        next(client.watch("0" * 64))


def test_nobody_there_is_told() -> None:
    with pytest.raises(dhp_client.NotConnected):
        sync.connect("tcp://127.0.0.1:1", connect_timeout_ms=100)


def test_ctrl_c_in_the_body_or_in_a_call_releases_the_work(
    client: sync.Client, shared_daemon: DaemonProcess, kind: str
) -> None:
    program = """
    import sys, time
    from dhp_client import sync
    client = sync.connect(sys.argv[1])
    with client.claim(kinds=sys.argv[2]) as task:
        print("at work", flush=True)
        {work}
    """
    for work in ("time.sleep(30)", "client.result(task.handoff, wait_ms=30_000)"):
        made = client.dispatch(kind, {"work": work})
        code = textwrap.dedent(program).format(work=work)
        command = [sys.executable, "-c", code, shared_daemon.address, kind]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "at work\n"
        os.kill(worker.pid, signal.SIGINT)
        _, errors = worker.communicate(timeout=20)
        assert "KeyboardInterrupt" in errors
        assert client.history(made.handoff).records[-1]["type"] == "released"
        client.cancel(made.handoff)
