"""The async client: what a program can ask of a daemon.

Owns the public surface. How requests get through is `connection`'s, what happens to leases `session`'s and `hold`'s.
"""

import asyncio
import os
import secrets
import socket
import weakref
from collections.abc import Generator, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from msgspec import UNSET, Raw, UnsetType

from dhp_protocol.intent import Intent, canonical_intent, handoff_id
from dhp_protocol.limits import DEFAULT_PRIORITY, MAX_NAME_CHARS
from dhp_protocol.messages import (
    Ack,
    Cancel,
    Checkpoints,
    Claim,
    Dispatch,
    Drain,
    GetResult,
    GetStatus,
    Health,
    History,
    LastCheckpoint,
    ListHandoffs,
    Ping,
    Recover,
    Request,
    Stats,
)
from dhp_protocol.replies import (
    CancelReply,
    CheckpointsReply,
    DispatchReply,
    DrainReply,
    Empty,
    HealthReply,
    HistoryReply,
    LastCheckpointReply,
    ListReply,
    ResultReply,
    StatsReply,
    StatusReply,
)

from . import payload
from .arguments import check_id, check_labels, check_text, check_whole
from .clock import monotonic_ms
from .exceptions import IntegrityError, NothingToClaim
from .results import CheckpointPage, Result, StateAt, decoded_checkpoint
from .session import Session
from .task import OnLost, Task
from .watching import Watch

LONG_INTENT_BYTES = 32 * 1024
"""Longer ones are canonicalised in a thread: it takes about 0.1 ms per KB."""

T = TypeVar("T")


