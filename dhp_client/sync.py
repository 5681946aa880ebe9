"""The sync client: the async one, on an event loop in a thread of its own (`loop_thread`).

Owns connecting, dispatching, claiming and watching without `await`; `sync_calls` and `sync_task` have the rest. Nothing
about leases, retries or the protocol is decided here.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

from dhp_protocol.limits import DEFAULT_KEEP_CHECKPOINTS, DEFAULT_PRIORITY
from dhp_protocol.replies import DispatchReply

from . import client as asynchronous
from . import task as asynchronous_task
from .addresses import AddressLike
from .budgets import Budget
from .connecting import BLOCKED_LOOP_MS, CONNECT_TIMEOUT_MS, RETRY_MS
from .connecting import connect as connect_asynchronously
from .exceptions import NothingToClaim
from .loop_thread import awaited, document, loop_thread
from .spool import MAX_SPOOL_BYTES, Spooled
from .sync_calls import Calls
from .sync_task import Task
from .task import OnLost
from .watching import Watch, WatchEvent

__all__ = ["Client", "NoTask", "Task", "Watches", "connect"]


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
            return loop_thread.run(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Ends the watch."""
        loop_thread.run(self._inner.aclose())

    def __enter__(self) -> "Watches":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client(Calls):
    """The client without `await`; see `dhp_client.Client`. May be used from several threads."""

    @property
    def session(self) -> str:
        return self._inner.session

    @property
    def roles(self) -> tuple[str, ...]:
        return self._inner.roles

    @property
    def closed(self) -> bool:
        return self._inner.closed

    @property
    def draining(self) -> bool:
        return self._inner.draining

    def until_draining(self, wait_ms: int | None = None) -> bool:
        return loop_thread.run(self._inner.until_draining(wait_ms))

    def close(self) -> None:
        """Says goodbye: every lease that is still held is released."""
        if not self._inner.closed:
            loop_thread.run(self._inner.close())

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
        budget: Budget | Mapping[str, Any] | None = None,
        capabilities: Mapping[str, Sequence[str]] | None = None,
        key: str = "",
        priority: int = DEFAULT_PRIORITY,
        delay_ms: int = 0,
        parent: str | None = None,
        labels: Mapping[str, str] | None = None,
        keep_checkpoints: int = DEFAULT_KEEP_CHECKPOINTS,
    ) -> DispatchReply:
        return loop_thread.run(
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
                keep_checkpoints=keep_checkpoints,
            )
        )

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
        return _task_or_none(loop_thread.run(awaited(claiming)), wait_ms)

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
        return _task_or_none(loop_thread.run(awaited(claiming)), wait_ms)

    def spooled(self) -> list[Spooled]:
        return loop_thread.run(self._inner.spooled())

    def replay_spool(self, folder: str | os.PathLike[str] | None = None) -> list[Spooled]:
        return loop_thread.run(self._inner.replay_spool(folder))

    def watch(
        self, handoff: str | None = None, kinds: str | Iterable[str] | None = None, after: int | None = None
    ) -> Watches:
        """`for event in client.watch(...)`: each record from now on, or from the position `after`."""
        return Watches(self._inner.watch(handoff, kinds, after))


document(Client, asynchronous.Client)


def connect(
    address: AddressLike | Iterable[AddressLike] | None = None,
    *,
    name: str | None = None,
    session: str | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    cert_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    server_name: str | None = None,
    in_doubt_ms: int | None = None,
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
    retry_ms: int = RETRY_MS,
    spool: str | os.PathLike[str] | None = None,
    max_spool_bytes: int = MAX_SPOOL_BYTES,
    blocked_loop_ms: int | None = BLOCKED_LOOP_MS,
) -> Client:
    """A connected client; the arguments are those of `dhp_client.connect`. `with connect(...) as client:` closes it."""
    connecting = connect_asynchronously(
        address,
        name=name,
        session=session,
        token=token,
        token_file=token_file,
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
        server_name=server_name,
        in_doubt_ms=in_doubt_ms,
        connect_timeout_ms=connect_timeout_ms,
        retry_ms=retry_ms,
        spool=spool,
        max_spool_bytes=max_spool_bytes,
        blocked_loop_ms=blocked_loop_ms,
    )
    return Client(loop_thread.run(awaited(connecting)))


def _task_or_none(inner: asynchronous_task.Task | None, wait_ms: int) -> Task | NoTask:
    return Task(inner) if inner is not None else NoTask(f"Nothing came within {wait_ms} ms.")


def _for_sync(on_lost: Callable[[Task], object] | None) -> OnLost | None:
    return None if on_lost is None else lambda inner: on_lost(Task(inner))
