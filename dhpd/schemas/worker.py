"""The process that judges what isn't plainly cheap: `python -m dhpd.schemas.worker`.

Owns the bounds on itself: the kernel ends it when a verdict takes too much processor time, also in the middle of a pattern
that Python can't be interrupted in, and refuses it more memory than its share. Whoever started it takes a death for "no
verdict". It reads requests from standard input and answers each on standard output, in order:

    {"schema":N,"result":M}\\n, N bytes of schema, M bytes of result (without "result": is this a schema?)
    {}\\n, or {"code":"result_invalid","message":…,"path":…,"rule":…}\\n

The first line that it writes is {}, when it is ready; it ends when its input does.
"""

import gc
import resource
import signal
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

import msgspec

from dhp_protocol.errors import DHPError, SchemaInvalid

from .compiling import Validator, compile_schema
from .patterns import compile_pattern
from .references import MAX_SUBSCHEMAS
from .verdicts import Bounds, judge

DEEP = 50_000
"""Frames of Python: a value 128 levels deep, each asked about by many subschemas in turn, needs more than usual."""


class Ask(msgspec.Struct, omit_defaults=True):
    """How many bytes of schema and of result follow."""

    schema: int
    result: int | None = None


class Told(msgspec.Struct, omit_defaults=True):
    """A refusal, or nothing."""

    code: str = ""
    message: str = ""
    path: str = ""
    rule: str = ""


class Worker:
    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._validators: OrderedDict[bytes, Validator] = OrderedDict()
        self._size = 0

    def serve(self, requests: BinaryIO, answers: BinaryIO) -> None:
        encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Ask).decode
        answers.write(b"{}\n")
        answers.flush()
        while line := requests.readline():
            ask = decode(line)
            schema = requests.read(ask.schema)
            result = None if ask.result is None else requests.read(ask.result)
            with _processor_time(self._bounds.cpu_s):
                told = self._answer(schema, result)
            answers.write(encode(told) + b"\n")
            answers.flush()

    def _answer(self, schema: bytes, result: bytes | None) -> Told:
        try:
            validator = self._validator(schema)
            refusal: DHPError | None = None
            if result is not None:
                refusal = judge(validator, result, self._bounds.steps, _deep_recursion)
        except SchemaInvalid as error:
            refusal = error
        except (RecursionError, MemoryError):
            refusal = SchemaInvalid("The output schema takes more than the daemon's bounds.", path="", rule="limit")
        return Told() if refusal is None else Told(refusal.code, refusal.message, **refusal.details)

    def _validator(self, schema: bytes) -> Validator:
        validator = self._validators.get(schema)
        if validator is not None:
            self._validators.move_to_end(schema)
            return validator
        validator = self._validators[schema] = compile_schema(schema, compile_pattern)
        self._size += validator.size
        while self._size > MAX_SUBSCHEMAS and len(self._validators) > 1:
            _, dropped = self._validators.popitem(last=False)
            self._size -= dropped.size
            del dropped
            gc.collect()  # Its nodes refer to one another.
        return validator


@contextmanager
def _processor_time(seconds: float) -> Iterator[None]:
    """The kernel ends the process when it has used so much; nothing in Python can hold that up."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Only where every call is one of Python's own, which takes no room on C's stack."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(DEEP)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)


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
    Worker(given).serve(sys.stdin.buffer, sys.stdout.buffer)
