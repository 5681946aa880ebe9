"""A task as a stream: how it stands, and then what happens to it, from that very position on.

Owns that nothing is missed and nothing told twice: records come by position; what a look had shown already (a checkpoint, a question)
isn't told when its record comes. Workers come and go beneath it. Ends with the task, or when a person is asked anew.
"""

import contextlib
from collections.abc import AsyncGenerator

from a2a.types import TaskNotFoundError

from dhp_client import WatchEvent

from .bridge import Bridge
from .looking import look, open_questions
from .states import FINAL, OF_RECORD
from .tasks import Event, Seen, context_of, fresh_update, question_parts, result_update, status_update, task_of


async def follow(bridge: Bridge, task: str, *, waits_along: bool = False) -> AsyncGenerator[Event]:
    """The task first, then its updates. Ends with it, or when a person is asked; `waits_along`: only when one is asked anew.

    Raises `TaskNotFoundError`.
    """
    seen = await look(bridge, task)
    yield task_of(seen, callers_decide=bridge.callers_decide)
    if seen.final or (seen.questions and not waits_along):
        return
    told = _Told(bridge, seen)
    async with contextlib.aclosing(bridge.client.watch(task, after=seen.status.position)) as records:
        async for event in records:
            for update in await told.by(event):
                yield update
            if told.ended:
                return


class _Told:
    """What a stream has told so far, and what is to be told by a further record."""

    def __init__(self, bridge: Bridge, seen: Seen) -> None:
        self.ended = False
        self._bridge = bridge
        self._task = seen.status.handoff
        self._context = context_of(seen.status)
        self._take(seen)

    def _take(self, seen: Seen) -> None:
        """All of this is told."""
        self._position = seen.status.position
        self._seq = max(seen.status.seq, 0 if seen.checkpoint is None else seen.checkpoint.seq)
        self._asked = {question.approval for question in seen.questions}

    async def by(self, event: WatchEvent) -> list[Event]:
        """What is told by this record; `ended` says then whether more may come."""
        if event.type == "lagged":
            return await self._anew()
        if event.position <= self._position:
            return []
        match event.type:
            case "forgotten":
                raise TaskNotFoundError(f"There is no task {self._task} any more.")
            case "checkpointed":
                return await self._checkpoint(event)
            case "approval_requested":
                return await self._question(event)
            case "approval_decided":
                self._asked.discard(event.record["approval"])
            case "completed":
                self.ended = True
                result = (await self._bridge.client.result(self._task)).result
                return [result_update(self._task, self._context, result), self._update(event)]
        if event.type not in OF_RECORD:
            return []
        self.ended = OF_RECORD[event.type] in FINAL
        return [self._update(event)]

    def _update(self, event: WatchEvent) -> Event:
        return status_update(self._task, self._context, event.record, asks=bool(self._asked))

    async def _checkpoint(self, event: WatchEvent) -> list[Event]:
        seq = event.record["seq"]
        if seq <= self._seq:
            return []
        self._seq = seq
        further = {"seq": seq}
        if self._bridge.shows_states:
            page = await self._bridge.client.checkpoints(self._task, after=seq - 1, limit=1)
            if page.checkpoints and page.checkpoints[0].seq == seq:  # Else it is pruned.
                further["state"] = page.checkpoints[0].state
        return [status_update(self._task, self._context, event.record, asks=bool(self._asked), **further)]

    async def _question(self, event: WatchEvent) -> list[Event]:
        asked = event.record["approval"]
        questions = await open_questions(self._bridge, self._task)
        if asked in self._asked or asked not in {question.approval for question in questions}:
            return []  # It was shown already, or has been decided by now, which its record will tell.
        self._asked.add(asked)
        self.ended = True
        parts = question_parts(questions, callers_decide=self._bridge.callers_decide)
        return [status_update(self._task, self._context, event.record, asks=True, parts=parts)]

    async def _anew(self) -> list[Event]:
        """Records are gone that this stream hadn't come to: how the task stands instead."""
        before = self._asked
        seen = await look(self._bridge, self._task)
        self._take(seen)
        self.ended = seen.final or not self._asked <= before
        task = task_of(seen, callers_decide=self._bridge.callers_decide)
        results: list[Event] = [result_update(self._task, self._context, value) for value in seen.result]
        return [*results, fresh_update(task)]
