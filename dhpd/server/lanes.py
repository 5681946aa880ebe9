"""Lanes: requests of one connection about one handoff, in the order sent, while one of them is being prepared.

Owns who lines up behind whom, and that a failed preparation answers its own request and no other. Does not own what is
prepared (`preparing`).
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, Protocol

from msgspec import UNSET

from dhp_protocol.errors import DHPError
from dhp_protocol.messages import AnyRequest, ApprovalDecide, ApprovalWait, Dispatch, Watch
from dhpd.engine.approvals import handoff_of
from dhpd.engine.dispatching import PreparedDispatch
from dhpd.engine.waiting import Address
from dhpd.store.backend import DiskError

from .answers import mistake, unreadable

MAX_TAKEN = 32
"""Per connection. Each is a task and much that belongs to it, and the collector takes long over very many."""
ANY_HANDOFF = "*"
"""The lane of a dispatch that isn't named yet: it may be about any handoff."""

Queued = AnyRequest | PreparedDispatch
Work = Coroutine[Any, Any, None]

_log = logging.getLogger(__name__)


class Begins(Protocol):
    """Who carries requests out."""

    def begin(self, request: Queued, to: Address, lane: str | None = None) -> None:
        """Its turn has come. None: its lane is the one that `lane_of` tells."""

    def enter(self, request: Queued, to: Address, left: str = "") -> None:
        """It has stood in the lane `left` until now, which is free."""

    def refuse(self, to: Address, error: DHPError) -> None:
        """It can't be carried out."""


class Lanes:
    def __init__(self, begins: Begins, cleared: Callable[[int], None]) -> None:
        """`cleared` is called with a connection's number when a lane of it is free."""
        self._begins = begins
        self._cleared = cleared
        self._lanes: dict[tuple[int, str], deque[tuple[Queued, Address]]] = {}
        self._taken_by: Counter[int] = Counter()  # How many lanes of each connection.
        self._lane_numbers = count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        """Whether nothing of anybody is being prepared, so that nobody stands behind anything."""
        return not self._lanes

    def busy(self, connection: int) -> bool:
        """Whether anything of this connection is being prepared."""
        return connection in self._taken_by

    def full(self, connection: int) -> bool:
        """Whether so much of this connection is being prepared that nothing more should come of it meanwhile."""
        return self._taken_by.get(connection, 0) >= MAX_TAKEN

    def taken(self, lane: str) -> bool:
        """Whether anything in that lane is being prepared, whosever it is."""
        return any(name == lane for _, name in self._lanes)

    def enter(self, request: Queued, to: Address, lane: str, left: str) -> None:
        """Lines up behind an earlier request in its lane, or begins. `left` is the lane that it has stood in so far."""
        if self._lanes and lane:
            # A dispatch that isn't named yet may be about any handoff, so whoever comes stands behind it first; but to
            # who has stood in a handoff's own lane it came later.
            for name in (ANY_HANDOFF, lane) if left in ("", ANY_HANDOFF) else (lane,):
                if self.line_up(request, to, name):
                    return
        self._begins.begin(request, to, lane)

    def line_up(self, request: Queued, to: Address, lane: str) -> bool:
        """Whether somebody is in that lane, and so this stands behind them."""
        line = self._lanes.get((to.connection, lane))
        if line is None:
            return False
        line.append((request, to))
        return True

    def later(self, lane: str, to: Address, work: Work) -> None:
        """Does `work` off the spot; meanwhile requests of the same connection in the same lane line up behind it."""
        key = (to.connection, lane or f"#{next(self._lane_numbers)}")  # About no handoff: nothing lines up behind it.
        assert key not in self._lanes, "who finds a lane taken lines up in it"
        self._lanes[key] = deque()
        self._taken_by[to.connection] += 1
        task = asyncio.get_running_loop().create_task(self._clear(key, to, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _clear(self, key: tuple[int, str], to: Address, work: Work) -> None:
        try:
            await work
        except DHPError as error:
            self._begins.refuse(to, error)
        except DiskError as error:
            _log.error("a read failed: %s", error)
            self._begins.refuse(to, unreadable())
        except Exception:
            _log.exception("a request could not be carried out")
            self._begins.refuse(to, mistake())
        line = self._lanes.pop(key)
        self._taken_by[key[0]] -= 1
        if not self._taken_by[key[0]]:
            del self._taken_by[key[0]]
        for request, address in line:  # In order: if one has to wait, those after it line up behind it.
            self._begins.enter(request, address, left=key[1])
        self._cleared(key[0])

    async def stop(self) -> None:
        """The connections are gone: gives up what is still being prepared for them."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


def lane_of(request: Queued) -> str:
    """Which requests of one connection keep their order: those about the same handoff. `""`: this one is about none."""
    if isinstance(request, (ApprovalWait, ApprovalDecide)):
        return handoff_of(request.approval)
    handoff = getattr(request, "handoff", UNSET)
    if handoff is not UNSET and not isinstance(request, Watch):
        return str(handoff)
    return ANY_HANDOFF if isinstance(request, Dispatch) else ""
