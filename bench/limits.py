"""What this machine can do at best: the parts of a durable write, each alone.

- `limits/echo/WxD/rate`: counted frames of a 1 KB checkpoint's size to a server that cuts them out and answers each with as many
  bytes as a checkpoint is answered with, decoding nothing (uvloop, a process of its own, W connections, D in flight on each);
- `limits/sqlite/batchN/rate`: rows of 1 KB into our journal's table, N in a commit, each commit synced, nothing beside it;
  `limits/sqlite/64KB/batchN/rate` with rows of 64 KB;
- `limits/fdatasync/1KB/rate`: appends of 1 KB to a file, each followed by fdatasync.

`python -m bench.limits echo` is the echo server, `python -m bench.limits sqlite FILE ROWS BYTES SECONDS` and `… fdatasync FILE BYTES
SECONDS` measure and print a rate.
"""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import uvloop

from bench.figures import Figure
from bench.generator import Load, run
from bench.setting import Setting
from dhpd.engine.records import Checkpointed, encode_record
from dhpd.store.appending import insert
from dhpd.store.connecting import prepare
from dhpd.store.wal import PAGE_BYTES, TAKE_OVER_BYTES

ROOT = Path(__file__).parents[1]
SHAPES = ((1, 1), (64, 1), (64, 16))
BATCHES = (1, 8, 16, 32, 64, 128, 256, 512)
LARGE_BATCHES = (1, 8, 64)
SMALL_BYTES = 1024
LARGE_BYTES = 65536
HANDOFFS = 64
LIMIT_S = 60

ANSWER = b'{"id":123456,"ok":true,"seq":123456,"sha256":"' + b"0123456789abcdef" * 4 + b'","duplicate":false}'
FRAMED_ANSWER = b"%d %s\n" % (len(ANSWER), ANSWER)


def measure(setting: Setting) -> Iterator[Figure]:
    with echo_server() as address:
        for connections, depth in SHAPES:
            load = echoed(setting, address, connections, depth)
            note = f"the generator used {load.busy:.0%} of a core"
            yield Figure(f"limits/echo/{connections}x{depth}/rate", load.per_second, "1/s", note)
    for rows in BATCHES:
        rate = sqlite_alone(setting.folder, rows, SMALL_BYTES, setting.seconds)
        yield Figure(f"limits/sqlite/batch{rows}/rate", rate, "1/s")
    for rows in LARGE_BATCHES:
        rate = sqlite_alone(setting.folder, rows, LARGE_BYTES, setting.seconds / 2)
        yield Figure(f"limits/sqlite/64KB/batch{rows}/rate", rate, "1/s")
    rate = fdatasync_alone(setting.folder, SMALL_BYTES, setting.seconds)
    yield Figure("limits/fdatasync/1KB/rate", rate, "1/s")


def echoed(setting: Setting, address: str, connections: int, depth: int) -> Load:
    """How fast frames go there and back."""
    return run(setting, "echo", address, connections=connections, depth=depth, bytes=SMALL_BYTES)


def sqlite_alone(folder: Path, rows: int, payload_bytes: int, seconds: float) -> float:
    """Rows per second into a fresh journal, `rows` in each commit, in a process that does nothing else."""
    file = folder / f"sqlite-{rows}-{payload_bytes}"
    try:
        return _told("sqlite", file, rows, payload_bytes, seconds)
    finally:
        for name in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
            name.unlink(missing_ok=True)


def fdatasync_alone(folder: Path, size: int, seconds: float) -> float:
    """Synced appends of `size` bytes per second."""
    file = folder / "fdatasync"
    try:
        return _told("fdatasync", file, size, seconds)
    finally:
        file.unlink(missing_ok=True)


@contextmanager
def echo_server() -> Iterator[str]:
    """The address of an echo server in a process of its own."""
    process = subprocess.Popen([*_COMMAND, "echo"], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        if not address:
            raise RuntimeError("the echo server ended before it was ready")
        yield address
    finally:
        process.terminate()
        process.communicate()


_COMMAND = (sys.executable, "-m", "bench.limits")


def _told(*words: object) -> float:
    command = [*_COMMAND, *map(str, words)]
    return float(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=LIMIT_S, check=True).stdout)


class Echo(asyncio.Protocol):
    """Cuts counted frames out of what comes, and answers each: all of one read with one write."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._held = b""

    def data_received(self, data: bytes) -> None:
        if self._held:
            data = self._held + data
        at = frames = 0
        while (space := data.find(b" ", at)) > 0:
            end = space + 1 + int(data[at:space])
            if end >= len(data):
                break
            if data[end] != 0x0A:
                self._transport.abort()
                return
            frames += 1
            at = end + 1
        self._held = data[at:]
        if frames:
            self._transport.write(FRAMED_ANSWER * frames)


async def serve_echo() -> None:
    """Until SIGTERM; prints its address first."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    print(f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await over.wait()


def commit_for(file: Path, rows: int, payload_bytes: int, seconds: float) -> float:
    """Commits as our writer does; rows per second of the time from each `begin` to the end of its `commit`.

    The log is taken over as often as ours is, which isn't in that time, and counts from the first time on: a log that still
    grows is half as fast as one that is written over, as ours is.
    """
    db = sqlite3.connect(file, isolation_level=None, cached_statements=64)
    prepare(db, power_safe=True)
    payload = b"x" * payload_bytes
    record = encode_record(
        Checkpointed(n=100, at_ms=1_800_000_000_000, fence=1, seq=98, sha256="0" * 64, bytes=payload_bytes, steps=1)
    )
    handoffs = [os.urandom(32) for _ in range(HANDOFFS)]
    position = 0
    counted = 0
    spent_ns = 0
    in_log_bytes = 0
    grown = False
    while spent_ns < seconds * 1e9:
        batch = [_row(at, handoffs, record, payload) for at in range(position + 1, position + rows + 1)]
        begun = time.perf_counter_ns()
        db.execute("begin immediate")
        insert(db, batch)
        db.execute("commit")
        took_ns = time.perf_counter_ns() - begun
        position += rows
        if grown:
            spent_ns += took_ns
            counted += rows
        in_log_bytes += rows * payload_bytes + 2 * PAGE_BYTES
        if in_log_bytes >= TAKE_OVER_BYTES:
            db.execute("pragma wal_checkpoint(restart)").fetchone()
            in_log_bytes = 0
            grown = True
    db.close()
    return counted / spent_ns * 1e9


def _row(position: int, handoffs: list[bytes], record: bytes, payload: bytes) -> tuple[Any, ...]:
    before = max(0, position - HANDOFFS)
    return (
        position,
        handoffs[position % HANDOFFS],
        position // HANDOFFS,
        position // HANDOFFS,
        before,
        before,
        record,
        payload,
    )


def append_for(file: Path, size: int, seconds: float) -> float:
    """Appends and syncs; how many per second."""
    block = b"x" * size
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    count = 0
    begun = time.perf_counter()
    while (spent := time.perf_counter() - begun) < seconds:
        os.write(descriptor, block)
        os.fdatasync(descriptor)
        count += 1
    os.close(descriptor)
    return count / spent


def main(part: str, *words: str) -> None:
    if part == "echo":
        uvloop.run(serve_echo())
    elif part == "sqlite":
        file, rows, payload_bytes, seconds = words
        print(commit_for(Path(file), int(rows), int(payload_bytes), float(seconds)))
    else:
        file, size, seconds = words
        print(append_for(Path(file), int(size), float(seconds)))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a word.
    main(*sys.argv[1:])
