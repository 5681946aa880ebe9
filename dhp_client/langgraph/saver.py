"""The checkpointer as LangGraph calls it.

Owns its methods, each once as a coroutine, with two doors: `await` and without. What a thread is, is `threads`'s; what is written
of it, `values`'s.
"""

import asyncio
import concurrent.futures
import random
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from dhp_protocol.errors import TooLarge

from .. import sync
from ..client import Client
from ..exceptions import ClientError, WrongLoop
from ..task import Task
from .durability import belongs_to_run
from .entries import Entry, Put
from .thread import Thread
from .threads import HeldThread, ManyThreads, OneThread, Threads
from .values import (
    AllowedModules,
    checkpoint_tuple,
    config_of,
    metadata_of,
    put_entry,
    safe_serializer,
    writes_entry,
)

T = TypeVar("T")
KIND = "langgraph.thread"


class Listed(NamedTuple):
    """A checkpoint of a thread, by the thread's name."""

    thread: Thread
    thread_id: str
    put: Put


Found = list[Listed]


class DHPSaver(BaseCheckpointSaver[str]):
    """Saves graphs in handoffs, under their leases. Graphs must be run with `durability="sync"`.

    `DHPSaver(task)` is for a worker: it saves the one thread whose `thread_id` is `task.handoff`. The work must have been
    dispatched with `keep_checkpoints=dhp_client.KEEP_ALL`. When the lease is lost, the run ends before its next node, with
    `LeaseLost`; whoever claims the work next calls the graph with None as its input, and it goes on from its last checkpoint.

    `DHPSaver(client)` is for a program that talks to threads of any names: each is a handoff of `kind`, which is dispatched
    and claimed, waiting up to `wait_ms`, when a run begins or something is written; so two programs never write
    one thread (`AlreadyClaimed`). It stays claimed until `release`, or until the client closes. Looking claims nothing. A
    thread id of 64 hex digits is the handoff of that id.

    Task and client may be either kind, async or sync, and graphs may be run with `ainvoke` or `invoke`; only, with an async
    one `invoke` must not be called on that client's event loop, which it would block.

    Stored data is restored to LangGraph's known harmless types alone, and to those of `allowed_msgpack_modules` (types, or pairs
    of module and name); a state that holds others raises `TypeNotAllowed` when it is saved. `serde` is another serialiser
    instead, which owns its own safety. What is saved at one step must fit a checkpoint (`TooLarge`).

    Each checkpoint of the graph counts as one step of the handoff's budget. Nothing is pruned: there is no `prune`,
    `delete_for_runs` or `copy_thread`.
    """

    def __init__(
        self,
        over: "Task | sync.Task | Client | sync.Client",
        *,
        serde: SerializerProtocol | None = None,
        allowed_msgpack_modules: AllowedModules | None = None,
        kind: str = KIND,
        wait_ms: int = 0,
    ) -> None:
        if serde is not None and allowed_msgpack_modules is not None:
            raise ValueError("Give allowed_msgpack_modules to the serialiser that you pass as serde.")
        super().__init__(serde=serde if serde is not None else safe_serializer(allowed_msgpack_modules))
        inner = over._inner if isinstance(over, sync.Task | sync.Client) else over
        if not isinstance(inner, Task | Client):
            raise TypeError(f"Give a task or a client, not {over!r}.")
        self._threads: Threads = OneThread(inner) if isinstance(inner, Task) else ManyThreads(inner, kind, wait_ms)
        self._session = self._threads.client._session

    def get_next_version(self, current: str | int | None, channel: None) -> str:
        """Grows with each change; a random end tells two from each other that different runs have made."""
        number = current if isinstance(current, int) else int(current.split(".")[0]) if current else 0
        return f"{number + 1:032}.{random.random():016}"

    # What LangGraph asks for.

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._here(self._get(config))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._there(self._get(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for each in await self._here(self._find(config, filter, before, limit)):
            yield await self._here(self._load(each))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        for each in self._there(self._find(config, filter, before, limit)):
            yield self._there(self._load(each))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await self._here(self._put(config, checkpoint, metadata, new_versions))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._there(self._put(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._here(self._put_writes(config, writes, task_id, task_path))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._there(self._put_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """Cancels the thread's handoff and forgets it, whoever holds it; takes an admin's token where there are tokens."""
        await self._here(self._threads.delete(str(thread_id)))

    def delete_thread(self, thread_id: str) -> None:
        """As `adelete_thread`."""
        self._there(self._threads.delete(str(thread_id)))

    # What only this one has.

    async def arelease(self, thread_id: str) -> None:
        """Lets other programs write this thread again, once no run of this one is at it."""
        await self._here(self._threads.release(str(thread_id)))

    def release(self, thread_id: str) -> None:
        """As `arelease`."""
        self._there(self._threads.release(str(thread_id)))

    # Each of them once. They run on the client's event loop.

    async def _get(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id = _thread_id(config)
        threads = self._threads
        thread = await (threads.begin(thread_id) if belongs_to_run(config) else threads.look(thread_id))
        if thread is None:
            return None
        put = thread.find(config["configurable"].get("checkpoint_ns", ""), get_checkpoint_id(config))
        return None if put is None else checkpoint_tuple(self.serde, thread, thread_id, put)

    async def _find(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Found:
        """What is to be listed; what it holds isn't loaded yet, since all of it may be many times what the newest holds."""
        names = [name async for name in self._threads.names()] if config is None else [_thread_id(config)]
        wanted = {} if config is None else config["configurable"]
        before_id = None if before is None else get_checkpoint_id(before)
        found: Found = []
        for name in names:
            thread = await self._threads.look(name)
            for put in () if thread is None else thread.newest_first(wanted.get("checkpoint_ns"), before_id):
                if limit is not None and len(found) >= limit:
                    return found
                if self._fits(put, wanted.get("checkpoint_id"), filter or {}):
                    assert thread is not None
                    found.append(Listed(thread, name, put))
        return found

    async def _load(self, each: Listed) -> CheckpointTuple:
        return checkpoint_tuple(self.serde, *each)

    def _fits(self, put: Put, id: str | None, filter: dict[str, Any]) -> bool:
        if id and put.id != id:
            return False
        metadata: Any = metadata_of(self.serde, put) if filter else {}
        return all(metadata.get(name) == value for name, value in filter.items())

    async def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        belongs_to_run(config)
        thread_id = _thread_id(config)
        entry = put_entry(self.serde, config, checkpoint, metadata, new_versions)
        await _append(await self._threads.hold(thread_id), entry, steps=1)
        return config_of(thread_id, entry.namespace, entry.id)

    async def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        belongs_to_run(config)
        entry = writes_entry(self.serde, config, writes, task_id, task_path)
        await _append(await self._threads.hold(_thread_id(config)), entry, steps=0)

    # The two doors.

    async def _here(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` comes to, on whatever loop this is."""
        if asyncio.get_running_loop() is self._session.loop:
            return await work
        return await asyncio.wrap_future(self._sent(work))

    def _there(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` comes to, waited for by this thread."""
        if _running_loop() is self._session.loop:
            work.close()
            raise RuntimeError("This would wait for the event loop that it blocks: use ainvoke, aget_state and so on.")
        future = self._sent(work)
        try:
            return future.result()
        finally:
            future.cancel()  # A no-op once it is done; on Ctrl-C it stops the request.

    def _sent(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """`work` on the client's event loop, from elsewhere; raises where that wouldn't come to anything."""
        try:
            self._session.check_open()  # In a forked child the loop only looks as if it ran.
            if not self._session.loop.is_running():
                raise WrongLoop("The client's event loop has ended: connect on the one that runs.")
        except ClientError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._session.loop)


def _thread_id(config: RunnableConfig) -> str:
    thread_id = config["configurable"].get("thread_id")
    if thread_id is None:
        raise ValueError("Say which thread: pass {'configurable': {'thread_id': …}}.")
    return str(thread_id)


async def _append(held: HeldThread, entry: Entry, *, steps: int) -> None:
    try:
        await held.append(entry, steps=steps)
    except TooLarge as error:
        raise _too_large(error, entry) from None


def _too_large(error: TooLarge, entry: Entry) -> TooLarge:
    """The same, naming what takes up most of it."""
    parts = entry.changed if isinstance(entry, Put) else entry.writes
    sizes = {part.channel: len(part.value.data) for part in parts if part.value is not None}
    largest = max(sizes, key=lambda name: sizes[name], default=None)
    most = "" if largest is None else f", {sizes[largest]} of them channel {largest!r} before base64"
    return TooLarge(
        f"What the graph saves at this step has {error.details.get('size')} bytes and may have "
        f"{error.details.get('limit')}{most}: keep large data elsewhere, and its name in the state.",
        **error.details,
    )


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
