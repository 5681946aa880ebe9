"""The shim bites: a test that relies on a fault relies on this."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.support.fault_shim import Calls, FaultShim

SCRIPT = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for call in (lambda: os.pwrite(file, b"0123456789", 0), lambda: os.fsync(file), lambda: os.fdatasync(file),
             lambda: len(os.pread(file, 10, 0)), lambda: os.posix_fallocate(file, 0, 10), lambda: os.ftruncate(file, 10),
             lambda: os.open(sys.argv[1], os.O_RDONLY)):
    try:
        call_result = call()
        print("ok", "" if call_result is None else call_result)
    except OSError as error:
        print("failed", error.errno)
"""


def run(shim: FaultShim, *arguments: str) -> list[str]:
    env = {**os.environ, **shim.env}
    done = subprocess.run([sys.executable, "-c", *arguments], env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_without_a_fault_nothing_fails(shim: FaultShim, tmp_path: Path) -> None:
    lines = run(shim, SCRIPT, str(tmp_path / "file"))
    assert [line.split()[0] for line in lines] == ["ok"] * 7
    assert lines[0] == "ok 10"


def test_each_kind_of_call_fails_on_the_named_file(shim: FaultShim, tmp_path: Path) -> None:
    for calls, line in ((Calls.WRITE, 0), (Calls.READ, 3), (Calls.ALLOCATE, 4), (Calls.TRUNCATE, 5)):
        with shim.fails(calls, "/file", errno.ENOSPC) as fault:
            lines = run(shim, SCRIPT, str(tmp_path / "file"))
            assert lines[line] == f"failed {errno.ENOSPC}"
            assert sum(line.startswith("failed") for line in lines) == 1
            assert (fault.seen, fault.met) == (1, 1)
        with shim.fails(calls, "/file", errno.ENOSPC) as fault:
            run(shim, SCRIPT, str(tmp_path / "other"))
            assert fault.seen == 0
    with shim.fails(Calls.SYNC, "/file", errno.EIO) as fault:
        assert run(shim, SCRIPT, str(tmp_path / "file"))[1:3] == [f"failed {errno.EIO}"] * 2
        assert fault.met == 2
    with shim.fails(Calls.OPEN, "/file", errno.EMFILE, first=2) as fault:
        assert run(shim, SCRIPT, str(tmp_path / "file"))[6] == f"failed {errno.EMFILE}"
        assert (fault.seen, fault.met) == (2, 1)


def test_the_nth_call_fails_and_a_short_write_is_short(shim: FaultShim, tmp_path: Path) -> None:
    with shim.fails(Calls.SYNC, "/file", errno.EIO, first=2, most=1):
        lines = run(shim, SCRIPT, str(tmp_path / "file"))
        assert [line.split()[0] for line in lines[1:3]] == ["ok", "failed"]
    (tmp_path / "file").unlink()
    with shim.fails(Calls.WRITE, "/file", 0, keep=4):
        lines = run(shim, SCRIPT, str(tmp_path / "file"))
        assert (lines[0], lines[3]) == ("ok 4", "ok 4")


def test_the_wall_clock_steps_and_the_monotonic_one_does_not(shim: FaultShim) -> None:
    script = "import time, datetime; print(time.time(), datetime.datetime.now().timestamp(), time.monotonic())"
    for ahead_s in (0, 3_600, -3_600):
        shim.set_clock(ahead_s)
        wall_s, date_s, monotonic_s = map(float, run(shim, script)[0].split())
        assert abs(wall_s - time.time() - ahead_s) < 60
        assert abs(date_s - time.time() - ahead_s) < 60
        assert 0 <= time.monotonic() - monotonic_s < 60
