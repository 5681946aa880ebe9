"""Which handoff a thread is, and under which task it is written.

Owns claiming threads, and their journals while they are held. `OneThread` is a worker's task; `ManyThreads` makes handoffs of
whatever threads a program names. What entries say is `values`'s.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Protocol
from weakref import WeakValueDictionary

from msgspec import Raw

from dhp_protocol.errors import AlreadyClaimed, NotClaimable, NotFound
from dhp_protocol.intent import Intent, canonical_intent, handoff_id
from dhp_protocol.limits import MAX_ATTEMPTS, MAX_LABEL_CHARS

from .. import payload
from ..budgets import budget_json
from ..client import Client
from ..exceptions import NothingToClaim
from ..journal import KEEP_ALL, Journal, read
from ..task import Task
from .entries import Entry
from .thread import Thread

LABEL = "thread_id"
"""The label by which a thread's handoff is found."""
_BUDGET = {"max_attempts": MAX_ATTEMPTS}
"""A conversation doesn't end because programs that took part in it did."""
_HANDOFF = re.compile(r"[0-9a-f]{64}")


class HeldThread:
    """A thread whose handoff is claimed: only this process writes it, so that its fold is what the daemon has."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.thread = Thread()
        self._journal: Journal[Entry] | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> "HeldThread":
        """Reads what there is, the first time."""
        async with self._opening:
            if self._journal is None:
                thread = Thread()
                self._journal = await Journal.open(self.task, Entry, thread.add)
                self.thread = thread
        return self

    async def newest(self) -> Thread:
        """The thread with what another saver over the same task has written since, if there is one."""
        await self.open()
        assert self._journal is not None
        await self._journal.catch_up()
        return self.thread

    async def append(self, entry: Entry, *, steps: int) -> None:
        """Writes one entry; it is durable, and in `thread`, once this returns."""
        await self.open()
        assert self._journal is not None
        await self._journal.append(entry, steps=steps)


class Threads(Protocol):
    """Where a saver's threads are."""

    @property
    def client(self) -> Client: ...

    async def begin(self, thread_id: str) -> Thread:
        """For a run that is about to begin: from here on nobody else writes this thread."""

    async def hold(self, thread_id: str) -> HeldThread:
        """For a write."""

    async def look(self, thread_id: str) -> Thread | None:
        """For somebody who only looks; None: there is no such thread."""

    def names(self) -> AsyncIterator[str]:
        """Every thread there is."""

    async def release(self, thread_id: str) -> None:
        """Lets others write it."""

    async def delete(self, thread_id: str) -> None:
        """Deletes it with all it has, whoever holds it; without a word where there is none."""


class OneThread:
    """The thread that a worker's task is."""

    def __init__(self, task: Task) -> None:
        self._held = HeldThread(task)

    @property
    def client(self) -> Client:
        return self._held.task._client

    async def begin(self, thread_id: str) -> Thread:
        held = await self.hold(thread_id)
        held.task._check()  # LangGraph doesn't wait for what a run saves first, before its first node.
        return await held.newest()

    async def hold(self, thread_id: str) -> HeldThread:
        handoff = self._held.task.handoff
        if thread_id != handoff:
            raise ValueError(
                f"This saver writes one thread, its task's: pass {{'configurable': {{'thread_id': task.handoff}}}}, "
                f"which is {handoff}, not {thread_id!r}."
            )
        return await self._held.open()

    async def look(self, thread_id: str) -> Thread | None:
        return await (await self.hold(thread_id)).newest()

    async def names(self) -> AsyncIterator[str]:
        yield self._held.task.handoff

    async def release(self, thread_id: str) -> None:
        raise ValueError("This saver's thread is its task, which is released as a task is: task.release().")

    async def delete(self, thread_id: str) -> None:
        raise ValueError("This saver's thread is the work in hand: end it, and then client.forget(handoff) deletes it.")


