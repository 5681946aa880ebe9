"""What the agents of this process hold: handles, the tasks behind them, and when each is let go.

Owns that only a handle that was given out leads to a task, so that nobody writes by naming a handoff or a fence; that a handle whose work
has ended says so instead of meaning another claim's; that work nobody calls about is let go, where a connection can't tell that its
agent has died; and that a claim is given back whose answer nobody has got. Lives on one event loop.

The leases themselves are the tasks': they are renewed as long as a task stands here.
"""

import asyncio
import contextlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from mcp.types import RequestId

from dhp_protocol.errors import DHPError

from ..clock import monotonic_ms
from ..exceptions import ClientError
from ..task import Task
from .refusals import UnknownHandle, told

log = logging.getLogger("dhp_client")

MAX_GONE = 1_000
"""So many handles whose work has ended still say how."""
SHORT_ID_CHARS = 12


@dataclass
class Holding:
    """One handle's."""

    handle: str
    task: Task
    calls: int = 0
    """Under way with this handle: nobody is idle meanwhile."""
    not_before_ms: float = 0.0
    """A question to a person stands until then, and calls are not to be expected."""
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)


class Ended(Exception):
    """The handle's work has ended; the text is what the agent is told."""


class Record:
    """`idle_ms`: let go so long after the last call (None: never). `guessable`: handles may be read and typed, since nobody but this
    process's own agent can send any.
    """

    def __init__(self, *, idle_ms: int | None, guessable: bool) -> None:
        self.idle_ms = idle_ms
        self.guessable = guessable
        self._holdings: dict[str, Holding] = {}
        self._gone: OrderedDict[str, str] = OrderedDict()
        self._granted_to: dict[RequestId, str] = {}
        """Which handle each request's answer brought, until the agent has used it."""
        self._background: set[asyncio.Task[None]] = set()

    def add(self, task: Task, request_id: RequestId | None) -> str:
        """The handle of a task that was just claimed in answer to that request."""
        # By the fence, which never falls: the attempts of a handoff that was forgotten and dispatched anew begin at 1 again.
        handle = f"{task.handoff[:SHORT_ID_CHARS]}.{task.fence}" if self.guessable else secrets.token_urlsafe(24)
        self._holdings[handle] = holding = Holding(handle, task)
        if request_id is not None and self.guessable:
            self._granted_to[request_id] = handle
        self._look(holding)
        return handle

    @contextlib.contextmanager
    def using(self, handle: str) -> Iterator[Task]:
        """The handle's task, for one call. Raises `Ended`, and `UnknownHandle` for one that was never given out here."""
        holding = self._holdings.get(handle)
        if holding is None:
            if handle in self._gone:
                raise Ended(self._gone[handle])
            raise UnknownHandle("This server has given out no such handle since it was started.")
        self._forget_request(handle)
        holding.calls += 1
        holding.not_before_ms = 0.0
        self._look(holding)
        try:
            yield holding.task
        finally:
            holding.calls -= 1
            self._look(holding)

    def all(self) -> list[tuple[str, Task]]:
        """Every handle and its task, as far as the work is still held, oldest claim first."""
        for holding in list(self._holdings.values()):
            self._look(holding)
        return [(holding.handle, holding.task) for holding in self._holdings.values()]

    def await_person(self, handle: str, within_ms: float) -> None:
        """No call is to be expected for so long, since the agent's host asks a person."""
        holding = self._holdings.get(handle)
        if holding is not None:
            holding.not_before_ms = monotonic_ms() + within_ms
            self._look(holding)

    def is_lost(self, task: Task) -> None:
        """The lease of one of the tasks is lost."""
        for holding in list(self._holdings.values()):
            if holding.task is task:
                self._look(holding)

    def is_cancelled(self, request_id: RequestId) -> None:
        """Whoever made that request has turned away from it, perhaps just before the answer came: a claim that they don't know of is given
        back.
        """
        handle = self._granted_to.pop(request_id, None)
        if handle is not None:
            self.give_back(handle)

    def give_back(self, handle: str) -> None:
        """Nobody has heard of this claim, nor ever will."""
        holding = self._holdings.get(handle)
        if holding is not None:
            self._go(holding, "The call that claimed it was cancelled, so it was given back.")
            giving_back = asyncio.get_running_loop().create_task(_given_back(holding.task))
            self._background.add(giving_back)
            giving_back.add_done_callback(self._background.discard)

    def _look(self, holding: Holding) -> None:
        """It may have ended, or be idle from now on."""
        if holding.timer is not None:
            holding.timer.cancel()
            holding.timer = None
        over = _over(holding.task)
        if over is not None:
            self._go(holding, over)
        elif self.idle_ms is not None and not holding.calls:
            idle_ms = max(self.idle_ms, holding.not_before_ms - monotonic_ms())
            holding.timer = asyncio.get_running_loop().call_later(idle_ms / 1000, self._is_idle, holding)

    def _is_idle(self, holding: Holding) -> None:
        log.warning("%r is let go: its agent hasn't called for %s ms", holding.task, self.idle_ms)
        holding.task.abandon()
        self._go(
            holding,
            f"lease_lost: There was no call with this handle for {self.idle_ms} ms, so its lease was let go.\n"
            "Next: Write nothing more for it. If recover with its handoff gives it to you, go on from the state that comes with it.",
        )

    def _go(self, holding: Holding, text: str) -> None:
        if self._holdings.get(holding.handle) is holding:
            del self._holdings[holding.handle]
        self._forget_request(holding.handle)
        self._gone[holding.handle] = text
        while len(self._gone) > MAX_GONE:
            self._gone.popitem(last=False)

    def _forget_request(self, handle: str) -> None:
        for request_id, given in list(self._granted_to.items()):
            if given == handle:
                del self._granted_to[request_id]


def _over(task: Task) -> str | None:
    """What every call about the task is told from now on; None while it is held."""
    try:
        task._check()
    except (DHPError, ClientError) as error:
        return told(error)
    return None


async def _given_back(task: Task) -> None:
    try:
        await task.release("claim withdrawn")
    except (DHPError, ClientError) as error:
        log.warning("%r couldn't be given back, its lease ends by itself: %s", task, error)
        task.abandon()
