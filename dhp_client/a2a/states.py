"""What state a task is in, of what its handoff's status and its records tell.

Owns the tables. Pure.
"""

from a2a.types import TaskState

from dhp_protocol.replies import StatusReply

SUBMITTED = TaskState.TASK_STATE_SUBMITTED
WORKING = TaskState.TASK_STATE_WORKING
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
COMPLETED = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED
CANCELED = TaskState.TASK_STATE_CANCELED

OF_STATUS: dict[str, TaskState] = {
    "pending": SUBMITTED,
    "running": WORKING,
    "orphaned": WORKING,
    "suspended": WORKING,
    "completed": COMPLETED,
    "dead": FAILED,
    "cancelled": CANCELED,
}
"""By status; `state_of` says what else counts."""

OF_RECORD: dict[str, TaskState] = {
    "claimed": WORKING,
    "checkpointed": WORKING,
    "orphaned": WORKING,
    "released": WORKING,
    "failed": WORKING,
    "result_refused": WORKING,
    "suspended": WORKING,
    "resumed": WORKING,
    "approval_requested": INPUT_REQUIRED,
    "approval_decided": WORKING,
    "redriven": WORKING,
    "completed": COMPLETED,
    "dead": FAILED,
    "cancelled": CANCELED,
}
"""The records that a stream tells, and the state then; while a person is asked it is INPUT_REQUIRED, ends aside."""

FINAL = (COMPLETED, FAILED, CANCELED)


def state_of(status: StatusReply, *, asks: bool) -> TaskState:
    """The state of a task; `asks` says whether a person is asked. Work that waits for its next worker has been WORKING since the first."""
    state = OF_STATUS[status.status]
    if state in FINAL:
        return state
    if asks:
        return INPUT_REQUIRED
    return WORKING if status.attempt else state


def statuses_of(state: TaskState) -> tuple[str | None, ...]:
    """Which statuses tasks in this state may have; None is any, and none at all is one that no task ever is in."""
    if state == TaskState.TASK_STATE_UNSPECIFIED:
        return (None,)
    if state in (WORKING, INPUT_REQUIRED):
        return tuple(status for status, its in OF_STATUS.items() if its not in FINAL)
    return tuple(status for status, its in OF_STATUS.items() if its == state)
