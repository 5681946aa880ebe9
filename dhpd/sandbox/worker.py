"""The process itself: `python -m dhpd.sandbox.worker BOUNDS`.

Owns the bounds on itself: the kernel ends it when a task takes too much processor time, also in the middle of a pattern
that Python can't be interrupted in, and refuses it more memory than its share. Whoever started it takes a death for "no
answer". It reads tasks from standard input and answers each on standard output, in order:

    {"number":N,"task":NAME,"parts":[BYTES,…]}\\n, and as many bytes of each part
    {"number":N,"used_s":S,"answer":BYTES}\\n or {"number":N,"used_s":S,"refusal":BYTES}\\n, and so many bytes
    {"number":N,"used_s":S,"unfinished":true}\\n for what took longer than a slice, where the bounds have one

What it writes first, when it is ready, has the number 0; it ends when its input does.
"""

import gc
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

import msgspec

from dhp_protocol.errors import DHPError

from .bounds import Bounds
from .tasks import Tasks


class Ask(msgspec.Struct):
    """Which task, and how many bytes of each of its parts follow."""

    number: int
    task: str
    parts: list[int]


class Told(msgspec.Struct, omit_defaults=True):
    """What was asked, and how many bytes of answer, or of a `Refusal`, follow. Short, whatever they are.

    `used_s` is the processor time that it took; `unfinished`: that was a slice, and it was left.
    """

    number: int
    answer: int = 0
    refusal: int = 0
    used_s: float = 0.0
    unfinished: bool = False


class Refusal(msgspec.Struct):
    """The error that a task ended with."""

    code: str
    message: str
    details: dict[str, Any]


class SliceOver(BaseException):
    """Raised wherever Python is when a task has used up its slice; patterns look for signals too."""


def serve(tasks: Tasks, bounds: Bounds, requests: BinaryIO, answers: BinaryIO) -> None:
    """Does one task after the other."""
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Ask).decode
    answers.write(encode(Told(0)) + b"\n")
    answers.flush()
    usual_recursion = sys.getrecursionlimit()
    while line := requests.readline():
        ask = decode(line)
        parts = [requests.read(size) for size in ask.parts]
        before_s = _used_s()
        try:
            body = _bounded(bounds, tasks.by_name[ask.task], parts)
            told = Told(ask.number, answer=len(body))
        except DHPError as error:
            body = encode(Refusal(error.code, error.message, error.details))
            told = Told(ask.number, refusal=len(body))
        except SliceOver:
            body = b""
            told = Told(ask.number, unfinished=True)
        if told.unfinished:
            sys.setrecursionlimit(usual_recursion)
            gc.collect()  # What was half made may refer to itself.
        told.used_s = _used_s() - before_s
        answers.write(encode(told) + b"\n" + body)
        answers.flush()


def _bounded(bounds: Bounds, task: Callable[..., bytes], parts: list[bytes]) -> bytes:
    """The kernel ends the process when it has used too much; nothing in Python can hold that up. Before that, the slice ends."""
    try:
        signal.setitimer(signal.ITIMER_PROF, bounds.cpu_s)
        signal.setitimer(signal.ITIMER_VIRTUAL, bounds.slice_s)
        return task(*parts)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def _slice_over(signal_number: int, frame: object) -> None:
    raise SliceOver


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _bound(bounds: Bounds) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started it.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGVTALRM, _slice_over)
    for kind, bound in (
        (resource.RLIMIT_AS, bounds.memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        with suppress(ValueError, OSError):  # Not every kernel takes each; a tighter one may be in force.
            resource.setrlimit(kind, (bound, bound))


if __name__ == "__main__":
    gc.disable()  # Values make no cycles, and looking for some among millions of them takes most of the time.
    given = Bounds(*msgspec.json.decode(sys.argv[1]))
    _bound(given)
    serve(Tasks(given.steps), given, sys.stdin.buffer, sys.stdout.buffer)
