"""The async client: what a program can ask of a daemon.

Owns dispatching and claiming, and the client's life; the rest of its surface is `looking`'s and `overseeing`'s. How
requests get through is `connection`'s, what happens to leases `session`'s and `hold`'s.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw

from dhp_protocol.intent import Intent, canonical_intent, handoff_id
from dhp_protocol.limits import DEFAULT_KEEP_CHECKPOINTS, DEFAULT_PRIORITY, MAX_NAME_CHARS, Limits
from dhp_protocol.messages import Claim, Dispatch, Recover
from dhp_protocol.replies import DispatchReply

from . import payload
from .arguments import check_id, check_labels, check_text, check_whole
from .budgets import Budget, budget_json
from .bundles import Bundles
from .calls import or_unset
from .clock import monotonic_ms
from .exceptions import IntegrityError, NothingToClaim
from .looking import Looking
from .overseeing import Overseeing
from .session import Session

if TYPE_CHECKING:
    from .spool import Spool, Spooled
    from .task import OnLost, Task

LONG_INTENT_BYTES = 32 * 1024
"""Longer ones are canonicalised in a thread: it takes about 0.1 ms per KB."""


class Client(Looking, Overseeing, Bundles):
    """A connection to a daemon that survives outages of either. Made by `connect`, used on the event loop it was made on.

    Every call may raise the daemon's errors (`dhp_protocol.errors`), `NotConnected` when no daemon was to be reached for
    `retry_ms`, and `ClientClosed`. Calls may run at the same time, and may be cancelled.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._worker = default_worker()
        # Collected without `close`: leases must not live on. The program's end is the keep-alive's business.
        weakref.finalize(self, session.let_go).atexit = False

    @property
    def session(self) -> str:
        """The session's name: whoever knows it can join it."""
        return self._session.connection.session

    @property
    def limits(self) -> Limits:
        """What the daemon takes, as it said when it was last reached."""
        return self._session.connection.limits

    @property
    def roles(self) -> tuple[str, ...]:
        """What this client may do, as the daemon told it last: `dispatcher`, `worker`, `approver`, `reader`, `admin`."""
        return self._session.connection.roles

    @property
    def closed(self) -> bool:
        """Whether it is of no more use: closed, or inherited by a forked child."""
        return self._session.closed

    @property
    def draining(self) -> bool:
        """Whether nothing new is to be begun: this program is about to end (`exit_on_sigterm(grace_ms=…)`), or the daemon is."""
        return self._session.draining

    async def until_draining(self, wait_ms: int | None = None) -> bool:
        """Returns when `draining` becomes true, or after `wait_ms`; whether it is."""
        self._session.check_usable()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                await self._session.until_draining()
        return self.draining

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
        budget: Budget | Mapping[str, Any] | None = None,
        capabilities: Mapping[str, Sequence[str]] | None = None,
        key: str = "",
        priority: int = DEFAULT_PRIORITY,
        delay_ms: int = 0,
        parent: str | None = None,
        labels: Mapping[str, str] | None = None,
        keep_checkpoints: int = DEFAULT_KEEP_CHECKPOINTS,
    ) -> DispatchReply:
        """Asks for a piece of work; the same intent twice is one handoff (`created` is false then).

        `output_schema` (JSON Schema) is what the result must meet, `budget` caps what may be used up (`Budget` names the
        caps), and `capabilities`, `{domain: [resource or prefix*, …]}`, says what may be touched; all three, as `key`, are
        part of the intent. `parent` is the id of the handoff that this one is a part of: what this one spends counts there
        too. So many newest checkpoints are kept as `keep_checkpoints` says.
        """
        check_text(kind=kind, key=key)
        check_whole(priority=priority, delay_ms=delay_ms, keep_checkpoints=keep_checkpoints)
        if parent is not None:
            check_id(parent, member="parent")
        if labels is not None:
            check_labels(labels)
        members: dict[str, Any] = {"output_schema": output_schema, "capabilities": capabilities}
        given: dict[str, Any] = {
            name: Raw(payload.encode(value, member=name)) for name, value in members.items() if value is not None
        }
        if budget is not None:
            given["budget"] = budget_json(budget)
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
            parent=or_unset(parent),
            labels=UNSET if labels is None else dict(labels),
            keep_checkpoints=keep_checkpoints,
            **given,
        )
        reply = await self._call(request, DispatchReply)
        if reply.handoff != request.handoff:
            raise IntegrityError(f"The daemon calls {reply.handoff} what is {request.handoff}.")
        return reply

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
        on_lost: "OnLost | None" = None,
    ) -> "Claiming":
        """Takes the handoff named, or the first of `kinds`, waiting for it up to `wait_ms`.

        `await` gives a `Task`, or None when nothing came. `async with` gives the task to its body, or raises
        `NothingToClaim`. Leaving the block without an end releases the work; an exception fails it, with retry (but for
        `ApprovalDenied`, since another attempt would only be told the same);
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
            worker=worker or self._session.connection.worker or self._worker,
            handoff=or_unset(handoff),
            kinds=UNSET if names is None else list(names),
            wait_ms=wait_ms,
            ttl_ms=or_unset(ttl_ms),
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
        on_lost: "OnLost | None" = None,
    ) -> "Claiming":
        """As `claim` of a handoff, but only if it is orphaned."""
        check_id(handoff)
        _check_claim(worker, wait_ms, ttl_ms)
        request = Recover(
            worker=worker or self._session.connection.worker or self._worker,
            handoff=handoff,
            wait_ms=wait_ms,
            ttl_ms=or_unset(ttl_ms),
            detached=detached,
        )
        return Claiming(self, request, on_lost)

    async def _claimed(
        self, request: Claim | Recover, on_lost: "OnLost | None" = None, *, spool: "Spool | None" = None
    ) -> "Task | None":
        self._session.check_usable()
        from .task import Task  # With it all that a worker needs, before anything is claimed.

        spool = spool or self._session.spool
        until_ms = monotonic_ms() + request.wait_ms
        while True:
            grant = await self._session.claim(request)
            if grant is None:
                return None
            task = Task(self, self._session, grant, request.worker, detached=request.detached, on_lost=on_lost)
            if spool is None or await task._adopts(spool, grant):
                return task
            left_ms = max(0, int(until_ms - monotonic_ms()))
            request = msgspec.structs.replace(request, wait_ms=left_ms)

    # The spool.

    async def spooled(self) -> "list[Spooled]":
        """What the spool holds, of this process and of others, oldest first; empty where the client has none."""
        spool = self._session.spool
        return [] if spool is None else await asyncio.to_thread(spool.all)

    async def replay_spool(self, folder: str | os.PathLike[str] | None = None) -> "list[Spooled]":
        """Sends what dead processes have left in the spool, where nobody was at work on the handoff since, and hands the work back.

        Gives what is still there then. Claiming does the same by itself for each handoff that is claimed; this is for those that
        nobody may come to claim here. `folder` is another spool than the client's own.
        """
        from .replaying import replay_left
        from .spool import Spool

        spool = self._session.spool if folder is None else Spool(Path(folder))
        if spool is None:
            return []
        for one in await asyncio.to_thread(spool.all):
            if one.may_be_sent:
                await replay_left(self, spool, one)
        return await asyncio.to_thread(spool.all)


class Claiming:
    """A claim that is about to be made: `await` it, or run a block with it."""

    def __init__(self, client: Client, request: Claim | Recover, on_lost: "OnLost | None") -> None:
        self._client = client
        self._request = request
        self._on_lost = on_lost
        self._task: Task | None = None

    def __await__(self) -> "Generator[Any, None, Task | None]":
        return self._client._claimed(self._request, self._on_lost).__await__()

    async def __aenter__(self) -> "Task":
        self._task = await self
        if self._task is None:
            raise NothingToClaim(f"Nothing came within {self._request.wait_ms} ms.")
        return await self._task.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        task, self._task = self._task, None
        assert task is not None
        return await task.__aexit__(kind, error, trace)


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
