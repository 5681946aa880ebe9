"""The tools of whoever asks for work: dispatch, result, cancel, resume, ack."""

from typing import Annotated, Any

from pydantic import Field

from dhp_protocol.limits import DEFAULT_KEEP_CHECKPOINTS, DEFAULT_PRIORITY, MAX_PRIORITY

from ..budgets import CAPS
from .answers import Dispatched, Outcome, Standing, outcome_of
from .arguments import Handoff, Reason
from .bridge import Call, bridge_of, client_of
from .waiting import MAX_WAIT_MS, WaitMs, with_progress


async def dispatch(
    call: Call,
    kind: Annotated[str, Field(description="What kind of work it is: workers claim by it.")],
    inputs: Annotated[dict[str, Any], Field(description="What the work is given, as a JSON object.")],
    output_schema: Annotated[
        dict[str, Any] | bool | None, Field(description="JSON Schema that the result must meet.")
    ] = None,
    budget: Annotated[dict[str, Any] | None, Field(description=f"Caps: any of {', '.join(CAPS)}.")] = None,
    capabilities: Annotated[
        dict[str, list[str]] | None, Field(description="What may be touched: {domain: [resource or prefix*]}.")
    ] = None,
    key: Annotated[str | None, Field(description="Tells two otherwise equal intents apart.")] = None,
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY, description="9 goes first.")] = DEFAULT_PRIORITY,
    delay_ms: Annotated[int, Field(ge=0, description="Not to be claimed before.")] = 0,
    labels: Annotated[dict[str, str] | None, Field(description="Names and texts to find it by.")] = None,
    keep_checkpoints: Annotated[int, Field(ge=1, description="So many newest are kept.")] = DEFAULT_KEEP_CHECKPOINTS,
    handle: Annotated[
        str | None, Field(description="Of work that you hold and that this is a part of: it pays for it.")
    ] = None,
) -> Dispatched:
    """Ask for a piece of work that outlives whoever does it. Gives its id; another agent, or you, claims it.

    The same intent (kind, inputs, output_schema, budget, capabilities, key) is the same handoff, so asking twice does no harm.
    """
    asked: dict[str, Any] = {
        "output_schema": output_schema,
        "budget": budget,
        "capabilities": capabilities,
        "priority": priority,
        "delay_ms": delay_ms,
        "labels": labels,
        "keep_checkpoints": keep_checkpoints,
    }
    if handle is None:
        reply = await (await client_of(call)).dispatch(kind, inputs, key=key or "", **asked)
    else:
        with bridge_of(call).record.using(handle) as task:
            reply = await task.dispatch(kind, inputs, key=key, **asked)
    return Dispatched(handoff=reply.handoff, created=reply.created, status=reply.status)


async def result(call: Call, handoff: Handoff, wait_ms: WaitMs = 0) -> Outcome:
    """What came of a handoff, waited for if you like. Once you have taken it in, ack says so."""
    wait_ms = min(wait_ms, MAX_WAIT_MS)
    client = await client_of(call)
    found = await with_progress(call, wait_ms, f"waiting for {handoff}", client.result(handoff, wait_ms=wait_ms))
    return outcome_of(handoff, found)


async def cancel(
    call: Call,
    handoff: Handoff,
    reason: Reason = None,
    children: Annotated[bool, Field(description="Its children too.")] = False,
) -> Standing:
    """End work from outside, whoever holds it. A final one stays as it is, and the status tells how that is."""
    found = await (await client_of(call)).cancel(handoff, reason, children)
    return Standing(handoff=handoff, status=found.status)


async def resume(call: Call, handoff: Handoff) -> Standing:
    """Make suspended work claimable again, before it wakes by itself."""
    found = await (await client_of(call)).resume(handoff)
    return Standing(handoff=handoff, status=found.status)


async def ack(call: Call, handoff: Handoff) -> Standing:
    """Say that you have taken note of final work, so that it needn't be kept for ever."""
    client = await client_of(call)
    await client.ack(handoff)
    return Standing(handoff=handoff, status=(await client.status(handoff)).status)
