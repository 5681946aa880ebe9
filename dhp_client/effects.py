"""Effects on the outside world: done once, whoever comes back to the step.

Owns when a call may be made: never for a step that is done, never twice at the same time, and for one that was begun
before only by whoever settles the doubt. What is on record is the daemon's.

Between the call and the record of its end a worker can always die. So the next one is told, and the idempotency key, the
same for every attempt, lets the outside service tell a repetition.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from dhp_protocol.messages import EffectBegin, Request
from dhp_protocol.replies import EffectReply

from . import keepable, payload
from .arguments import check_text
from .asking import Approved
from .exceptions import EffectInDoubt, InDoubt
from .held import Held
from .leases import Phase
from .looking import Looking
from .spool_lines import KeptEffect
from .writes import Write

T = TypeVar("T")

_calls_under_way: "ContextVar[tuple[Effect, ...]]" = ContextVar("calls_under_way", default=())
"""The effects whose calls have led to the code that looks."""


class EffectBegun(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about a step: `new`: carry it out; `in_doubt`: find out first whether it was; `done`: nothing, `result` tells.

    `idempotency_key` is the same for every attempt: give it to the outside service.
    """

    state: str
    idempotency_key: str
    result: Any = None


class Step:
    """What one task knows of one of its steps."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.asked_under: set[int] = set()
        """Fences under which it may have been begun by us, without the call having been made."""
        self.called = False
        """The call was made, and its end isn't on record."""


class Effect:
    """One passage through a step. The sync client goes through the same, making the call in the caller's thread."""

    def __init__(self, task: "Effects", step: str, approval: str | Approved | None) -> None:
        self.done = False
        self.result: Any = None
        self._task = task
        self._name = step
        self._step = task._steps.setdefault(step, Step())
        self._has_turn = False
        self._approval = approval.approval if isinstance(approval, Approved) else approval
        self.key = ""
        self._in_doubt = False
        if any(outer._has_turn and outer._step is self._step for outer in _calls_under_way.get()):
            raise RuntimeError(f"The effect {step!r} is called within its own call, which it would wait for.")

    async def __aenter__(self) -> "Effect":
        self._task._check()
        self._task._session.check_usable()
        await self._step.turn.acquire()
        self._has_turn = True
        try:
            await self._begin()
        except BaseException:
            self._end_turn()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end_turn()

    def _end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._step.turn.release()

    async def _begin(self) -> None:
        task, step = self._task, self._step
        approval = UNSET if self._approval is None else self._approval

        def request() -> Request:
            step.asked_under.add(task.fence)
            return EffectBegin(handoff=task.handoff, fence=task.fence, step=self._name, approval=approval)

        reply = await task._hold.write(Write(request, EffectReply, begins=True))
        self.key = reply.idempotency_key
        if reply.state == "done":
            self.done = True
            self.result = None if isinstance(reply.result, UnsetType) else payload.decode(reply.result)
            return
        ours = reply.state == "new" or await self._was_begun_by_us()
        self._in_doubt = step.called or not ours

    async def _was_begun_by_us(self) -> bool:
        """Whether the fence that began it was ours, and we got no further than asking."""
        if len(self._step.asked_under) < 2:  # The present fence alone: another one began it.
            return False
        task = self._task
        begun = await task._hold.wait(lambda: begun_under(task._client, task.handoff, self._name))
        return begun in self._step.asked_under

    def call_for(self, call: Callable[[str], T], in_doubt: Callable[[str], T] | None) -> Callable[[], T]:
        """What is to be called now. Raises `EffectInDoubt` where that takes an `in_doubt` and there is none.

        Looks at the lease last of all, since asking may have taken longer than it lives.
        """
        self._task._check()
        if self._task._hold.phase is not Phase.HELD:
            raise InDoubt("Whether the lease lives isn't known, so no effect begins under it: try again later.")
        chosen = in_doubt if self._in_doubt else call
        if chosen is None:
            raise EffectInDoubt(self._name, self.key)
        self._step.called = True
        return lambda: chosen(self.key)

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """Around the call, in its own task or thread."""
        token = _calls_under_way.set((*_calls_under_way.get(), self))
        try:
            yield
        finally:
            _calls_under_way.reset(token)

    async def finish(self, result: Any) -> Any:
        """Puts the result on record; gives it as every later attempt will get it."""
        task, text = self._task, self._recordable(result)
        await task._hold.write(keepable.effect_done(task._hold, KeptEffect(step=self._name, result=Raw(text))))
        self._step.called = False
        return payload.decode(text)

    def _recordable(self, result: Any) -> bytes:
        try:
            return payload.encode(result, member="its result")
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"The effect {self._name!r} was carried out, but can't be put on record and is in doubt now: {error}"
            ) from None


