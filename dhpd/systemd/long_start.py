"""A start that takes long, of a million handoffs or of a store that is brought to a newer schema, gets the time that it takes.

Owns what counts as going on: the process uses its processor, or reads from the disk. A start that hangs does neither, and the
manager's timeout ends it.
"""

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .manager import Manager

LOOK_EVERY_S = 5.0
MORE_S = 30.0
LEAST_CPU_S = 0.02
"""Looking itself takes a thousandth of that."""


@contextmanager
def given_time(manager: Manager, look_every_s: float = LOOK_EVERY_S) -> Iterator[None]:
    """While it lasts, and goes on, the manager waits."""
    if not manager.listens:
        yield
        return
    over = threading.Event()
    # A thread, for the loop stands still while memory is filled.
    watcher = threading.Thread(target=_watch, args=(manager, over, look_every_s), name="long start", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _watch(manager: Manager, over: threading.Event, look_every_s: float) -> None:
    cpu_s, blocks = _used()
    while not over.wait(look_every_s):
        cpu_now_s, blocks_now = _used()
        if cpu_now_s - cpu_s >= LEAST_CPU_S or blocks_now > blocks:
            manager.not_done(MORE_S)
        cpu_s, blocks = cpu_now_s, blocks_now


def _used() -> tuple[float, int]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_inblock + used.ru_oublock
