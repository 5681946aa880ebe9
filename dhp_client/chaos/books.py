"""The books of a run: what each party says for itself, in files of its own that nobody else writes.

Owns the entries' shapes, and writing and reading them: JSON lines, `at_ms` on the machine's monotonic clock. A worker's book
holds only what was acknowledged to it or what it did; whether all of it fits together is the `judge`'s question.

    options.json        what was asked for
    dispatched.jsonl    the dispatcher's list
    workers/NAME.jsonl  one for each worker process, which may be killed at any moment
    daemon.jsonl        what the daemon tells of each handoff in the end: status, result, history
    faults.jsonl        what was done to them
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ..clock import monotonic_ms
from .plan import Options

OPTIONS = "options.json"
DISPATCHED, WORKERS, DAEMON, FAULTS = "dispatched.jsonl", "workers", "daemon.jsonl", "faults.jsonl"


class Dispatched(Struct, frozen=True, kw_only=True):
    """The daemon has acknowledged this handoff."""

    number: int
    handoff: str
    steps: int
    keep_checkpoints: int


class Entry(Struct, tag_field="entry", frozen=True, kw_only=True):
    """Of a worker's book: about `handoff`, which it held under `fence` as far as it knew."""

    at_ms: float = msgspec.field(default_factory=monotonic_ms)
    handoff: str
    fence: int


class Claimed(Entry, tag="claimed", frozen=True, kw_only=True):
    """A claim was granted, with the checkpoint `seq`, whose state is the chain so far; 0 and empty where there is none."""

    seq: int
    chain: str


class Begun(Entry, tag="begun", frozen=True, kw_only=True):
    """Is about to do this step."""

    step: int


class Acknowledged(Entry, tag="acknowledged", frozen=True, kw_only=True):
    """The daemon has acknowledged this checkpoint."""

    seq: int
    sha256: str


class Accepted(Entry, tag="accepted", frozen=True, kw_only=True):
    """The daemon has accepted this chain as the result."""

    chain: str


class Lost(Entry, tag="lost", frozen=True, kw_only=True):
    """Was told that the lease is gone."""

    why: str


class Late(Entry, tag="late", frozen=True, kw_only=True):
    """Wrote past the client under a fence that was lost, knowing that or not; `answer` is the error's code, or `accepted`."""

    op: str
    answer: str


class Surprise(Entry, tag="surprise", frozen=True, kw_only=True):
    """Met an error that none of the faults explains."""

    error: str


WorkerEntry = Claimed | Begun | Acknowledged | Accepted | Lost | Late | Surprise


class Record(Struct, frozen=True, kw_only=True):
    """Of a handoff's history, what the judge looks at."""

    type: str
    fence: int
    seq: int | None = None
    sha256: str | None = None
    worker: str | None = None


class Told(Struct, frozen=True, kw_only=True):
    """What the daemon tells of a handoff when all is over. `result` is None where there is none."""

    handoff: str
    status: str
    result: Any
    records: list[Record]


class Fault(Struct, frozen=True, kw_only=True):
    """What was done, to whom, and (in milliseconds) for how long."""

    at_ms: float = msgspec.field(default_factory=monotonic_ms)
    kind: str
    whom: str
    lasted_ms: float = 0.0


class Books(Struct, frozen=True, kw_only=True):
    """All of them; `workers` by the worker's name."""

    options: Options
    dispatched: list[Dispatched]
    workers: Mapping[str, list[WorkerEntry]]
    daemon: list[Told]
    faults: list[Fault]


class Writer:
    """Appends to one book; an entry is in the file once `write` returns, and on the disk unless told otherwise."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)

    def write(self, entry: Struct, *, synced: bool = True) -> None:
        """What isn't `synced` survives the writer's `kill -9`, but no power cut."""
        self._file.write(msgspec.json.encode(entry) + b"\n")
        if synced:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def write_options(folder: Path, options: Options) -> None:
    """The first of what a run leaves behind."""
    (folder / OPTIONS).write_bytes(msgspec.json.encode(options) + b"\n")


def write_all(path: Path, entries: Iterable[Struct]) -> None:
    """A whole book at once."""
    with Writer(path) as book:
        for entry in entries:
            book.write(entry, synced=False)


def read_books(folder: Path) -> Books:
    """The books of a run. Raises OSError, or `msgspec.DecodeError` where one isn't what it should be."""
    return Books(
        options=msgspec.json.decode((folder / OPTIONS).read_bytes(), type=Options),
        dispatched=_entries(folder / DISPATCHED, Dispatched),
        workers={path.stem: _worker_entries(path) for path in sorted((folder / WORKERS).glob("*.jsonl"))},
        daemon=_entries(folder / DAEMON, Told),
        faults=_entries(folder / FAULTS, Fault),
    )


T = TypeVar("T")


def _entries(path: Path, shape: type[T]) -> list[T]:
    return [msgspec.json.decode(line, type=shape) for line in _whole_lines(path)]


def _worker_entries(path: Path) -> list[WorkerEntry]:
    decoder = msgspec.json.Decoder(WorkerEntry)
    return [decoder.decode(line) for line in _whole_lines(path)]


def _whole_lines(path: Path) -> list[bytes]:
    """Without a last one that its writer was killed in the middle of: nobody has built on it yet."""
    return path.read_bytes().split(b"\n")[:-1]