class Effects(Held):
    """The part of a task that acts on the outside world."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._steps: dict[str, Step] = {}

    async def effect(
        self,
        step: str,
        call: Callable[[str], Awaitable[Any] | Any],
        *,
        approval: str | Approved | None = None,
        in_doubt: Callable[[str], Awaitable[Any] | Any] | None = None,
    ) -> Any:
        """`call(idempotency_key)`, once for all attempts at this handoff; gives its result, or the one on record.

        `await task.effect("charge-card", lambda key: charge(card, key), in_doubt=look_up_charge)`. `step` names the
        effect within the handoff. The key is the same whoever asks: give it to the outside service. The result must be
        JSON: where it isn't, the effect has happened by the time that TypeError or ValueError says so, and is in doubt from
        then on. An `approval` is used up by this step; `WrongState` unless it is there and approved.

        A step that was begun and never said to be done, by a worker that died or by a call that raised, is in doubt:
        `in_doubt(key)` must find out whether it happened, see to it if it didn't, and give its result. Without `in_doubt`
        that raises `EffectInDoubt`, at every attempt until the failures are used up; where the service itself tells repetitions
        by the key, give `call` again. A person who has found out says so with `dhp effect-done`.

        Raises `InDoubt`, and calls nothing, while it isn't known whether the lease lives; and TypeError, before anything
        begins, where what is to be called can't be called with a key.
        """
        async with self._passage(step, call, in_doubt, approval) as effect:
            if effect.done:
                return effect.result
            making = effect.call_for(call, in_doubt)
            with effect.calling():
                result = making()
                if inspect.isawaitable(result):
                    result = await result
            return await effect.finish(result)

    async def begin_effect(self, step: str, *, approval: str | Approved | None = None) -> EffectBegun:
        """As `effect` up to the call, for whoever makes that elsewhere and says with `end_effect` what came of it.

        Whoever was told `new` may have made the call from then on, so a second beginning is in doubt. Raises as `effect` does,
        but for `EffectInDoubt`.
        """
        check_text(step=step)
        async with Effect(self, step, approval) as effect:
            if effect.done:
                return EffectBegun(state="done", idempotency_key=effect.key, result=effect.result)
            making = effect.call_for(
                lambda key: EffectBegun(state="new", idempotency_key=key),
                lambda key: EffectBegun(state="in_doubt", idempotency_key=key),
            )
            return making()

    async def end_effect(self, step: str, result: Any = None) -> Any:
        """Puts on record what came of a step that was begun; gives it as every later attempt will get it.

        `EffectConflict` when another result is on record, `InvalidRequest` when the step was never begun.
        """
        check_text(step=step)
        return await Effect(self, step, None).finish(result)

    def _passage(
        self,
        step: str,
        call: Callable[[str], Any],
        in_doubt: Callable[[str], Any] | None,
        approval: str | Approved | None,
    ) -> Effect:
        """One passage through `step`, for those who make the call elsewhere."""
        check_text(step=step)
        _check_callable(call, "call")
        if in_doubt is not None:
            _check_callable(in_doubt, "in_doubt")
        return Effect(self, step, approval)


def _check_callable(given: object, name: str) -> None:
    """Raises TypeError unless it can be called with a key: what is begun and then can't be called would be in doubt."""
    if inspect.iscoroutine(given):
        given.close()  # It will never be awaited, and need not be warned of.
    if not callable(given):
        found = type(given).__name__
        raise TypeError(
            f"{name} must be a function of the idempotency key, not a {found}: give the function, uncalled."
        )
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):
        return  # Some that are written in C don't tell what they take.
    try:
        signature.bind("key")
    except TypeError:
        raise TypeError(f"{name} must take one argument, the idempotency key; it takes {signature}.") from None


async def begun_under(client: Looking, handoff: str, step: str) -> int | None:
    """The fence under which `step` was begun; None: it wasn't."""
    after: int | None = 0
    while after is not None:
        page = await client.effects(handoff, after=after)
        for view in page.effects:
            if view.step == step:
                return view.fence
        after = page.next
    return None
