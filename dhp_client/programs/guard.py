"""Sees to it that a program doesn't outlive the `dhp run` that it works for, `kill -9` included.

Run as a file, with the standard library alone: `guard.py LIFELINE REFUSAL COMMAND ARGS…`, as the leader of a session of its own.
It leaves a watcher behind and becomes COMMAND, so that whoever has started it has the program itself as its child. The
watcher holds the reading end of LIFELINE, a pipe whose other end only `dhp run` has: that end is closed by whatever ends it,
and then everything in the session is killed. The watcher is there before the program is, so there is no moment without.

Owns a session's end. A process that has started a session of its own means to live on, as daemons do, and is left alone. Where
there is no /proc (anything but Linux), only the process group of the program is found.
"""

import contextlib
import os
import select
import signal
import sys
from typing import NoReturn

LOOKS = 4
"""A program that starts others all the time, whatever it is told, is looked at again no further."""
SWEEPS = 200
LOOK_EVERY_S = 0.005
NOT_FOUND = 127
"""What a shell ends with where there is no such command."""


def signal_session(session: int, number: signal.Signals) -> bool:
    """Sends a signal, once, to each process of a session but the one that calls; whether there was any.

    Whoever is started while this looks around is found too. Where nobody is found, it goes to the session's first group.
    """
    told: set[int] = set()
    for _ in range(LOOKS):
        if not (new := _members(session) - told):
            break
        for pid in sorted(new, key=lambda pid: pid != session):  # The leader first, which may wait for the others.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        told |= new
    if not told:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, number)
    return bool(told)


def end_session(session: int) -> None:
    """SIGKILL to all of a session, until nobody is left who could start another one, or for a second."""
    for _ in range(SWEEPS):
        if not signal_session(session, signal.SIGKILL):
            return
        select.select((), (), (), LOOK_EVERY_S)


def _members(session: int) -> set[int]:
    """The processes of a session but the one that calls, as far as /proc tells; those that are dead already aren't among them."""
    try:
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    except OSError:
        pids = set()
    return {pid for pid in pids - {os.getpid()} if _is_alive_in(session, pid)}


def _is_alive_in(session: int, pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as told:
            # The name stands in parentheses, and may hold some itself.
            state, _, _, its_session = told.read().rpartition(b")")[2].split()[:4]
    except (OSError, ValueError):
        return False
    return int(its_session) == session and state not in (b"Z", b"X")


def _leave_watcher(lifeline: int, refusal: int) -> None:
    """Two forks, so that the program doesn't find a child that it knows nothing of."""
    session = os.getsid(0)
    if child := os.fork():
        os.waitpid(child, 0)
        return
    if os.fork():
        os._exit(0)
    os.setpgid(0, 0)  # Every signal is blocked here, but the program may send SIGKILL to its group.
    os.close(refusal)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # Whoever reads what the program writes waits for no end but the program's.
        os.dup2(nothing, descriptor)
    os.chdir("/")
    os.read(lifeline, 1)
    end_session(session)
    os._exit(0)


def main(lifeline: int, refusal: int, command: list[str]) -> NoReturn:
    """Becomes `command`; where that can't be, its errno is written to `refusal`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _leave_watcher(lifeline, refusal)
    os.close(lifeline)
    os.set_inheritable(refusal, False)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program would go on doing so.
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(refusal, str(error.errno).encode())
    os._exit(NOT_FOUND)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
