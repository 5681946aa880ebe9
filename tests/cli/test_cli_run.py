"""`dhp run`: programs in any language do durable work, whatever they print, and however they or `dhp run` end."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

import dhp_client.sync
from dhp_client.cli.main import exit_code
from dhp_client.programs import attempt
from dhp_client.programs.outcome import Outcome
from dhp_client.programs.passing import Passing
from dhp_client.programs.stopping import Stop
from dhp_client.programs.worker import Options, Worker

from ..client.waiting import until_blocking
from ..support.daemon_process import DaemonProcess
from ..support.own_process import stop
from ..support.proxy import Proxy

Client = dhp_client.sync.Client
_numbers = itertools.count(1)


class RanRaw(NamedTuple):
    code: int
    out: bytes
    err: str


@pytest.fixture
def kind() -> str:
    """A kind that no other test uses."""
    return f"run.{next(_numbers)}"


@pytest.fixture
def run(
    daemon: DaemonProcess, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., RanRaw]:
    """Runs `dhp run` in this process, the program in a shell of its own."""
    monkeypatch.setenv("DHP_CONNECT", daemon.address)

    def run(*arguments: str) -> RanRaw:
        capfdbinary.readouterr()
        code = exit_code(("run", *arguments))
        out, err = capfdbinary.readouterr()
        return RanRaw(code, out, err.decode())

    return run


def begin(
    daemon: DaemonProcess, *arguments: str, wrapper: Sequence[str] = (), **settings: Any
) -> "subprocess.Popen[str]":
    """Starts `dhp run` in a process of its own; `wrapper` is a command that becomes the one that follows it."""
    command = [*wrapper, sys.executable, "-m", "dhp_client.cli", "run", "--connect", daemon.address, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)


@pytest.fixture
def ended() -> Iterator[list["subprocess.Popen[str]"]]:
    """Whoever is put in here is over after the test."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def is_alive(pid: int) -> bool:
    """Whether it is there and no zombie, which nobody may have asked after."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()
    return line


# What a program gets, and what becomes of what it says.


def test_a_program_gets_one_line_and_its_result_is_the_handoffs(
    run: Callable[..., RanRaw], client: Client, daemon: DaemonProcess, kind: str
) -> None:
    made = client.dispatch(kind, {"b": "\n", "a": 1.5})
    script = (
        """cat; echo "$DHP_HANDOFF $DHP_KIND $DHP_FENCE $DHP_ATTEMPT $DHP_CONNECT"; printf '{"result": [1, null]}'"""
    )
    ran = run("--kind", kind, "--once", "--", "sh", "-c", script)
    given, variables = ran.out.decode().splitlines()
    fence = client.status(made.handoff).fence
    expected = {"handoff": made.handoff, "kind": kind, "fence": fence, "attempt": 1, "seq": 0}
    assert list(json.loads(given).items()) == [*expected.items(), ("inputs", {"b": "\n", "a": 1.5}), ("state", None)]
    assert variables == f"{made.handoff} {kind} {fence} 1 {daemon.address}"
    assert (ran.code, client.result(made.handoff).result) == (0, [1, None])
    assert ran.err.splitlines() == [
        f"dhp: {made.handoff[:12]} ({kind}): attempt 1",
        f"dhp: {made.handoff[:12]} ({kind}): completed",
    ]


def test_the_next_attempt_goes_on_from_the_last_checkpoint(
    run: Callable[..., RanRaw], client: Client, kind: str
) -> None:
    made = client.dispatch(kind, {"state": 7})
    script = r"""
        read -r line
        n=$(printf '%s\n' "$line" | sed -n 's/.*"state":\([0-9]*\)}$/\1/p')
        echo "after ${n:-nothing}"
        [ "$DHP_ATTEMPT" = 1 ] || exec echo '{"result": "done"}'
        echo '{"checkpoint": 1}'; echo '{"checkpoint": 2}'; exit 3
    """
    ran = run("--handoff", made.handoff[:12], "--json", "sh", "-c", script)
    first, second = (json.loads(line) for line in ran.out.splitlines())
    assert ran.err.splitlines() == ["after nothing", "after 2"]
    assert (first["outcome"], first["status"], first["exit_code"]) == ("failed", "pending", 3)
    assert (first["reason"], first["seq"]) == ("exit code 3", 2)
    assert second == {
        "handoff": made.handoff,
        "kind": kind,
        "fence": first["fence"] + 2,
        "attempt": 2,
        "seq": 2,
        "outcome": "completed",
        "status": "completed",
        "exit_code": 0,
    }
    assert ran.code == 0


ONLY_INTEGERS: Mapping[str, Any] = {"type": "integer"}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("""echo '{"result": 1}'; exit 5""", "ProgramFailed: exit code 5"),
        ("kill -9 $$", "ProgramFailed: killed by SIGKILL"),
        ("""echo '{"result": 1, "more": 2}'""", "NoResult: exit code 0, but no"),
        ("""echo '{"fail": {"reason": "no disk"}}'""", "ProgramFailed: no disk"),
        ("""echo '{"result": 1}'; echo '{"fail": "after all"}'""", "ProgramFailed: after all"),
        ("""echo '{"result": "text"}'""", "ResultInvalid: "),
        ("""echo '{"result": 1e400}'""", "InvalidRequest: result: result can't be said in JSON: "),
        ("""echo '{"spend": {"usb": 3}}'; sleep 60""", "InvalidRequest: spend: Object contains unknown field `usb`"),
        ("""printf '{"checkpoint": "%05000000d"}\\n' 1; sleep 60""", "TooLarge: "),
    ],
)
def test_a_program_that_does_not_finish_has_failed_and_it_is_told_why(
    run: Callable[..., RanRaw], client: Client, kind: str, script: str, reason: str
) -> None:
    made = client.dispatch(kind, {}, output_schema=ONLY_INTEGERS)
    ran = run("--handoff", made.handoff, "--once", "--", "sh", "-c", script)
    status = client.status(made.handoff)
    assert (ran.code, status.status, status.failures) == (1, "pending", 1)
    assert (status.reason or "").startswith(reason)
    assert "to be tried again" in ran.err.splitlines()[-1]
    client.cancel(made.handoff)


def test_a_failure_for_good_and_a_cap_end_the_handoff(run: Callable[..., RanRaw], client: Client, kind: str) -> None:
    given_up = client.dispatch(kind, {"n": 1})
    ran = run("--handoff", given_up.handoff, "sh", "-c", """echo '{"fail": {"reason": "no", "retry": false}}'""")
    assert (ran.code, client.status(given_up.handoff).status) == (1, "dead")
    assert f"`dhp redrive {given_up.handoff[:12]}` brings it back" in ran.err
    capped = client.dispatch(kind, {"n": 2}, budget={"max_steps": 3, "max_usd": 1})
    script = """echo '{"spend": {"usd": 0.25, "steps": 1}}'; for n in 1 2 3 4; do echo "{\\"checkpoint\\": $n}"; done; sleep 60"""
    ran = run("--handoff", capped.handoff, "sh", "-c", script)
    status = client.status(capped.handoff)
    assert (ran.code, status.status, status.seq, status.usd) == (1, "dead", 2, 0.25)
    assert "max_steps" in ran.err


def test_whatever_a_program_prints_is_passed_through_unchanged(
    run: Callable[..., RanRaw], client: Client, kind: str, tmp_path: Path
) -> None:
    made = client.dispatch(kind, {})
    long = b'{"checkpoint": "' + b"x" * client._inner.limits.max_frame_bytes + b'"}\n'
    printed = [os.urandom(300_000), b'\n{"level": "info"}\n', long, b'{"result": NaN}\n', b'{"checkpoint', b"\n{"]
    for number, piece in enumerate(printed):
        (tmp_path / str(number)).write_bytes(piece)
    script = """cat 0 1 2; echo '{"checkpoint": 1}'; cat 3; echo '{"result": 2}'; cat 4 5"""
    ran = run("--kind", kind, "--once", "sh", "-c", f"cd '{tmp_path}'; {script}")
    assert ran.out == b"".join(printed)
    assert (ran.code, client.result(made.handoff).result, client.status(made.handoff).seq) == (0, 2, 1)
    (told,) = (line for line in ran.err.splitlines() if "passed through" in line)
    assert "longer than" in told, "and what comes after isn't told again"


def test_answers_tell_what_is_stored_and_what_is_to_be_mended(
    run: Callable[..., RanRaw], client: Client, kind: str
) -> None:
    made = client.dispatch(kind, {}, output_schema=ONLY_INTEGERS)
    script = """
        read -r given
        for said in '{"checkpoint": 1}' '{"spend": {"usd": 0.5}}' '{"activity": "a"}' '{"spend": 1}' '{"result": "x"}' '{"result": 1}'
        do echo "$said"; read -r answer; echo "$answer"; done
        exit 9
    """
    ran = run("--kind", kind, "--once", "--answers", "sh", "-c", script)
    answers = [json.loads(line) for line in ran.out.splitlines()]
    assert answers[:3] == [
        {"ok": True, "seq": 1},
        {"ok": True, "usd": 0.5, "steps": 1},
        {"ok": True, "repeats": 0},
    ]
    assert [answer["error"]["code"] for answer in answers[3:5]] == ["invalid_request", "result_invalid"]
    assert answers[4]["error"]["details"]["left"] == 2
    assert (answers[5], ran.code) == ({"ok": True}, 0)
    assert client.result(made.handoff).result == 1


# Beginning and ending.


def test_a_command_that_cannot_be_run_costs_nobody_anything(
    run: Callable[..., RanRaw], client: Client, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = client.dispatch(kind, {})
    missing = run("--kind", kind, "--", "no-such-program")
    assert (missing.code, "no program that can be run here" in missing.err) == (2, True)
    assert client.status(made.handoff).attempt == 0
    script = tmp_path / "unnamed.sh"
    script.write_text("echo without a first line")
    monkeypatch.chdir(tmp_path)
    assert "`sh ./unnamed.sh`, or make it executable (chmod +x)" in run("--kind", kind, "--", "./unnamed.sh").err
    script.chmod(0o755)
    assert "write ./unnamed.sh" in run("--kind", kind, "--", "unnamed.sh").err
    unnamed = run("--kind", kind, "--", str(script))
    assert (unnamed.code, "must name its interpreter" in unnamed.err) == (1, True)
    assert (client.status(made.handoff).status, client.status(made.handoff).failures) == ("pending", 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "--kind KIND"),
        (("--kind", "k", "--handoff", "0" * 64), "--handoff ID"),
        (("--kind", "k", "--once", "--count", "2"), "give one of them"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_claimed(
    run: Callable[..., RanRaw], arguments: tuple[str, ...], told: str
) -> None:
    wrong = run(*arguments, "--connect", "tcp://127.0.0.1:1", "--", "true")
    assert (wrong.code, wrong.out, told in wrong.err) == (2, b"", True)


def test_exit_codes_tell_nothing_to_do_from_work_that_failed(
    run: Callable[..., RanRaw], client: Client, kind: str
) -> None:
    assert run("--kind", kind, "--wait-ms", "0", "--once", "true").code == 4
    assert run("--kind", kind, "--wait-ms", "0", "true").code == 0
    made = client.dispatch(kind, {})
    assert run("--kind", kind, "--wait-ms", "0", "--count", "2", "echo", '{"result": 1}').code == 4
    assert run("--handoff", made.handoff, "true").code == 0, "it is completed"
    cancelled = client.dispatch(kind, {"n": 2})
    client.cancel(cancelled.handoff)
    assert run("--handoff", cancelled.handoff, "true").code == 1


def test_what_a_program_leaves_running_is_ended_with_it(
    run: Callable[..., RanRaw], client: Client, kind: str, tmp_path: Path
) -> None:
    client.dispatch(kind, {})
    script = """sleep 600 >/dev/null 2>&1 & echo $!; timeout 600 sleep 600 >/dev/null & echo $!; echo '{"result": 1}'"""
    ran = run("--kind", kind, "--once", "sh", "-c", script)
    assert ran.code == 0
    assert [is_alive(int(pid)) for pid in ran.out.split()] == [False, False]


def test_as_the_first_process_of_a_container_it_leaves_no_zombies(
    daemon: DaemonProcess, client: Client, kind: str, ended: list["subprocess.Popen[str]"]
) -> None:
    first_process = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    if subprocess.run([*first_process, "true"], capture_output=True).returncode:
        pytest.skip("no namespace of processes is to be had")
    for number in range(3):
        client.dispatch(kind, {"n": number})
    script = """cat /proc/[0-9]*/stat | grep -c ' Z '; echo '{"result": 1}'"""
    running = begin(daemon, "--kind", kind, "--count", "3", "--", "sh", "-c", script, wrapper=first_process)
    ended.append(running)
    out, errors = running.communicate(timeout=60)
    assert (running.returncode, out) == (0, "0\n0\n0\n"), errors


LONG = """
trap '' HUP
sleep 600 & echo $!
timeout 600 sleep 600 & echo $!
echo $$
echo '{"checkpoint": "here"}'
echo stored
wait
"""


def test_kill_9_of_dhp_run_leaves_nothing_running_and_a_standby_goes_on(
    daemon: DaemonProcess, client: Client, kind: str, ended: list["subprocess.Popen[str]"], run: Callable[..., RanRaw]
) -> None:
    made = client.dispatch(kind, {})
    killed = begin(daemon, "--kind", kind, "sh", "-c", LONG)
    ended.append(killed)
    pids = [int(line_of(killed)) for _ in range(3)]
    assert line_of(killed) == "stored\n"
    until_blocking(lambda: client.status(made.handoff).seq == 1)
    assert all(map(is_alive, pids))
    killed.kill()
    until_blocking(lambda: not any(map(is_alive, pids)), "the program and all it has started are gone")
    ran = run("--kind", kind, "--once", "sh", "-c", """cat; echo '{"result": 1}'""")
    assert (ran.code, json.loads(ran.out)["state"]) == (0, "here")


def test_sigterm_lets_a_program_finish(
    daemon: DaemonProcess, client: Client, kind: str, ended: list["subprocess.Popen[str]"]
) -> None:
    made = client.dispatch(kind, {})
    script = """
        trap 'echo "{\\"checkpoint\\": 1}"; echo "{\\"result\\": 2}"; exit 0' TERM
        sleep 600 & echo ready; wait
    """
    running = begin(daemon, "--kind", kind, "sh", "-c", script)
    ended.append(running)
    assert line_of(running) == "ready\n"
    running.terminate()
    running.communicate(timeout=30)
    assert running.returncode == 143
    status = client.status(made.handoff)
    assert (status.status, status.seq, client.result(made.handoff).result) == ("completed", 1, 2)


def test_sigterm_hands_back_what_is_not_finished_in_time(
    daemon: DaemonProcess, client: Client, kind: str, ended: list["subprocess.Popen[str]"]
) -> None:
    made = client.dispatch(kind, {})
    script = """trap 'echo asked' TERM; echo $$; while :; do sleep 0.01; done"""
    running = begin(daemon, "--kind", kind, "sh", "-c", script)
    ended.append(running)
    pid = int(line_of(running))
    running.terminate()
    assert line_of(running) == "asked\n"
    running.terminate()  # A second one doesn't wait for the ten seconds of grace.
    _, errors = running.communicate(timeout=30)
    status = client.status(made.handoff)
    assert (running.returncode, status.status, status.failures) == (143, "pending", 0)
    assert "handed back (dhp run was ended by SIGTERM)" in errors
    assert not is_alive(pid)


def test_a_program_whose_lease_is_lost_is_stopped_and_dhp_run_goes_on_claiming(
    daemon: DaemonProcess, client: Client, kind: str, ended: list["subprocess.Popen[str]"]
) -> None:
    made = client.dispatch(kind, {})
    script = """
        trap 'echo "{\\"result\\": \\"too late\\"}"; exit 0' TERM
        read -r given; echo $$
        case "$given" in *'"n":2'*) exec echo '{"result": "the next one"}';; esac
        sleep 600 & wait
    """
    paused = begin(daemon, "--kind", kind, "--ttl-ms", "500", "sh", "-c", script)
    ended.append(paused)
    pid = int(line_of(paused))
    stop(paused)
    with client.claim(made.handoff, wait_ms=20_000) as task:
        paused.send_signal(signal.SIGCONT)
        until_blocking(lambda: not is_alive(pid), "the program has been stopped")
        task.complete("in time")
    following = client.dispatch(kind, {"n": 2})
    assert client.result(following.handoff, wait_ms=20_000).result == "the next one"
    paused.terminate()
    _, errors = paused.communicate(timeout=30)
    assert client.result(made.handoff).result == "in time"
    assert "not ours any more (" in errors


def test_whoever_stops_reading_ends_it_and_the_work_is_handed_back(
    daemon: DaemonProcess, client: Client, kind: str, ended: list["subprocess.Popen[str]"]
) -> None:
    made = client.dispatch(kind, {})
    running = begin(daemon, "--kind", kind, "sh", "-c", "while echo printed; do sleep 0.01; done")
    ended.append(running)
    line_of(running)
    assert running.stdout is not None
    running.stdout.close()
    assert running.wait(30) == 1
    status = client.status(made.handoff)
    assert (status.status, status.failures) == ("pending", 0)


async def test_output_that_somebody_has_made_non_blocking_is_written_whole() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)  # As node and asyncio do with a pipe that is their standard error and our output.
    piece = os.urandom(300_000)

    def read() -> bytes:
        with open(reading, "rb") as pipe:
            return pipe.read(len(piece))

    written = asyncio.ensure_future(Passing(writing).write(piece))
    assert await asyncio.to_thread(read) == piece
    await written
    os.close(writing)


def test_a_program_that_says_more_than_is_stored_has_to_wait(
    daemon: DaemonProcess, client: Client, kind: str, ended: list["subprocess.Popen[str]"], tmp_path: Path
) -> None:
    made = client.dispatch(kind, {})
    printed = tmp_path / "printed"
    script = f"""
        text=$(head -c 30000 /dev/zero | tr '\\0' x); n=0
        while [ $n -lt 100 ]; do
            n=$((n + 1)); echo "{{\\"checkpoint\\": [$n, \\"$text\\"]}}"; echo $n > {printed}
        done
        echo '{{"result": "all"}}'
    """
    try:
        running = begin(daemon, "--kind", kind, "--ttl-ms", "60000", "--count", "1", "sh", "-c", script)
        ended.append(running)
        until_blocking(printed.exists)
        daemon.pause()  # Nothing that it says is stored from here on.
        stored_at_most = int(printed.read_text() or 0)
        for _ in range(50):
            assert int(printed.read_text() or 0) <= stored_at_most + 40, "a MB is more than the pipe and we hold"
            with pytest.raises(subprocess.TimeoutExpired):
                running.wait(0.01)
    finally:
        daemon.resume()
    running.communicate(timeout=60)
    status = client.status(made.handoff)
    assert (running.returncode, status.seq) == (0, 100)
    assert client.result(made.handoff).result == "all"


def test_with_a_spool_a_program_goes_on_while_no_daemon_answers(
    daemon: DaemonProcess, client: Client, kind: str, ended: list["subprocess.Popen[str]"], tmp_path: Path
) -> None:
    made = client.dispatch(kind, {})
    script = """
        echo '{"checkpoint": 1}'; echo one
        until [ -e cut ]; do sleep 0.05; done
        echo '{"checkpoint": 2}'; echo two
        echo '{"checkpoint": 3}'; echo three
        echo '{"result": 4}'
    """
    with Proxy(daemon.tcp) as proxy:
        arguments = ("--connect", proxy.address, "--spool", str(tmp_path / "spool"), "--kind", kind, "--once")
        running = begin(daemon, *arguments, "sh", "-c", script, cwd=tmp_path)
        ended.append(running)
        assert line_of(running) == "one\n"
        proxy.cut()
        (tmp_path / "cut").touch()
        assert [line_of(running), line_of(running)] == ["two\n", "three\n"]
        assert client.status(made.handoff).seq == 1
        proxy.mend()
        running.communicate(timeout=60)
    assert running.returncode == 0
    assert (client.status(made.handoff).seq, client.result(made.handoff).result) == (3, 4)


class Told:
    """What `dhp run` tells."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def claimed(self, task: dhp_client.Task) -> None: ...

    def over(self, outcome: Outcome) -> None: ...

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)


