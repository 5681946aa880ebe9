"""dhp-protocol 1.3.0: the same job as ours in one Python library on SQLite, without a daemon.

Owns the conditions under which it is measured, which are the best that it offers: its processes are started, its stores
opened and its handoffs claimed before the clock runs; no supervisor scans meanwhile; leases are long; a handoff whose
history slows it is changed for a fresh one. What the work is: `dhp_protocol_worker`.
"""

from collections.abc import Iterator

from bench.figures import Figure
from bench.peers import scripts
from bench.setting import Setting

NAME = "dhp-protocol"
DURABILITY = (
    "as it comes, which is its safest: SQLite with a write-ahead log; it sets no `synchronous` of its own, so that SQLite's "
    "compiled default holds, here FULL: an fsync at each commit. Each statement is a commit of its own: a checkpoint is two "
    "(the row, then the stall clock), a claim two, a heartbeat one, a completion two; a call returns after the last. The "
    "ownership is checked in statements before, outside of the commit that relies on it."
)

MODULE = "bench.peers.dhp_protocol_worker"
FIGURES = f"peers/{NAME}"
PROCESSES = (1, 8)
HISTORY = 10_000
QUICK_HISTORY = 1_000


def measure(setting: Setting) -> Iterator[Figure]:
    """Durable operations per second by 1 and 8 processes on one store, and on a handoff with a long history. Raises
    `Unavailable` without the library."""
    version = scripts.version(setting, NAME)
    for processes in PROCESSES:
        note = f"{version}; {processes} processes" if processes > 1 else f"{version}; 1 process"
        fresh = f"{note}, a fresh handoff after each 100"
        yield from scripts.rate(
            setting, MODULE, "checkpoints", f"{FIGURES}/checkpoints/{processes}w", fresh, processes=processes
        )
        yield from scripts.rate(
            setting, MODULE, "heartbeats", f"{FIGURES}/heartbeats/{processes}w", note, processes=processes
        )
        yield from scripts.rate(
            setting, MODULE, "life", f"{FIGURES}/life/{processes}p", f"{note}, 10 checkpoints", processes=processes
        )
    history = QUICK_HISTORY if setting.quick else HISTORY
    yield from scripts.rate(
        setting, MODULE, "history", f"{FIGURES}/history/{history}", f"{version}; 1 process", history=history
    )


def measure_resume(setting: Setting) -> Iterator[Figure]:
    """kill -9 of a worker until a standby has recovered its handoff and read its last checkpoint: with the library's
    default lease, and with the shortest that it names, scanned for ten times as often as by default. Its supervisor tells
    the standby through its own hook, so that nobody polls. Raises `Unavailable` without the library."""
    version = scripts.version(setting, NAME)
    yield from scripts.resumed(
        setting,
        MODULE,
        f"{FIGURES}/resume-short-lease",
        f"{version}; lease 2 x 0.5 s, which it warns of, scanned for every 0.1 s",
        interval=0.5,
        missed=2,
        scan=0.1,
    )
    if not setting.quick:
        yield from scripts.resumed(
            setting, MODULE, f"{FIGURES}/resume", f"{version}; its default: lease 3 x 2 s, scanned for every 1 s"
        )
