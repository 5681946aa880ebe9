"""Those who wait, at one task, for what is under way for them, and hear at once that it is over.

Owns passing on what comes of it, or the end that came first. Does not own what that end is (`hold`).
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Callers:
    """Lives on `loop`, as whoever calls must."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callers: dict[asyncio.Future[Any], asyncio.Task[Any] | None] = {}
        self._writers: set[asyncio.Future[Any]] = set()

    async def answer(self, under_way: asyncio.Task[T], *, writes: bool, given_up: Callable[[], bool]) -> T:
        """What comes of `under_way`; `given_up` tells, once its caller is gone, whether it ends with them.

        `writes`: it hears of the end of the work by itself, and may be what ends it.
        """
        answer: asyncio.Future[T] = self._loop.create_future()
        under_way.add_done_callback(lambda done: _pass_on(done, answer))
        self._callers[answer] = asyncio.current_task()
        if writes:
            self._writers.add(answer)
        try:
            return await answer
        finally:
            del self._callers[answer]
            self._writers.discard(answer)
            if given_up():
                under_way.cancel()

    def tell_all(self, error: Exception) -> set[Any]:
        """Raises `error` to everybody who waits; gives their asyncio tasks."""
        return self._tell(error, [*self._callers])

    def tell_readers(self, error: Exception) -> None:
        """Raises `error` to those who don't write."""
        self._tell(error, [answer for answer in self._callers if answer not in self._writers])

    def _tell(self, error: Exception, answers: list[asyncio.Future[Any]]) -> set[Any]:
        told = set()
        for answer in answers:
            if not answer.done():
                answer.set_exception(error)
                told.add(self._callers[answer])
        return told


def _pass_on(done: asyncio.Task[T], answer: asyncio.Future[T]) -> None:
    """Gives what came of `done` to whoever waits for `answer`, if anybody still does."""
    error = None if done.cancelled() else done.exception()
    if answer.done():
        return
    if done.cancelled():
        answer.cancel()
    elif error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(done.result())
