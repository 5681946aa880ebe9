"""The sync client: the async one, on an event loop in a thread of its own.

Owns the way from the caller's thread to that loop and back. There is one such thread per process. Nothing about leases,
retries or the protocol is decided here.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, NoReturn, TypeVar

from dhp_protocol.replies import (
    CancelReply,
    CheckpointReply,
    CompleteReply,
    DispatchReply,
    DrainReply,
    FailReply,
    HealthReply,
    HistoryReply,
    ListReply,
    ReleaseReply,
    StatsReply,
    StatusReply,
)

from . import client as asynchronous
from . import task as asynchronous_task
from .addresses import AddressLike
from .connecting import CONNECT_TIMEOUT_MS, IN_DOUBT_MS, RETRY_MS
from .connecting import connect as connect_asynchronously
from .exceptions import NothingToClaim
from .results import CheckpointPage, Result, StateAt
from .task import OnLost
from .watching import Watch, WatchEvent

T = TypeVar("T")


class _LoopThread:
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


_thread = _LoopThread()


async def _awaited(work: Awaitable[T]) -> T:
    return await work


class Task:
    """A claimed handoff, as `dhp_client.task.Task` without `await`; `with task:` runs the work.

    Nothing interrupts the body when the lease is lost: `lost` is set, `on_lost` is called on another thread, and the
    next call, or the end of the block, raises `LeaseLost`.
    """

    def __init__(self, inner: asynchronous_task.Task) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def handoff(self) -> str:
        """The handoff's id, the SHA-256 of `intent`."""
        return self._inner.handoff

    @property
    def kind(self) -> str:
        """What kind of work it is."""
        return self._inner.kind

    @property
    def inputs(self) -> Any:
        """What it was dispatched with, decoded."""
        return self._inner.inputs

    @property
    def intent(self) -> bytes:
        """The canonical bytes whose SHA-256 is `handoff`."""
        return self._inner.intent

    @property
    def state(self) -> Any:
        return self._inner.state

    @property
    def seq(self) -> int:
        return self._inner.seq

    @property
    def fence(self) -> int:
        return self._inner.fence

    @property
    def attempt(self) -> int:
        return self._inner.attempt

    @property
    def was(self) -> str:
        """Where it came from: "pending" or "orphaned"."""
        return self._inner.was

    @property
    def worker(self) -> str:
        return self._inner.worker

    @property
    def lost(self) -> bool:
        return self._inner.lost

    @property
    def in_doubt(self) -> bool:
        return self._inner.in_doubt

    @property
    def ended(self) -> str | None:
        return self._inner.ended

    def checkpoint(self, state: Any, *, steps: int = 1) -> CheckpointReply:
        return _thread.run(self._inner.checkpoint(state, steps=steps))

    def complete(self, result: Any) -> CompleteReply:
        return _thread.run(self._inner.complete(result))

    def fail(self, type: str, message: str = "", *, retry: bool = True, delay_ms: int = 0) -> FailReply:
        return _thread.run(self._inner.fail(type, message, retry=retry, delay_ms=delay_ms))

    def release(self, reason: str | None = None, delay_ms: int = 0) -> ReleaseReply:
        return _thread.run(self._inner.release(reason, delay_ms))

    def dispatch(
        self,
        kind: str,
        inputs: Mapping[str, Any],
        *,
        output_schema: Mapping[str, Any] | bool | None = None,
        budget: Mapping[str, Any] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        key: str | None = None,
        priority: int = 5,
        delay_ms: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> DispatchReply:
        return _thread.run(
            self._inner.dispatch(
                kind,
                inputs,
                output_schema=output_schema,
                budget=budget,
                capabilities=capabilities,
                key=key,
                priority=priority,
                delay_ms=delay_ms,
                labels=labels,
            )
        )

    def __enter__(self) -> "Task":
        self._inner.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loss = self._inner.loss_on_leaving(error)
        if loss is not None:
            raise loss from error
        _thread.run(self._inner.leave(error))


class NoTask:
    """What `claim` gives when nothing came: false, and no block can be run with it."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __bool__(self) -> Literal[False]:
        return False

    def __enter__(self) -> NoReturn:
        raise NothingToClaim(self._why)

    def __exit__(self, *_: object) -> None:
        raise AssertionError("a block that was never entered is left")


class Watches(Iterator[WatchEvent]):
    """An endless iteration over records, as `dhp_client.watching.Watch`."""

    def __init__(self, inner: Watch) -> None:
        self._inner = inner

    @property
    def position(self) -> int | None:
        """Of the last record given, or where the watch began."""
        return self._inner.position

    def __next__(self) -> WatchEvent:
        try:
            return _thread.run(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Ends the watch."""
        _thread.run(self._inner.aclose())

    def __enter__(self) -> "Watches":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client:
    """The client without `await`; see `dhp_client.Client`. May be used from several threads."""

    def __init__(self, inner: asynchronous.Client) -> None:
        self._inner = inner

    @property
    def session(self) -> str:
        return self._inner.session

    @property
    def closed(self) -> bool:
        return self._inner.closed

    def close(self) -> None:
        """Says goodbye: every lease that is still held is released."""
        if not self._inner.closed:
            _thread.run(self._inner.close())

    def __enter__(self) -> "Client":
        self._inner._session.check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def dispatch(
        self,
        kind: str,
        inputs: Mapping[str, Any],
        *,
        output_schema: Mapping[str, Any] | bool | None = None,
        budget: Mapping[str, Any] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        key: str = "",
        priority: int = 5,
        delay_ms: int = 0,
        parent: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> DispatchReply:
        return _thread.run(
            self._inner.dispatch(
                kind,
                inputs,
                output_schema=output_schema,
                budget=budget,
                capabilities=capabilities,
                key=key,
                priority=priority,
                delay_ms=delay_ms,
                parent=parent,
                labels=labels,
            )
        )

    def cancel(self, handoff: str, reason: str | None = None, children: bool = False) -> CancelReply:
        return _thread.run(self._inner.cancel(handoff, reason, children))

    def result(self, handoff: str, wait_ms: int = 0) -> Result:
        return _thread.run(self._inner.result(handoff, wait_ms))

    def ack(self, handoff: str) -> None:
        _thread.run(self._inner.ack(handoff))

    def claim(
        self,
        handoff: str | None = None,
        *,
        kinds: str | Iterable[str] | None = None,
        worker: str | None = None,
        wait_ms: int = 0,
        ttl_ms: int | None = None,
        detached: bool = False,
        on_lost: Callable[[Task], object] | None = None,
    ) -> Task | NoTask:
        """Takes the handoff named, or the first of `kinds`, waiting for it up to `wait_ms`.

        `with client.claim(...) as task:`, which raises `NothingToClaim`; or `task = …` and `if task:`. The block ends the
        work as the async one does; when the lease is lost, nothing interrupts the body, but its next call raises.
        """
        claiming = self._inner.claim(
            handoff,
            kinds=kinds,
            worker=worker,
            wait_ms=wait_ms,
            ttl_ms=ttl_ms,
            detached=detached,
            on_lost=_for_sync(on_lost),
        )
        return _task_or_none(_thread.run(_awaited(claiming)), wait_ms)

    def recover(
        self,
        handoff: str,
        *,
        worker: str | None = None,
        wait_ms: int = 0,
        ttl_ms: int | None = None,
        detached: bool = False,
        on_lost: Callable[[Task], object] | None = None,
    ) -> Task | NoTask:
        """As `claim` of a handoff, but only if it is orphaned."""
        claiming = self._inner.recover(
            handoff, worker=worker, wait_ms=wait_ms, ttl_ms=ttl_ms, detached=detached, on_lost=_for_sync(on_lost)
        )
        return _task_or_none(_thread.run(_awaited(claiming)), wait_ms)

    def status(self, handoff: str) -> StatusReply:
        return _thread.run(self._inner.status(handoff))

    def last_checkpoint(self, handoff: str) -> StateAt | None:
        return _thread.run(self._inner.last_checkpoint(handoff))

    def checkpoints(self, handoff: str, after: int = 0, limit: int = 100) -> CheckpointPage:
        return _thread.run(self._inner.checkpoints(handoff, after, limit))

    def history(self, handoff: str, after: int = 0, limit: int = 100) -> HistoryReply:
        return _thread.run(self._inner.history(handoff, after, limit))

    def list(
        self,
        *,
        status: str | None = None,
        kind: str | None = None,
        worker: str | None = None,
        label: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> ListReply:
        return _thread.run(
            self._inner.list(status=status, kind=kind, worker=worker, label=label, after=after, limit=limit)
        )

    def watch(
        self, handoff: str | None = None, kinds: str | Iterable[str] | None = None, after: int | None = None
    ) -> Watches:
        """`for event in client.watch(...)`: each record from now on, or from the position `after`."""
        return Watches(self._inner.watch(handoff, kinds, after))

    def stats(self) -> StatsReply:
        return _thread.run(self._inner.stats())

    def health(self) -> HealthReply:
        return _thread.run(self._inner.health())

    def drain(self) -> DrainReply:
        return _thread.run(self._inner.drain())

    def ping(self) -> None:
        _thread.run(self._inner.ping())


def _document(blocking: type, asynchronous: type) -> None:
    """Gives what has no docstring the one of its counterpart, which says the same but for `await`."""
    for name, member in vars(blocking).items():
        if not name.startswith("_") and member.__doc__ is None:
            member.__doc__ = getattr(asynchronous, name).__doc__


_document(Task, asynchronous_task.Task)
_document(Client, asynchronous.Client)


def connect(
    address: AddressLike | Iterable[AddressLike] | None = None,
    *,
    name: str | None = None,
    session: str | None = None,
    in_doubt_ms: int = IN_DOUBT_MS,
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
    retry_ms: int = RETRY_MS,
) -> Client:
    """A connected client; the arguments are those of `dhp_client.connect`. `with connect(...) as client:` closes it."""
    connecting = connect_asynchronously(
        address,
        name=name,
        session=session,
        in_doubt_ms=in_doubt_ms,
        connect_timeout_ms=connect_timeout_ms,
        retry_ms=retry_ms,
    )
    return Client(_thread.run(_awaited(connecting)))


def _task_or_none(inner: asynchronous_task.Task | None, wait_ms: int) -> Task | NoTask:
    return Task(inner) if inner is not None else NoTask(f"Nothing came within {wait_ms} ms.")


def _for_sync(on_lost: Callable[[Task], object] | None) -> OnLost | None:
    return None if on_lost is None else lambda inner: on_lost(Task(inner))
