"""What a program prints, on its way to whoever reads the output of `dhp run`.

Owns writing to a descriptor that may take nothing for hours, without anything else having to wait for it.
"""

import asyncio
import contextlib
import os
import queue
import select
import threading


class Passing:
    """Writes in a thread of its own, which the program's end doesn't wait for."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._pieces: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._write_all, name="dhp-output", daemon=True).start()

    async def write(self, piece: bytes) -> None:
        """Returns when it is written; raises OSError when it can't be."""
        written: asyncio.Future[None] = self._loop.create_future()
        self._pieces.put((piece, written))
        await written

    def _write_all(self) -> None:
        while True:
            piece, written = self._pieces.get()
            error = self._write(piece)
            with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits any more.
                self._loop.call_soon_threadsafe(_settle, written, error)

    def _write(self, piece: bytes) -> OSError | None:
        rest = memoryview(piece)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:  # Whoever else has it, as its standard error, may have made it so.
                    _until_writable(self._descriptor)
        except OSError as error:
            return error
        return None


def _until_writable(descriptor: int) -> None:
    waiting = select.poll()  # Unlike `select`, it takes descriptors beyond 1023.
    waiting.register(descriptor, select.POLLOUT)
    waiting.poll()


def _settle(written: "asyncio.Future[None]", error: OSError | None) -> None:
    if written.done():  # Nobody waits for it any more.
        return
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)
