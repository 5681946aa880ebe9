"""One client at work, in a process of its own: `python -m bench.ours.client_worker CLIENT ADDRESS SECONDS WARMUP_SECONDS`.

CLIENT is `async` (the event loop is asyncio's own, as in a program that says nothing about loops), `async-uvloop` or `sync`.
Checkpoints 1 KB, one after the other, as a program would; prints what came of it as one line of JSON.
"""

import asyncio
import sys
import time
import uuid
from itertools import pairwise

import msgspec
import uvloop
from msgspec import Struct

import dhp_client
import dhp_client.sync

STATE = {"done": "x" * (1024 - len('{"done":""}'))}


class Result(Struct, frozen=True):
    per_second: float
    p50_us: float


class Clock:
    """`tick` after each operation; false once the time is over."""

    def __init__(self, seconds: float, warmup_seconds: float) -> None:
        self._begin = time.perf_counter() + warmup_seconds
        self._end = self._begin + seconds
        self._moments: list[float] = []

    def tick(self) -> bool:
        now = time.perf_counter()
        if now >= self._begin:
            self._moments.append(now)
        return now < self._end

    def result(self) -> Result:
        moments = self._moments
        took = sorted(after - before for before, after in pairwise(moments))
        return Result(len(took) / (moments[-1] - moments[0]), took[len(took) // 2] * 1e6)


async def run_async(address: str, seconds: float, warmup_seconds: float) -> Result:
    async with dhp_client.connect(address) as client:
        work = await client.dispatch("bench", {}, key=uuid.uuid4().hex)
        async with client.claim(work.handoff) as task:
            clock = Clock(seconds, warmup_seconds)
            while clock.tick():
                await task.checkpoint(STATE)
            await task.complete(None)
    return clock.result()


def run_sync(address: str, seconds: float, warmup_seconds: float) -> Result:
    with dhp_client.sync.connect(address) as client:
        work = client.dispatch("bench", {}, key=uuid.uuid4().hex)
        with client.claim(work.handoff) as task:
            clock = Clock(seconds, warmup_seconds)
            while clock.tick():
                task.checkpoint(STATE)
            task.complete(None)
    return clock.result()


def main(client: str, address: str, seconds: str, warmup_seconds: str) -> None:
    times = float(seconds), float(warmup_seconds)
    if client == "sync":
        result = run_sync(address, *times)
    elif client == "async-uvloop":
        result = uvloop.run(run_async(address, *times))
    else:
        result = asyncio.run(run_async(address, *times))
    print(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
