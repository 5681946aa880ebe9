"""What A2A's methods do here: each translates in, asks the client, and translates out.

Owns the methods, and that nobody is worked for who has gone. The shapes are `tasks`'s, reading `looking`'s, streams `following`'s.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    InvalidParamsError,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    PushNotificationNotSupportedError,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskNotCancelableError,
    TaskPushNotificationConfig,
    UnsupportedOperationError,
)

from .acknowledging import take_note
from .answering import answer
from .bounds import check_required_fields
from .bridge import Bridge
from .errors import refusals
from .following import follow
from .looking import look, status_of, tasks_page
from .parts import inputs_of
from .sending import context_meant, key_of, kind_meant
from .states import FINAL, INPUT_REQUIRED, OF_STATUS
from .tasks import CONTEXT_LABEL, Event, task_of

SETTLED = (*FINAL, INPUT_REQUIRED)
RECEIVE = "receive"
"""Where a call's state holds what tells that the caller has gone: a function to be awaited."""


class HandoffRequestHandler(RequestHandler):
    """Serves the tasks of one `Bridge`."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        """Dispatches, or answers a question; then waits until the task has ended or asks a person, unless it was said not to."""
        check_required_fields(params)
        with refusals():
            task = await self._taken_in(params)
            waits = not params.configuration.return_immediately
            while waits and await _while_called(self._settled(task), context):
                found = await self._task(task)
                if found.status.state in SETTLED:  # What was asked may have been answered by now.
                    return found
            return await self._task(task)

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Dispatches, or answers a question; then the task, and what happens to it."""
        check_required_fields(params)
        with refusals():
            task = await self._taken_in(params)
            async with contextlib.aclosing(follow(self._bridge, task)) as updates:
                async for update in updates:
                    yield update
            await take_note(self._bridge, task)

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """The task, and what happens to it from now on, whatever this stream's reader knew of it before."""
        check_required_fields(params)
        with refusals():
            if OF_STATUS[(await status_of(self._bridge, params.id)).status] in FINAL:
                raise UnsupportedOperationError("The task has ended, and nothing more will happen to it: get it.")
            async with contextlib.aclosing(follow(self._bridge, params.id, waits_along=True)) as updates:
                async for update in updates:
                    yield update
            await take_note(self._bridge, params.id)

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        """The task as it stands."""
        check_required_fields(params)
        _check_history_length(params)
        with refusals():
            return await self._task(params.id)

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """A page of tasks, the one that changed last first."""
        check_required_fields(params)
        _check_history_length(params)
        with refusals():
            return await tasks_page(self._bridge, params)

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        """Cancels the handoff, unless it has ended."""
        check_required_fields(params)
        with refusals():
            before = await status_of(self._bridge, params.id)
            ended = OF_STATUS[before.status] in FINAL
            if ended or (await self._bridge.client.cancel(params.id, reason="over A2A")).status != "cancelled":
                raise TaskNotCancelableError("The task has ended: get it.")
            return await self._task(params.id)

    async def _taken_in(self, params: SendMessageRequest) -> str:
        """The task that the message is about, once the daemon has taken in what it says."""
        _check_history_length(params.configuration)
        if params.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError
        message = params.message
        if message.task_id:
            await answer(self._bridge, await look(self._bridge, message.task_id), message)
            return message.task_id
        kind = kind_meant(params, self._bridge.kinds)
        try:
            made = await self._bridge.client.dispatch(
                kind,
                inputs_of(message.parts),
                key=key_of(message),
                labels={CONTEXT_LABEL: context_meant(message)},
                budget=self._bridge.budget,
            )
        except ValueError as error:  # A number that JSON can't say.
            raise InvalidParamsError(str(error)) from error
        return made.handoff

    async def _task(self, task: str) -> Task:
        seen = await look(self._bridge, task)
        if seen.final:
            await take_note(self._bridge, task)
        return task_of(seen, callers_decide=self._bridge.callers_decide)

    async def _settled(self, task: str) -> None:
        """Returns when the task has ended, or asks a person."""
        without_states = msgspec.structs.replace(self._bridge, shows_states=False)
        async with contextlib.aclosing(follow(without_states, task)) as updates:
            async for _ in updates:
                pass

    # What isn't offered.

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Isn't offered: a stream can be taken up again at any time."""
        raise PushNotificationNotSupportedError

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Isn't offered."""
        raise PushNotificationNotSupportedError

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """Isn't offered."""
        raise PushNotificationNotSupportedError

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Isn't offered."""
        raise PushNotificationNotSupportedError

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        """Isn't offered: there is one card for everybody."""
        raise UnsupportedOperationError("There is one card for everybody, at /.well-known/agent-card.json.")


def _check_history_length(params: Any) -> None:
    """A task has no history here, so that any length will do."""
    if params.history_length < 0:
        raise InvalidParamsError("historyLength can't be negative.")


async def _while_called(work: Coroutine[Any, Any, None], context: ServerCallContext) -> bool:
    """Returns when `work` is done, or False as soon as the caller has gone, who won't read the answer."""
    receive: Callable[[], Awaitable[Any]] = context.state[RECEIVE]
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(receive())
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return False
        working.result()
        return True
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)
