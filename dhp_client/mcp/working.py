"""The tools of whoever holds work: checkpoint, complete, fail, release, suspend, heartbeat, spend, activity, check_capability."""

from typing import Annotated, Any

from pydantic import Field

from .answers import (
    Alive,
    Checkpoint,
    Granted,
    Repeats,
    Standing,
    Sums,
    alive_of,
    checkpoint_of,
    sums_of,
)
from .arguments import Handle, Reason, Usd
from .bridge import Call, bridge_of, client_of


async def checkpoint(
    call: Call,
    handle: Handle,
    state: Annotated[Any, Field(description="Any JSON: all that a stranger needs to go on from here.")],
    steps: Annotated[int, Field(ge=0, description="So many steps it took since the last one.")] = 1,
    usd: Usd = None,
    activity: Annotated[
        Any, Field(description="What you are doing; saying the same again and again is a stall.")
    ] = None,
) -> Checkpoint:
    """Store how far you are. Once this answers it is on disk, and whoever takes over begins here.

    Do it after each step that you wouldn't want to do again. budget_exceeded: a cap would be passed, and the work is dead with all it has.
    """
    with bridge_of(call).record.using(handle) as task:
        return checkpoint_of(await task.checkpoint(state, steps=steps, usd=usd, activity=activity))


async def complete(
    call: Call,
    handle: Handle,
    result: Annotated[Any, Field(description="Any JSON that meets the output_schema.")] = None,
) -> Standing:
    """End the work with its result, which never changes again. result_invalid leaves it yours: mend the result, and call again."""
    with bridge_of(call).record.using(handle) as task:
        await task.complete(result)
        return Standing(handoff=task.handoff, status="completed")


async def fail(
    call: Call,
    handle: Handle,
    type: Annotated[str, Field(description="What kind of failure, in a word.")],
    message: str = "",
    retry: Annotated[bool, Field(description="False: nobody is to try again, and it is dead.")] = True,
    delay_ms: Annotated[
        int | None, Field(ge=0, description="Others try after that; null: a pause that doubles with each failure.")
    ] = None,
) -> Standing:
    """Say that this attempt has failed. It costs an attempt; release doesn't."""
    with bridge_of(call).record.using(handle) as task:
        found = await task.fail(type, message, retry=retry, delay_ms=delay_ms)
        return Standing(handoff=task.handoff, status=found.status)


async def release(
    call: Call,
    handle: Handle,
    reason: Reason = None,
    delay_ms: Annotated[int, Field(ge=0, description="Nobody can claim it before.")] = 0,
) -> Standing:
    """Hand the work back for others, which costs no attempt. Checkpoint first."""
    with bridge_of(call).record.using(handle) as task:
        await task.release(reason, delay_ms)
        return Standing(handoff=task.handoff, status="pending")


async def suspend(
    call: Call,
    handle: Handle,
    wake_ms: Annotated[int | None, Field(ge=0, description="It comes back after that, even over a reboot.")] = None,
    approval: Annotated[str | None, Field(description="It comes back once this approval is decided.")] = None,
    reason: Reason = None,
) -> Standing:
    """Put the work aside, which frees you and costs no attempt; it comes back for whoever claims its kind.

    After wake_ms, or when the approval is decided, whichever comes first; with neither, when somebody calls resume. Checkpoint first.
    """
    with bridge_of(call).record.using(handle) as task:
        found = await task.suspend(wake_ms=wake_ms, approval=approval, reason=reason)
        return Standing(handoff=task.handoff, status=found.status)


async def heartbeat(call: Call, handle: Handle) -> Alive:
    """Whether the work is still yours. The lease is kept for you, so there is no need to call this while you think.

    Over HTTP it counts as a call, so it puts off idle_ms.
    """
    with bridge_of(call).record.using(handle) as task:
        found = await (await client_of(call)).status(task.handoff)
        return alive_of(found, task.fence, task.seq)


async def spend(
    call: Call,
    handle: Handle,
    usd: Usd = 0,
    steps: Annotated[int, Field(ge=0)] = 0,
) -> Sums:
    """Count what was used up beside checkpoints, right after it is gone; gives the sums so far."""
    with bridge_of(call).record.using(handle) as task:
        return sums_of(await task.spend(usd=usd or 0, steps=steps))


async def activity(call: Call, handle: Handle, what: Annotated[Any, Field(description="Any text or JSON.")]) -> Repeats:
    """Say what you are doing, where the budget watches for stalls: something new shows that you get on."""
    with bridge_of(call).record.using(handle) as task:
        return Repeats(repeats=await task.activity(what))


async def check_capability(call: Call, handle: Handle, domain: str, resource: str) -> Granted:
    """Whether this work may touch a resource: ask before you do. A refusal is on record."""
    with bridge_of(call).record.using(handle) as task:
        return Granted(granted=await task.check_capability(domain, resource))
