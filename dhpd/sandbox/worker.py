"""The process itself: `python -m dhpd.sandbox.worker BOUNDS`.

Owns the bounds on itself: the kernel ends it when a task takes too much processor time, also in the middle of a pattern
that Python can't be interrupted in, and refuses it more memory than its share. Whoever started it takes a death for "no
answer". It reads tasks from standard input and answers each on standard output, in order:

    {"number":N,"task":NAME,"parts":[BYTES,…]}\\n, and as many bytes of each part
    {"number":N,"answer":BYTES}\\n or {"number":N,"refusal":BYTES}\\n, and so many bytes

What it writes first, when it is ready, has the number 0; it ends when its input does.
"""

import gc
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    """What was asked, and how many bytes of answer, or of a `Refusal`, follow. Short, whatever they are."""

    number: int
    answer: int = 0
    refusal: int = 0


class Refusal(msgspec.Struct):
    """The error that a task ended with."""

    code: str
    message: str
    details: dict[str, Any]


def serve(tasks: Tasks, cpu_s: float, requests: BinaryIO, answers: BinaryIO) -> None:
    """Does one task after the other."""
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Ask).decode
    answers.write(encode(Told(0)) + b"\n")
    answers.flush()
    while line := requests.readline():
        ask = decode(line)
        parts = [requests.read(size) for size in ask.parts]
        with _processor_time(cpu_s):
            try:
                body = tasks.by_name[ask.task](*parts)
                told = Told(ask.number, answer=len(body))
            except DHPError as error:
                body = encode(Refusal(error.code, error.message, error.details))
                told = Told(ask.number, refusal=len(body))
        answers.write(encode(told) + b"\n" + body)
        answers.flush()


@contextmanager
def _processor_time(seconds: float) -> Iterator[None]:
    """The kernel ends the process when it has used so much; nothing in Python can hold that up."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _bound(bounds: Bounds) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started it.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
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
    serve(Tasks(given.steps), given.cpu_s, sys.stdin.buffer, sys.stdout.buffer)
