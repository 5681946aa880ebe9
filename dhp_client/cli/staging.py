"""What `demo` and `chaos` share, which put something on stage with a daemon and workers of their own.

Owns how such a run ends when a signal comes, and what is shown of its outcome.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from .settings import FAILED, OK, Settings

ENDED = 128 + signal.SIGTERM
"""The exit code of a run that was told to end."""

T = TypeVar("T")


class Outcome(Protocol):
    """What a run came to."""

    @property
    def all_so(self) -> bool:
        """Whether everything that was to be shown is so."""


def staged(run: Coroutine[Any, Any, T]) -> T:
    """Carries `run` out; SIGTERM and SIGHUP cancel it, so that it takes down what it has put up."""

    async def until_told() -> T:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await run

    return asyncio.run(until_told())


def shown(settings: Settings, outcome: Outcome) -> int:
    """Shows the outcome to programs (a person has seen it come); the exit code."""
    if settings.as_json:
        settings.show(outcome)
    return OK if outcome.all_so else FAILED
