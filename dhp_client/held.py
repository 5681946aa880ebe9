"""A claimed handoff as its worker sees it: what it is, and how its lease stands.

Owns what a task is made of and what can be read of it. What its worker says is `spending`'s, `effects`', `asking`'s and
`task`'s; how that gets through is `hold`'s.
"""

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw

from . import payload
from .exceptions import InDoubt
from .grants import Grant
from .hold import Hold
from .leases import Lease, Phase
from .session import Session
from .writes import Write

if TYPE_CHECKING:
    from .client import Client

T = TypeVar("T")


class _Intent(msgspec.Struct, frozen=True):
    kind: str
    inputs: Raw


class Held:
    """Base of `task.Task`. Its making doesn't begin the lease: that is the task's, once everything is in place."""

    def __init__(self, client: "Client", session: Session, grant: Grant, worker: str, *, detached: bool) -> None:
        reply = grant.reply
        intent = msgspec.json.decode(grant.intent, type=_Intent)
        self.handoff: str = reply.handoff
        self.kind: str = intent.kind
        self.inputs: Any = payload.decode(intent.inputs)
        self.intent: bytes = grant.intent
        self.was: str = reply.was
        self._session = session
        self._client = client  # A client isn't collected while somebody works with one of its tasks.
        self._parked = False
        """Whether a question of ours is what puts the work aside."""
        lease = Lease(
            handoff=reply.handoff,
            fence=reply.fence,
            ttl_ms=reply.lease.ttl_ms,
            heartbeat_ms=reply.lease.heartbeat_ms,
            in_doubt_ms=session.in_doubt_ms,
            deadline_ms=grant.renewed_ms + reply.lease.ttl_ms,
            detached=detached,
        )
        hold = self._hold = Hold(session, lease, self.kind, worker)
        hold.attempt = reply.attempt
        if (stored := grant.checkpoint) is not None:
            hold.stored(stored.seq, stored.sha256, bytes(stored.state))
        hold.finalizer = weakref.finalize(self, session.leases.forget, lease)
        hold.finalizer.atexit = False

    def __repr__(self) -> str:
        return f"<Task {self.kind} {self.handoff[:12]}, fence {self.fence}, {self.ended or self._hold.phase.value}>"

    @property
    def state(self) -> Any:
        """The last stored checkpoint's state, decoded; None if there is none."""
        hold = self._hold
        if hold.state_text is not None:
            hold.state, hold.state_text = payload.decode(hold.state_text), None
        return hold.state

    @property
    def state_text(self) -> bytes:
        """`state` as JSON text, until it is decoded just as it was stored: for handing it on."""
        text = self._hold.state_text
        return payload.encode(self._hold.state, member="state") if text is None else text

    @property
    def inputs_text(self) -> bytes:
        """`inputs` as JSON text, in canonical form."""
        return bytes(msgspec.json.decode(self.intent, type=_Intent).inputs)

    @property
    def seq(self) -> int:
        """The last stored checkpoint's number; 0 if there is none."""
        return self._hold.seq

    @property
    def fence(self) -> int:
        """The credential of every write. It changes when a lease that ended unclaimed was claimed again."""
        return self._hold.lease.fence

    @property
    def attempt(self) -> int:
        """How often the handoff has been claimed, this time included."""
        return self._hold.attempt

    @property
    def worker(self) -> str:
        """Who has claimed it, as status and history show."""
        return self._hold.worker

    @property
    def lost(self) -> bool:
        """Whether the lease is lost: somebody else may be at work. May be read from any thread."""
        return self._hold.lost

    @property
    def in_doubt(self) -> bool:
        """Whether it isn't known that the lease lives; writes wait meanwhile. May be read from any thread."""
        return self._hold.phase in (Phase.IN_DOUBT, Phase.ENDED)

    @property
    def spooled(self) -> int:
        """How many writes wait in the spool; 0 where there is none. May be read from any thread."""
        return self._hold.kept

    @property
    def draining(self) -> bool:
        """Whether this program is about to end (`exit_on_sigterm(grace_ms=…)`), or the daemon takes on no more work: finish soon,
        or leave the block after a checkpoint. May be read from any thread."""
        return self._session.draining

    @property
    def ended(self) -> str | None:
        """`completed`, `failed`, `released`, `suspended`, or `dead` (at a cap) once this worker is through with it."""
        return self._hold.ended

    def _check(self) -> None:
        """Raises what every call raises once there is nothing more to do with this task."""
        self._hold.check()

    async def _within_retry_time(self, write: Write[T]) -> T:
        retry_ms = self._session.connection.retry_ms
        try:
            async with asyncio.timeout(retry_ms / 1000):
                return await self._hold.write(write)
        except TimeoutError:
            raise InDoubt(f"Nobody has answered for {retry_ms:.0f} ms: whether this counts isn't known.") from None
