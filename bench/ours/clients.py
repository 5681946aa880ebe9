"""The clients, one task each, against the bare generator on one connection: checkpoints of 1 KB, one after the other."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.figures import Figure
from bench.generator import run
from bench.setting import Setting

from .client_worker import Result
from .rates import SMALL_BYTES
from .subject import Subject

ROOT = Path(__file__).parents[2]
CLIENTS = ("async", "async-uvloop", "sync")
ROUNDS = 3


def measure(setting: Setting) -> Iterator[Figure]:
    with Subject(setting, "clients") as subject:
        for _ in range(1 if setting.quick else ROUNDS):
            bare = run(setting, "dhp-checkpoint", subject.address, connections=1, bytes=SMALL_BYTES)
            yield from _figures("bare", Result(bare.per_second, bare.p50_us))
            for client in CLIENTS:
                yield from _figures(client, _run(setting, client, subject.address))
        yield from subject.pauses()


def _figures(client: str, result: Result) -> Iterator[Figure]:
    yield Figure(f"ours/client/{client}/rate", result.per_second, "1/s")
    yield Figure(f"ours/client/{client}/p50", result.p50_us / 1000, "ms")


def _run(setting: Setting, client: str, address: str) -> Result:
    command = [sys.executable, "-m", "bench.ours.client_worker", client, address]
    command += [str(setting.seconds), str(setting.warmup_seconds)]
    limit_s = setting.seconds + setting.warmup_seconds + 30
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=limit_s, check=True)
    return msgspec.json.decode(done.stdout, type=Result)
