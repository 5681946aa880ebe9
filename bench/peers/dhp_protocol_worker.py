"""The work that is measured of `dhp-protocol`, in its own words: `python -m bench.peers.dhp_protocol_worker MODE FOLDER …`.

Owns what each mode does with the library, through its public calls and its default store. Prints one line of JSON. Runs
in the benchmark's own environment. Does not own figures.

Modes: `checkpoints` (each process checkpoints handoffs of its own), `heartbeats`, `life` (dispatch, claim, checkpoints,
complete), `history` (checkpoints on one handoff that has many already), `resume` (kill -9 of workers, until a standby
has recovered their handoffs).
"""

import argparse
import json
import time
from collections.abc import Callable
from math import ceil
from multiprocessing.connection import Connection

import dhp

from bench.peers.crew import FORK, Turns, arguments, crew, described

LONG = dhp.DHPConfig(lease_interval_s=3600.0)
SCHEMA = {"type": "object"}
RESULT = {"answer": 42}

CHECKPOINTS_PER_HANDOFF = 100
"""Each checkpoint costs more than the one before, so that `checkpoints` goes on with a fresh handoff now and then."""
FASTEST_PER_SECOND = 4000
"""About what it can do on a quick disk: handoffs for so many checkpoints are claimed before the clock runs."""

WORKERS = 5
BETWEEN_KILLS_S = 0.37
BETWEEN_CHECKPOINTS_S = 0.05
LEADER_TTL_S = 5.0


def state_of(size: int) -> dict[str, str]:
    """A state whose JSON has so many bytes."""
    return {"text": "x" * (size - len('{"text": ""}'))}


def dispatched(store: dhp.Store, number: int, turn: int, config: dhp.DHPConfig = LONG) -> str:
    return dhp.dispatch(store, "bench", {"worker": number, "turn": turn}, SCHEMA, cfg=config)


def claimed(store: dhp.Store, number: int, turn: int) -> dhp.TaskContext:
    return dhp.claim(store, dispatched(store, number, turn), f"w{number}", cfg=LONG)


def checkpoints(options: argparse.Namespace) -> dict[str, object]:
    state = state_of(options.bytes)
    most = FASTEST_PER_SECOND * (options.seconds + options.warmup) / CHECKPOINTS_PER_HANDOFF
    handoffs = ceil(most / options.processes * (2 if options.processes > 1 else 1))

    def work(number: int, turns: Turns) -> None:
        store = dhp.Store(options.folder, cfg=LONG)
        ready = [claimed(store, number, n) for n in range(handoffs)]
        context = ready.pop()
        for turn, _ in enumerate(turns(), start=1):
            context.checkpoint(state)
            if turn % CHECKPOINTS_PER_HANDOFF == 0:
                context = ready.pop() if ready else claimed(store, number, handoffs + turn)

    return described(crew(options.processes, work, options.seconds, options.warmup))


def heartbeats(options: argparse.Namespace) -> dict[str, object]:
    def work(number: int, turns: Turns) -> None:
        context = claimed(dhp.Store(options.folder, cfg=LONG), number, 0)
        for _ in turns():
            context.heartbeat()

    return described(crew(options.processes, work, options.seconds, options.warmup))


def life(options: argparse.Namespace) -> dict[str, object]:
    state = state_of(options.bytes)

    def work(number: int, turns: Turns) -> None:
        store = dhp.Store(options.folder, cfg=LONG)
        for turn, _ in enumerate(turns()):
            context = claimed(store, number, turn)
            for _ in range(options.checkpoints):
                context.checkpoint(state)
            context.complete(RESULT)

    return described(crew(options.processes, work, options.seconds, options.warmup))


def history(options: argparse.Namespace) -> dict[str, object]:
    """The history is built by its own import, which writes the same rows as a checkpoint, here in one transaction."""
    state = state_of(options.bytes)

    def work(number: int, turns: Turns) -> None:
        store = dhp.Store(options.folder, cfg=LONG)
        context = claimed(store, number, 0)
        context.checkpoint(state)
        store.cx.execute("BEGIN")
        store.import_checkpoints(context.hid, [{"seq": n, "state": state} for n in range(1, options.history)])
        store.cx.execute("COMMIT")
        for _ in turns():
            context.checkpoint(state)

    return described(crew(1, work, options.seconds, options.warmup), history=options.history)