class ManyThreads:
    """Threads of any names, each a handoff of `kind`, claimed when it is first written and held from there on."""

    def __init__(self, client: Client, kind: str, wait_ms: int) -> None:
        self._client = client
        self._kind = kind
        self._wait_ms = wait_ms
        self._held: dict[str, HeldThread] = {}
        self._claiming: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def client(self) -> Client:
        return self._client

    async def begin(self, thread_id: str) -> Thread:
        if self._written(thread_id) is None:
            self._held.pop(thread_id, None)  # The run that was at it has been told, or will be. This one begins anew.
        return (await self.hold(thread_id)).thread

    async def hold(self, thread_id: str) -> HeldThread:
        async with self._claiming.setdefault(thread_id, asyncio.Lock()):
            if thread_id not in self._held:
                self._held[thread_id] = await self._open(await self._claim(thread_id))
            return self._held[thread_id]

    def _written(self, thread_id: str) -> HeldThread | None:
        """The thread, if nobody else can write it."""
        held = self._held.get(thread_id)
        return None if held is None or held.task.lost or held.task.ended is not None else held

    async def _open(self, task: Task) -> HeldThread:
        try:
            return await HeldThread(task).open()
        except BaseException:
            await task.release("it holds no thread of a graph")
            raise

    async def look(self, thread_id: str) -> Thread | None:
        held = self._written(thread_id)
        if held is not None:
            return held.thread
        thread = Thread()
        try:
            await read(self._client, self._handoff(thread_id), Entry, thread.add)
        except NotFound:
            return None
        return thread

    async def names(self) -> AsyncIterator[str]:
        after: int | None = 0
        while after is not None:
            page = await self._client.list(kind=self._kind, after=after)
            for status in page.handoffs:
                if LABEL in status.labels:
                    yield status.labels[LABEL]
            after = page.next

    async def release(self, thread_id: str) -> None:
        async with self._claiming.setdefault(thread_id, asyncio.Lock()):
            held = self._written(thread_id)
            self._held.pop(thread_id, None)
            if held is not None:
                await held.task.release()

    async def delete(self, thread_id: str) -> None:
        async with self._claiming.setdefault(thread_id, asyncio.Lock()):
            handoff = self._handoff(thread_id)
            try:
                await self._client.cancel(handoff, reason="the thread is deleted")
                await self._client.forget(handoff)
            except NotFound:
                pass
            self._held.pop(thread_id, None)

    async def _claim(self, thread_id: str) -> Task:
        handoff = self._handoff(thread_id)
        if handoff != thread_id:
            await self._client.dispatch(
                self._kind,
                {LABEL: thread_id},
                budget=_BUDGET,
                labels={LABEL: thread_id},
                keep_checkpoints=KEEP_ALL,
            )
        try:
            task = await self._client.claim(handoff, wait_ms=self._wait_ms)
        except AlreadyClaimed as refused:
            raise AlreadyClaimed(
                f"Another program, or another DHPSaver of this one, holds the thread {thread_id!r}: wait for it with "
                "DHPSaver(…, wait_ms=…), or have it released.",
                **refused.details,
            ) from None
        except NotClaimable as refused:
            if handoff == thread_id or refused.details.get("status") != "cancelled":
                raise
            raise NotClaimable(
                f"The thread {thread_id!r} was cancelled: delete_thread has it begin anew, another thread_id leaves it as it is.",
                **refused.details,
            ) from None
        if task is None:
            raise NothingToClaim(f"Somebody else holds the thread {thread_id!r}, and did for {self._wait_ms} ms.")
        return task

    def _handoff(self, thread_id: str) -> str:
        """The handoff that this thread is: the one of that id, or the one that is dispatched for it."""
        if _HANDOFF.fullmatch(thread_id):
            return thread_id
        if not 0 < len(thread_id) <= MAX_LABEL_CHARS:
            raise ValueError(f"A thread_id has 1 to {MAX_LABEL_CHARS} characters, and this one {len(thread_id)}.")
        inputs = Raw(payload.encode({LABEL: thread_id}, member="thread_id"))
        return handoff_id(canonical_intent(Intent(kind=self._kind, inputs=inputs, budget=budget_json(_BUDGET))))
