"""Tasks as they stand: one, and pages of them.

Owns which handoffs are tasks here, and their order. Every look is a few reads, none older than the first: a stream that follows from the
position of the first one misses nothing, and what the later ones showed early it is told again (`following`).
"""

import contextlib
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec
from a2a.types import InvalidParamsError, ListTasksRequest, ListTasksResponse, Task, TaskNotFoundError

import dhp_client
from dhp_client import Approval
from dhp_client.questions import all_approvals
from dhp_protocol.replies import StatusReply

from .bridge import Bridge
from .states import FINAL, OF_STATUS, statuses_of
from .tasks import CONTEXT_LABEL, Seen, task_of

PAGE = 1_000
DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 100
MAX_LISTED = 10_000
"""So many are put in order for one answer."""

_ID = re.compile(r"[0-9a-f]{64}")


async def status_of(bridge: Bridge, task: str) -> StatusReply:
    """How the handoff stands. Raises `TaskNotFoundError`: there is none, or none that is served here, which nobody can tell apart."""
    if _ID.fullmatch(task):
        with contextlib.suppress(dhp_client.NotFound):
            status = await bridge.client.status(task)
            if status.kind in bridge.kinds:
                return status
    raise TaskNotFoundError(f"There is no task {task[:80]}.")


async def look(bridge: Bridge, task: str) -> Seen:
    """The task with what it asks, its newest checkpoint, and its result. Raises `TaskNotFoundError`."""
    status = await status_of(bridge, task)
    seen = Seen(status=status)
    if bridge.shows_states and status.seq:
        seen = msgspec.structs.replace(seen, checkpoint=await bridge.client.last_checkpoint(task))
    if status.status == "completed":
        return await with_result(bridge, seen)
    return seen if seen.final else msgspec.structs.replace(seen, questions=await open_questions(bridge, task))


async def with_result(bridge: Bridge, seen: Seen) -> Seen:
    """The same, with the result."""
    found = await bridge.client.result(seen.status.handoff)
    return msgspec.structs.replace(seen, result=(found.result,))


async def open_questions(bridge: Bridge, task: str | None = None) -> tuple[Approval, ...]:
    """What people are asked about the task, or about all there are, and nobody has answered yet."""
    return tuple(await all_approvals(bridge.client, handoff=task, status="open"))


async def tasks_page(bridge: Bridge, params: ListTasksRequest) -> ListTasksResponse:
    """A page of tasks, the one that changed last first. Raises `InvalidParamsError`."""
    size = params.page_size if params.HasField("page_size") else DEFAULT_PAGE_SIZE
    if not 1 <= size <= MAX_PAGE_SIZE:
        raise InvalidParamsError(f"A page has 1 to {MAX_PAGE_SIZE} tasks.")
    before = _position_in(params.page_token)
    found = [seen async for seen in _all_seen(bridge, params)]
    found.sort(key=lambda seen: -seen.status.position)
    behind = [seen for seen in found if before is None or seen.status.position < before]
    page = behind[:size]
    return ListTasksResponse(
        tasks=[await _listed(bridge, seen, with_artifacts=params.include_artifacts) for seen in page],
        next_page_token=str(page[-1].status.position) if len(behind) > size else "",
        page_size=size,
        total_size=len(found),
    )


async def _listed(bridge: Bridge, seen: Seen, *, with_artifacts: bool) -> Task:
    if with_artifacts and seen.status.status == "completed":
        seen = await with_result(bridge, seen)
    return task_of(seen, callers_decide=bridge.callers_decide)


def _position_in(token: str) -> int | None:
    if not token:
        return None
    if not token.isascii() or not token.isdigit() or len(token) > 16:
        raise InvalidParamsError("That is no page token: give nextPageToken as it was given.")
    return int(token)


async def _all_seen(bridge: Bridge, params: ListTasksRequest) -> AsyncIterator[Seen]:
    """All tasks that `params` asks for, without what a page doesn't show."""
    statuses = [status async for status in _statuses(bridge, params)]
    questions: dict[str, list[Approval]] = {}
    if any(OF_STATUS[status.status] not in FINAL for status in statuses):
        for question in await open_questions(bridge):
            questions.setdefault(question.handoff, []).append(question)
    since = params.status_timestamp_after.ToDatetime(UTC) if params.HasField("status_timestamp_after") else None
    for status in statuses:
        live = OF_STATUS[status.status] not in FINAL
        seen = Seen(status=status, questions=tuple(questions.get(status.handoff, ())) if live else ())
        recent = since is None or datetime.fromisoformat(status.updated_at) >= since
        if recent and params.status in (0, seen.state):
            yield seen


async def _statuses(bridge: Bridge, params: ListTasksRequest) -> AsyncIterator[StatusReply]:
    label = f"{CONTEXT_LABEL}={params.context_id}" if params.context_id else None
    left = MAX_LISTED
    for kind in bridge.kinds:
        for status in statuses_of(params.status):
            after: int | None = 0
            while after is not None:
                page = await bridge.client.list(kind=kind, status=status, label=label, after=after, limit=PAGE)
                left -= len(page.handoffs)
                if left < 0:
                    raise InvalidParamsError(f"More than {MAX_LISTED} tasks are meant: give contextId, or status.")
                for handoff in page.handoffs:
                    yield handoff
                after = page.next
