"""What counts as a failure, and what the last one allowed does."""

import pytest
from msgspec import Raw

from dhp_protocol.errors import InvalidRequest
from dhp_protocol.limits import MAX_ATTEMPTS
from dhp_protocol.messages import Cancel, Complete, Fail, Goodbye, History, Release, WorkError
from tests.support.engine_world import TTL_MS, World

OOPS = WorkError(type="Oops", message="it broke")


def fail(handoff: str, fence: int, *, retry: bool = True) -> Fail:
    return Fail(handoff=handoff, fence=fence, error=OOPS, retry=retry, delay_ms=0)


def last_records(world: World, handoff: str, count: int) -> list[dict[str, object]]:
    records: list[dict[str, object]] = world.run(History(handoff=handoff)).records
    return records[-count:]


def test_the_nth_failure_makes_it_dead_in_the_same_change() -> None:
    world = World()
    handoff = world.dispatch()
    for attempt in (1, 2):
        assert world.run(fail(handoff, world.claim(handoff))).status == "pending"
        assert world.facts(handoff).failures == attempt
    fence = world.claim(handoff)
    call = world.send(fail(handoff, fence))
    batch = world.take()
    assert [type(entry.record).__name__ for entry in batch.entries] == ["Failed", "Dead"], "both or neither"
    world.finish()
    assert call.result().status == "dead"
    failed, died = last_records(world, handoff, 2)
    assert (failed["type"], failed["failures"], failed["fence"]) == ("failed", 3, fence + 1)
    assert (died["type"], died["fence"]) == ("dead", fence + 2)
    assert world.status(handoff).reason.startswith("max_attempts: 3 of 3 failed; the last: ")


def test_by_the_end_of_leases_too() -> None:
    world = World()
    handoff = world.dispatch(budget=Raw(b'{"max_attempts":2}'))
    world.claim(handoff)
    world.advance(TTL_MS)
    assert world.facts(handoff).status == "orphaned"
    world.claim(handoff)
    world.advance(TTL_MS)
    assert world.facts(handoff).status == "dead"
    assert world.facts(handoff).reason == "max_attempts: 2 of 2 failed; the last: the lease expired"
    assert [record["type"] for record in last_records(world, handoff, 2)] == ["orphaned", "dead"]


def test_both_kinds_count_together() -> None:
    world = World()
    handoff = world.dispatch(budget=Raw(b'{"max_attempts":2}'))
    world.run(fail(handoff, world.claim(handoff)))
    world.claim(handoff)
    world.advance(TTL_MS)
    assert world.facts(handoff).status == "dead"


@pytest.mark.parametrize("by", ["fail", "expiry"])
def test_one_attempt_means_one_run(by: str) -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_attempts":1}'))
    if by == "fail":
        world.run(fail(handoff, fence))
    else:
        world.advance(TTL_MS)
    facts = world.facts(handoff)
    assert (facts.status, facts.attempt, facts.failures) == ("dead", 1, 1)


def test_fail_for_good_is_dead_at_once_and_says_why() -> None:
    world = World()
    handoff, fence = world.held()
    assert world.run(fail(handoff, fence, retry=False)).status == "dead"
    failed, _ = last_records(world, handoff, 2)
    assert failed["error"] == {"type": "Oops", "message": "it broke"}
    assert failed["retry"] is False
    assert world.status(handoff).reason == "failed for good: Oops"


def test_releases_and_goodbyes_cost_no_attempt() -> None:
    world = World()
    handoff = world.dispatch(budget=Raw(b'{"max_attempts":1}'))
    for _ in range(5):
        world.run(Release(handoff=handoff, fence=world.claim(handoff)))
        mine = world.connect("mine")
        world.claim(handoff, on=mine)
        world.run(Goodbye(), on=mine)
    facts = world.facts(handoff)
    assert (facts.status, facts.attempt, facts.failures) == ("pending", 10, 0)


def test_the_reason_tells_how_the_last_hold_ended() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_attempts":9}'))
    world.run(Release(handoff=handoff, fence=fence, reason="lunch"))
    assert world.status(handoff).reason == "lunch"
    fence = world.claim(handoff)
    assert world.status(handoff).reason is None
    world.run(fail(handoff, fence))
    assert world.status(handoff).reason == "Oops: it broke"
    world.claim(handoff)
    world.advance(TTL_MS)
    assert world.status(handoff).reason == "orphaned: expired"
    world.run(Cancel(handoff=handoff, reason="enough"))
    assert world.status(handoff).reason == "enough"


@pytest.mark.parametrize("attempts", [0, -1, MAX_ATTEMPTS + 1])
def test_a_cap_out_of_its_bounds_is_refused(attempts: int) -> None:
    with pytest.raises(InvalidRequest) as caught:
        World().dispatch(budget=Raw(b'{"max_attempts":%d}' % attempts))
    assert caught.value.details["member"] == "budget.max_attempts"


def test_a_completed_one_keeps_its_failures_and_its_result() -> None:
    world = World()
    handoff = world.dispatch()
    world.run(fail(handoff, world.claim(handoff)))
    fence = world.claim(handoff)
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b'"done"')))
    status = world.status(handoff)
    assert (status.status, status.failures, status.attempt, status.fence) == ("completed", 1, 2, fence)