def resume(options: argparse.Namespace) -> dict[str, object]:
    """Workers with its automatic heartbeats; a supervisor that hands each orphan to a standby at once, by its own hook."""
    config = dhp.DHPConfig(
        lease_interval_s=options.interval,
        lease_max_missed=options.missed,
        supervisor_scan_s=options.scan,
        leader_ttl_s=LEADER_TTL_S,
    )
    state = state_of(options.bytes)
    patience_s = 5 * config.lease_ttl_s + 10
    orphans, provide = FORK.Pipe(duplex=False)
    recovered, recover = FORK.Pipe(duplex=False)

    def supervise(ready: Connection) -> None:
        supervisor = dhp.Supervisor3(options.folder, "supervisor", provision=provide.send, cfg=config)
        supervisor.scan()
        ready.send("")
        supervisor.watch(patience_s)

    def stand_by(ready: Connection) -> None:
        store = dhp.Store(options.folder, cfg=config)
        ready.send("")
        while True:
            hid = orphans.recv()
            with dhp.recover(store, hid, "standby", cfg=config):
                assert dhp.last_checkpoint(store, hid) == state
                recover.send((hid, time.monotonic()))

    def labour(number: int) -> Callable[[Connection], None]:
        def work(ready: Connection) -> None:
            store = dhp.Store(options.folder, cfg=config)
            with dhp.claim(store, dispatched(store, number, 0, config), f"w{number}", cfg=config) as context:
                context.checkpoint(state)
                ready.send(context.hid)
                while True:
                    time.sleep(BETWEEN_CHECKPOINTS_S)
                    context.checkpoint(state)

        return work

    started = [_started(work, patience_s) for work in (supervise, stand_by, *map(labour, range(WORKERS)))]
    processes = [process for process, _ in started]
    killed: dict[str, float] = {}
    took: dict[str, float] = {}
    try:
        time.sleep(options.interval)
        for process, hid in started[2:]:
            process.kill()
            killed[hid] = time.monotonic()
            time.sleep(BETWEEN_KILLS_S * min(1.0, options.interval))
        while len(took) < WORKERS:
            if not recovered.poll(patience_s):
                raise TimeoutError(f"{WORKERS - len(took)} of {WORKERS} killed workers' handoffs were never recovered")
            hid, at = recovered.recv()
            took[hid] = at - killed[hid]
    finally:
        for process in processes:
            process.kill()
            process.join()
    ordered = sorted(took.values())
    return {
        "kills": WORKERS,
        "p50_ms": round(ordered[len(ordered) // 2] * 1000, 1),
        "max_ms": round(ordered[-1] * 1000, 1),
        "lease_ttl_s": config.lease_ttl_s,
        "scan_s": config.supervisor_scan_s,
    }


def _started(work: Callable[[Connection], None], patience_s: float):
    here, there = FORK.Pipe(duplex=False)
    process = FORK.Process(target=work, args=(there,), daemon=True)
    process.start()
    there.close()
    if not here.poll(patience_s):
        process.kill()
        raise TimeoutError("a process wasn't ready in time")
    return process, here.recv()


MODES = {mode.__name__: mode for mode in (checkpoints, heartbeats, life, history, resume)}


def main() -> None:
    parser = arguments(MODES)
    parser.add_argument("--history", type=int, default=10_000)
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--missed", type=int, default=3)
    parser.add_argument("--scan", type=float, default=1.0)
    options = parser.parse_args()
    store = dhp.Store(options.folder, cfg=LONG)
    settings = {name: store.cx.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    store.close()
    print(json.dumps({"mode": options.mode, **MODES[options.mode](options), **settings}))


if __name__ == "__main__":
    main()
