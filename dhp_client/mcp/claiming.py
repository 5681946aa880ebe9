"""The tools that put work into an agent's hands: claim, recover.

Owns that what was claimed is on record before anything else happens, and what an agent that has lost its memory is given back.
"""

from collections.abc import AsyncIterator
from typing import Annotated

from pydantic import Field

from dhp_protocol.errors import InvalidRequest, TooLarge
from dhp_protocol.replies import StatusReply

from ..client import Claiming, Client
from ..payload import encode
from ..task import Task
from .answers import Begun, Claimed, Recovered, Work, begun_of, work_of
from .arguments import Kinds, MaybeHandoff
from .bridge import Call, bridge_of, client_of, handle_given_out, is_broken_off
from .waiting import MAX_WAIT_MS, WaitMs, with_progress

RECOVER_WAIT_MS = 10_000
"""As long as the lease of a worker that has just vanished takes to end, even where the daemon can't see that it has."""
MAX_HTTP_ANSWER_BYTES = 1_000_000
"""Clients of streamable HTTP, the SDK's among them, take no more than 1 MiB in one event, and break off at what is longer."""
MAX_STATE_BYTES = 16 * 1024
"""Of what is only looked over."""
PAGE = 500
MAX_PAGES = 10


async def claim(call: Call, kinds: Kinds = None, handoff: MaybeHandoff = None, wait_ms: WaitMs = 0) -> Claimed:
    """Take work: the first of some kinds, or one handoff by its id.

    The answer holds its inputs, the state of the last checkpoint (go on from there, don't begin anew) and a handle for all later calls
    about it. The lease is kept for you. Checkpoint after each step, then complete.
    """
    if (kinds is None) == (handoff is None):
        raise InvalidRequest("Say what to claim: kinds, or a handoff.", member="kinds")
    wait_ms = min(wait_ms, MAX_WAIT_MS)
    client, record = await client_of(call), bridge_of(call).record
    claiming = client.claim(handoff, kinds=kinds, wait_ms=wait_ms, on_lost=record.is_lost)
    work = await _taken(call, claiming, wait_ms)
    return Claimed(waiting=work is None, handoff=handoff if work is None else work.handoff, work=work)


async def recover(
    call: Call,
    handle: Annotated[str | None, Field(description="One that you still know.")] = None,
    handoff: MaybeHandoff = None,
    kinds: Kinds = None,
    limit: Annotated[int, Field(ge=1, le=50, description="So much claimable work at most.")] = 10,
) -> Recovered:
    """Find out where you were, after a crash, a restart, or when you have lost track.

    Without arguments: the work that is held through this server, by you or by agents that share it with you (not over HTTP, where nobody
    can tell who you are), and what others have begun and nobody holds. With a handoff: take that one, whoever began it. Go on from its state: what was done until then is done. effects and approvals tell
    what was under way beside it.
    """
    record = bridge_of(call).record
    if handle is not None:
        with record.using(handle) as task:
            return Recovered(work=[await _handed_out(call, task, handle)])
    held = record.all() if record.guessable else []
    if handoff is None:
        work = [work_of(task, given, record.idle_ms) for given, task in held]
        return Recovered(work=work, claimable=await _begun(await client_of(call), kinds, limit))
    for given, task in held:
        if task.handoff == handoff:
            return Recovered(work=[work_of(task, given, record.idle_ms)])
    client = await client_of(call)
    claiming = client.claim(handoff, wait_ms=RECOVER_WAIT_MS, on_lost=record.is_lost)
    taken = await _taken(call, claiming, RECOVER_WAIT_MS)
    return Recovered(waiting=taken is None, work=[] if taken is None else [taken])


async def _taken(call: Call, claiming: Claiming, wait_ms: int) -> Work | None:
    async def claimed() -> tuple[Task, str] | None:
        task = await claiming
        return None if task is None else (task, handle_given_out(call, task))

    taken = await with_progress(call, wait_ms, "waiting for work", claimed())
    if taken is not None and await is_broken_off(call):
        bridge_of(call).record.give_back(taken[1])
        return None
    return None if taken is None else await _handed_out(call, *taken)


async def _handed_out(call: Call, task: Task, handle: str) -> Work:
    """The task as the agent gets it. One whose answer couldn't get through is released: nobody would ever hear of it."""
    record = bridge_of(call).record
    work = work_of(task, handle, record.idle_ms)
    if record.guessable or _bytes_of(work) <= MAX_HTTP_ANSWER_BYTES:
        return work
    work = work.model_copy(update={"state": None, "state_left_out": True})
    if _bytes_of(work) <= MAX_HTTP_ANSWER_BYTES:
        return work
    with record.using(handle):
        await task.release("its inputs are too long for an agent over HTTP")
    sentence = "This work's inputs are too long for HTTP: it takes an agent over standard input and output."
    raise TooLarge(sentence, handoff=task.handoff, limit=MAX_HTTP_ANSWER_BYTES)


def _bytes_of(work: Work) -> int:
    return len(encode(work.model_dump(mode="json"), member="work"))


async def _begun(client: Client, kinds: list[str] | None, limit: int) -> list[Begun]:
    found: list[Begun] = []
    for status in ("orphaned", "pending"):
        async for one in _listed(client, status, kinds):
            if one.attempt and len(found) < limit:
                found.append(await _shown(client, one))
    return found


async def _listed(client: Client, status: str, kinds: list[str] | None) -> AsyncIterator[StatusReply]:
    """Those of that status, as far as a few pages go."""
    kind = kinds[0] if kinds is not None and len(kinds) == 1 else None
    after: int | None = 0
    for _ in range(MAX_PAGES):
        if after is None:
            return
        page = await client.list(status=status, kind=kind, after=after, limit=PAGE)
        for one in page.handoffs:
            if kinds is None or one.kind in kinds:
                yield one
        after = page.next


async def _shown(client: Client, status: StatusReply) -> Begun:
    stored = await client.last_checkpoint(status.handoff) if status.seq else None
    left_out = stored is not None and len(encode(stored.state, member="state")) > MAX_STATE_BYTES
    return begun_of(status, stored, left_out=left_out)