class Client:
    """A connection to a daemon that survives outages of either. Made by `connect`, used on the event loop it was made on.

    Every call may raise the daemon's errors (`dhp_protocol.errors`), `NotConnected` when no daemon was to be reached for
    `retry_ms`, and `ClientClosed`. Calls may run at the same time, and may be cancelled.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._worker = default_worker()
        # Collected without `close`: leases must not live on. The program's end is the keep-alive's business.
        weakref.finalize(self, session.let_go).atexit = False

    @property
    def session(self) -> str:
        """The session's name: whoever knows it can join it."""
        return self._session.connection.session

    @property
    def closed(self) -> bool:
        """Whether it is of no more use: closed, or inherited by a forked child."""
        return self._session.closed

    async def close(self) -> None:
        """Says goodbye: every lease that is still held is released, and work under one is cancelled."""
        await self._session.close()

    async def __aenter__(self) -> "Client":
        self._session.check_usable()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Asking for work to be done.

    async def dispatch(
        self,
        kind: str,
        inputs: Mapping[str, Any],
        *,
        output_schema: Mapping[str, Any] | bool | None = None,
        budget: Mapping[str, Any] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        key: str = "",
        priority: int = DEFAULT_PRIORITY,
        delay_ms: int = 0,
        parent: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> DispatchReply:
        """Asks for a piece of work; the same intent twice is one handoff (`created` is false then).

        `output_schema` (JSON Schema) is what the result must meet, `budget` may be `{"max_attempts": n}`; both, as `key`,
        are part of the intent. `parent` is the id of the handoff that this one is a part of.
        """
        check_text(kind=kind, key=key)
        check_whole(priority=priority, delay_ms=delay_ms)
        if parent is not None:
            check_id(parent, member="parent")
        if labels is not None:
            check_labels(labels)
        members: dict[str, Any] = {"output_schema": output_schema, "budget": budget, "capabilities": capabilities}
        given: dict[str, Any] = {
            name: Raw(payload.encode(value, member=name)) for name, value in members.items() if value is not None
        }
        intent = Intent(kind=kind, inputs=Raw(payload.encode(inputs, member="inputs")), key=key, **given)
        long = sum(len(raw) for raw in (intent.inputs, *given.values())) > LONG_INTENT_BYTES
        canonical = await asyncio.to_thread(canonical_intent, intent) if long else canonical_intent(intent)
        request = Dispatch(
            kind=kind,
            inputs=intent.inputs,
            key=key,
            handoff=handoff_id(canonical),
            priority=priority,
            delay_ms=delay_ms,
            parent=_or_unset(parent),
            labels=UNSET if labels is None else dict(labels),
            **given,
        )
        reply = await self._call(request, DispatchReply)
        if reply.handoff != request.handoff:
            raise IntegrityError(f"The daemon calls {reply.handoff} what is {request.handoff}.")
        return reply

    async def cancel(self, handoff: str, reason: str | None = None, children: bool = False) -> CancelReply:
        """Ends the work from outside. A final one stays as it is, and `status` tells how that is."""
        check_id(handoff)
        return await self._call(Cancel(handoff=handoff, reason=_or_unset(reason), children=children), CancelReply)

    async def result(self, handoff: str, wait_ms: int = 0) -> Result:
        """The result, waited for up to `wait_ms` while the work isn't final."""
        check_id(handoff)
        check_whole(wait_ms=wait_ms)
        until_ms = monotonic_ms() + wait_ms
        while True:

            def ask() -> Request:
                return GetResult(handoff=handoff, wait_ms=max(0, int(until_ms - monotonic_ms())))

            self._session.check_usable()
            reply = await self._session.connection.call(ask, ResultReply)
            final = reply.status in ("completed", "cancelled", "dead")
            # The daemon bounds how long one request may wait.
            if final or monotonic_ms() >= until_ms or wait_ms <= self._session.connection.limits.max_wait_ms:
                found = None if isinstance(reply.result, UnsetType) else payload.decode(reply.result)
                return Result(status=reply.status, result=found)

    async def ack(self, handoff: str) -> None:
        """Takes note of a final handoff, so that it need not be kept for ever."""
        check_id(handoff)
        await self._call(Ack(handoff=handoff), Empty)

    # Doing work.

    def claim(
        self,
        handoff: str | None = None,
        *,
        kinds: str | Iterable[str] | None = None,
        worker: str | None = None,
        wait_ms: int = 0,
        ttl_ms: int | None = None,
        detached: bool = False,
        on_lost: OnLost | None = None,
    ) -> "Claiming":
        """Takes the handoff named, or the first of `kinds`, waiting for it up to `wait_ms`.

        `await` gives a `Task`, or None when nothing came. `async with` gives the task to its body, or raises
        `NothingToClaim`. Leaving the block without an end releases the work; an exception fails it, with retry;
        cancellation, Ctrl-C and exit release it (SIGTERM: see `exit_on_sigterm`). When the lease is lost, the body is
        cancelled and the block raises `LeaseLost`.

        Outside of a block, `task.lost` is set when the lease is lost, `on_lost(task)` is called, and the next call
        raises. The program's end releases the work, unless it is an uncaught exception; a task that is merely forgotten
        isn't renewed any more. A `detached` claim lives for `ttl_ms` whatever becomes of this program.
        """
        if (handoff is None) == (kinds is None):
            raise ValueError("Say what to claim: a handoff, or kinds.")
        if handoff is not None:
            check_id(handoff, hint="; for a kind write kinds=…")
        _check_claim(worker, wait_ms, ttl_ms)
        names = [kinds] if isinstance(kinds, str) else kinds
        request = Claim(
            worker=worker or self._worker,
            handoff=_or_unset(handoff),
            kinds=UNSET if names is None else list(names),
            wait_ms=wait_ms,
            ttl_ms=_or_unset(ttl_ms),
            detached=detached,
        )
        return Claiming(self, request, on_lost)

    def recover(
        self,
        handoff: str,
        *,
        worker: str | None = None,
        wait_ms: int = 0,
        ttl_ms: int | None = None,
        detached: bool = False,
        on_lost: OnLost | None = None,
    ) -> "Claiming":
        """As `claim` of a handoff, but only if it is orphaned."""
        check_id(handoff)
        _check_claim(worker, wait_ms, ttl_ms)
        request = Recover(
            worker=worker or self._worker,
            handoff=handoff,
            wait_ms=wait_ms,
            ttl_ms=_or_unset(ttl_ms),
            detached=detached,
        )
        return Claiming(self, request, on_lost)

    # Looking.

    async def status(self, handoff: str) -> StatusReply:
        """How one handoff stands."""
        check_id(handoff)
        return await self._call(GetStatus(handoff=handoff), StatusReply)

    async def last_checkpoint(self, handoff: str) -> StateAt | None:
        """The newest checkpoint."""
        check_id(handoff)
        reply = await self._call(LastCheckpoint(handoff=handoff), LastCheckpointReply)
        return None if reply.checkpoint is None else decoded_checkpoint(reply.checkpoint)

    async def checkpoints(self, handoff: str, after: int = 0, limit: int = 100) -> CheckpointPage:
        """A page of the checkpoints that are kept, oldest first; `after` is a seq."""
        check_id(handoff)
        check_whole(after=after, limit=limit)
        reply = await self._call(Checkpoints(handoff=handoff, after=after, limit=limit), CheckpointsReply)
        return CheckpointPage(checkpoints=[decoded_checkpoint(stored) for stored in reply.checkpoints], next=reply.next)

    async def history(self, handoff: str, after: int = 0, limit: int = 100) -> HistoryReply:
        """A page of what happened, oldest first; `after` is a record's `n`."""
        check_id(handoff)
        check_whole(after=after, limit=limit)
        return await self._call(History(handoff=handoff, after=after, limit=limit), HistoryReply)

    async def list(
        self,
        *,
        status: str | None = None,
        kind: str | None = None,
        worker: str | None = None,
        label: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> ListReply:
        """A page of statuses in the order of dispatch; `label` is `name=value`, `after` what `next` gave."""
        check_whole(after=after, limit=limit)
        wanted: Any = _or_unset(status)  # A word that is no status is refused by the daemon, by name.
        request = ListHandoffs(
            status=wanted,
            kind=_or_unset(kind),
            worker=_or_unset(worker),
            label=_or_unset(label),
            after=after,
            limit=limit,
        )
        return await self._call(request, ListReply)

    def watch(
        self, handoff: str | None = None, kinds: str | Iterable[str] | None = None, after: int | None = None
    ) -> Watch:
        """`async for event in client.watch(...)`: each record from now on, or from the position `after`; none is missed.

        The first record asked for raises `NotFound` when there is no such handoff.
        """
        if handoff is not None:
            check_id(handoff, hint="; for a kind write kinds=…")
        if after is not None:
            check_whole(after=after)
        names = [kinds] if isinstance(kinds, str) else kinds
        return Watch(self._session, handoff=handoff, kinds=None if names is None else list(names), after=after)

    async def stats(self) -> StatsReply:
        """Counts and rates."""
        return await self._call(Stats(), StatsReply)

    async def health(self) -> HealthReply:
        """Whether the daemon and its store are well."""
        return await self._call(Health(), HealthReply)

    async def drain(self) -> DrainReply:
        """Stops new claims and dispatches at the daemon; held leases go on, and are counted."""
        return await self._call(Drain(), DrainReply)

    async def ping(self) -> None:
        """Returns when the daemon has answered."""
        await self._call(Ping(), Empty)

    async def _call(self, request: Request, shape: type[T]) -> T:
        self._session.check_usable()
        return await self._session.connection.call(lambda: request, shape)

    async def _claimed(self, request: Claim | Recover, on_lost: OnLost | None) -> Task | None:
        self._session.check_usable()
        grant = await self._session.claim(request)
        if grant is None:
            return None
        return Task(self, self._session, grant, request.worker, detached=request.detached, on_lost=on_lost)


class Claiming:
    """A claim that is about to be made: `await` it, or run a block with it."""

    def __init__(self, client: Client, request: Claim | Recover, on_lost: OnLost | None) -> None:
        self._client = client
        self._request = request
        self._on_lost = on_lost
        self._task: Task | None = None

    def __await__(self) -> Generator[Any, None, Task | None]:
        return self._client._claimed(self._request, self._on_lost).__await__()

    async def __aenter__(self) -> Task:
        self._task = await self
        if self._task is None:
            raise NothingToClaim(f"Nothing came within {self._request.wait_ms} ms.")
        return await self._task.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        assert task is not None
        await task.__aexit__(kind, error, trace)


def _check_claim(worker: str | None, wait_ms: int, ttl_ms: int | None) -> None:
    check_whole(wait_ms=wait_ms)
    if worker is not None:
        check_text(worker=worker)
    if ttl_ms is not None:
        check_whole(ttl_ms=ttl_ms)


def default_worker() -> str:
    """A name for a worker that was given none: host, pid, and something that tells two in one process apart."""
    suffix = f"-{os.getpid()}-{secrets.token_hex(2)}"
    return socket.gethostname()[: MAX_NAME_CHARS - len(suffix)] + suffix


def _or_unset(value: T | None) -> T | UnsetType:
    return UNSET if value is None else value
