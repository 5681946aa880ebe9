"""The event loop behind the sync client, in a thread of its own.

Owns the way from the caller's thread to that loop and back. There is one such thread per process.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """One event loop, running in a daemon thread from its first use on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    def loop(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():  # A forked child has the objects, but not the thread.
            self._lock, self._loop, self._pid = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="dhp-sync", daemon=True)
                self._thread.start()
            return self._loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises. An exception in the waiting caller, such as Ctrl-C, cancels `work`."""
        loop = self.loop()
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("The sync client can't be used in a callback of its own, which it would wait for.")
        future: concurrent.futures.Future[T] = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        finally:
            future.cancel()


loop_thread = LoopThread()


async def awaited(work: Awaitable[T]) -> T:
    """What is no coroutine itself, as one."""
    return await work


def document(blocking: type, asynchronous: type) -> None:
    """Gives what has no docstring the one of its counterpart, which says the same but for `await`."""
    for name, member in vars(blocking).items():
        if not name.startswith("_") and member.__doc__ is None:
            member.__doc__ = getattr(asynchronous, name).__doc__