class RefusingClient:
    """Refuses each claim for another reason."""

    def __init__(self, *refusals: Exception) -> None:
        self._refusals = list(refusals)

    async def claim(self, *_: object, **__: object) -> dhp_client.Task:
        raise self._refusals.pop(0)


@pytest.mark.parametrize("wait_ms", [None, 60_000])
async def test_what_passes_is_waited_for_and_told_once(wait_ms: int | None) -> None:
    refusals = (
        dhp_client.NotConnected("Nobody answers."),
        dhp_client.Draining("The daemon is draining."),
        dhp_client.NotClaimable("It is suspended.", status="suspended"),
        dhp_client.NotClaimable("It is completed.", status="completed"),
    )
    client, told = cast(dhp_client.Client, RefusingClient(*refusals)), Told()
    options = Options(command=("true",), environment={}, handoff="0" * 64, grace_ms=0, wait_ms=wait_ms)
    run = await Worker(client, options, stop=Stop(), passing=Passing(1), telling=told).work()
    assert (run.outcomes, run.ended_as) == ([], "completed")
    assert told.warnings == ["Nobody answers: it is tried again until that has passed."]


async def test_what_does_not_pass_is_raised() -> None:
    options = Options(command=("true",), environment={}, kinds=("k",), grace_ms=0)
    for refusal in (dhp_client.Forbidden("Not a worker."), dhp_client.IntegrityError("Changed.")):
        client = cast(dhp_client.Client, RefusingClient(refusal))
        with pytest.raises(type(refusal)):
            await Worker(client, options, stop=Stop(), passing=Passing(1), telling=Told()).work()


async def test_a_daemon_that_cannot_store_anything_now_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "PAUSE_MS", 0)
    answers: list[Exception | int] = [
        dhp_client.StoreUnavailable("The disk is full."),
        dhp_client.Overloaded("Later."),
        7,
    ]

    async def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert await attempt._decided(ask) == 7
    answers = [dhp_client.TooLarge("It is too long.")]
    with pytest.raises(dhp_client.TooLarge):
        await attempt._decided(ask)
