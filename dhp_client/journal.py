"""Journals: entries that are appended, one checkpoint each, and read back whole by whoever claims the work next.

Owns the rule that lets a framework with a log of its own keep it in a handoff: entry n is checkpoint n, all of them are kept,
and only the holder appends. What the entries say, and what they add up to, is their owner's: `langgraph`, `pydantic_ai`.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from dhp_protocol.limits import MAX_KEEP_CHECKPOINTS

from .exceptions import NoJournal
from .money import Money

if TYPE_CHECKING:
    from .looking import Looking
    from .task import Task

KEEP_ALL = MAX_KEEP_CHECKPOINTS
"""`dispatch(..., keep_checkpoints=KEEP_ALL)`: what work must be dispatched with whose checkpoints are a journal."""

PAGE = 1_000
"""Entries asked for at once; a page is also cut to fit a frame."""

Entry = TypeVar("Entry", bound=msgspec.Struct)


class Journal(Generic[Entry]):
    """The journal of a claimed handoff. `entry_type` is what entries are made of: a Struct, or a union of tagged ones.

    `fold(entry)` is called once for each entry, in order: for those that are there when it is opened, and for each one that is
    appended, once that is durable. So what it makes of them is what the next worker will make of them.
    """

    def __init__(self, task: "Task", entry_type: Any, fold: Callable[[Entry], None]) -> None:
        self._task = task
        self._entry_type = entry_type
        self._fold = fold
        self._turn = asyncio.Lock()
        self._length = 0

    @classmethod
    async def open(cls, task: "Task", entry_type: Any, fold: Callable[[Entry], None]) -> "Journal[Entry]":
        """Reads what is there. Raises `NoJournal` where this handoff's checkpoints are none, or wouldn't all be kept."""
        from .task import Task  # Wherever there is one, it's loaded by now.

        if not isinstance(task, Task):
            raise TypeError(f"Give a task that was claimed with `await` (dhp_client.connect), not {task!r}.")
        journal = cls(task, entry_type, fold)
        status = await task._hold.wait(lambda: task._client.status(task.handoff))
        kept = status.keep_checkpoints
        if kept is not None and kept < KEEP_ALL:
            raise NoJournal(
                f"This handoff keeps only its {kept} newest checkpoints, and a journal needs them all: "
                "dispatch it with keep_checkpoints=dhp_client.KEEP_ALL."
            )
        await journal._read_on(task.seq)
        return journal

    def __len__(self) -> int:
        """How many entries there are."""
        return self._length

    async def catch_up(self) -> None:
        """Folds what another journal over the same task has appended since; asks nobody where there is nothing."""
        async with self._turn:
            if self._task.seq > self._length:
                await self._read_on(self._task.seq)

    async def append(self, entry: Entry, *, steps: int = 1, usd: Money | None = None) -> None:
        """Appends one entry; it is durable, and folded, once this returns. May be called by several at the same time.

        `steps` and `usd` count against the handoff's caps as a checkpoint's do, and what that raises is raised here. Once begun
        it goes on when its caller is cancelled.
        """
        appending = asyncio.ensure_future(self._append(entry, steps, usd))
        appending.add_done_callback(_look_at)
        await asyncio.shield(appending)

    async def _append(self, entry: Entry, steps: int, usd: Money | None) -> None:
        async with self._turn:
            if self._length >= KEEP_ALL:
                raise NoJournal(f"A journal may have {KEEP_ALL} entries, and this one has: go on in another handoff.")
            stored = await self._task.checkpoint(msgspec.to_builtins(entry), steps=steps, usd=usd)
            if stored.seq == self._length + 1:
                self._length = stored.seq
                self._fold(entry)
            else:  # One that was given up, on an error that left open whether it counts, does count.
                await self._read_on(stored.seq)

    async def _read_on(self, until: int) -> None:
        """Folds what isn't folded yet, up to the entry `until`."""

        def fold(entry: Entry) -> None:
            self._length += 1
            self._fold(entry)

        task, after = self._task, self._length
        await task._hold.wait(lambda: read(task._client, task.handoff, self._entry_type, fold, after=after))
        if self._length < until:
            raise NoJournal(f"Entries {self._length + 1} to {until} of the journal can't be read yet.")


async def read(
    client: "Looking", handoff: str, entry_type: Any, fold: Callable[[Entry], None], *, after: int = 0
) -> None:
    """Folds the entries behind number `after` of anybody's journal, as far as it goes now, in order.

    Raises `NoJournal` where the checkpoints are none, and `NotFound` where there is no such handoff.
    """
    expected, behind = after + 1, after
    while True:
        page = await client.checkpoints(handoff, after=behind, limit=PAGE)
        for stored in page.checkpoints:
            if stored.seq != expected:
                raise NoJournal(f"Entries {expected} to {stored.seq - 1} of the journal aren't kept any more.")
            try:
                entry: Entry = msgspec.convert(stored.state, entry_type)
            except msgspec.ValidationError as problem:
                raise NoJournal(f"Checkpoint {stored.seq} is no entry of such a journal: {problem}.") from None
            fold(entry)
            expected += 1
        if page.next is None:
            return
        behind = page.next


def _look_at(appending: "asyncio.Future[None]") -> None:
    """What it raised has been told, or its caller doesn't want to know any more."""
    if not appending.cancelled():
        appending.exception()
