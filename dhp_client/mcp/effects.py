"""The tools for what can't be undone: effect_begin, effect_done, effects."""

from typing import Annotated, Any

from pydantic import Field

from .answers import Effect, EffectPage, EffectResult, effect_of, effect_standing_of
from .arguments import After, Handle, Handoff, Limit, Step
from .bridge import Call, bridge_of, client_of


async def effect_begin(
    call: Call,
    handle: Handle,
    step: Step,
    approval: Annotated[str | None, Field(description="An approved approval, which this step uses up.")] = None,
) -> Effect:
    """Ask before you act on the outside world (send, pay, delete), so that it happens once over all attempts.

    Carry it out only when the state is new; then effect_done says what came of it. in_doubt: an attempt may have done it and died, so look
    there, by the idempotency_key, and do what is left.
    """
    with bridge_of(call).record.using(handle) as task:
        return effect_of(await task.begin_effect(step, approval=approval))


async def effect_done(
    call: Call,
    handle: Handle,
    step: Step,
    result: Annotated[Any, Field(description="Any JSON: every later attempt gets it.")] = None,
) -> EffectResult:
    """Put on record what came of an effect that was begun."""
    with bridge_of(call).record.using(handle) as task:
        return EffectResult(step=step, result=await task.end_effect(step, result))


async def effects(call: Call, handoff: Handoff, after: After = 0, limit: Limit = 100) -> EffectPage:
    """What a handoff has done to the outside world. What was begun and isn't done may have happened."""
    page = await (await client_of(call)).effects(handoff, after=after, limit=limit)
    return EffectPage(effects=[effect_standing_of(view) for view in page.effects], next=page.next)
