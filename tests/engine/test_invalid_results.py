"""Results that don't fit: mended under the same lease, counted, and the last one kept."""

import pytest
from msgspec import UNSET, Raw

from dhp_protocol.errors import LeaseLost, ResultInvalid, TooLarge
from dhp_protocol.messages import BudgetAdd, Complete, Fail, GetResult, History, Redrive, WorkError
from dhp_protocol.replies import LeaseLostEvent
from tests.support.engine_world import LIMITS, TTL_MS, World


def refused(world: World, handoff: str, fence: int, result: bytes, *, on: int | None = None) -> dict[str, object]:
    """What the refusal of this result tells."""
    verdict = ResultInvalid("The result doesn't fit.", path="/price", rule="type")
    with pytest.raises(ResultInvalid) as caught:
        world.run(Complete(handoff=handoff, fence=fence, result=Raw(result)), on=on, verdict=verdict)
    return caught.value.details


def test_it_says_path_rule_and_tries_and_a_mended_one_completes_under_the_same_lease() -> None:
    world = World()
    handoff, fence = world.held()
    assert refused(world, handoff, fence, b'"1"') == {"path": "/price", "rule": "type", "left": 2}
    assert refused(world, handoff, fence, b'"2"') == {"path": "/price", "rule": "type", "left": 1}
    assert (world.facts(handoff).status, world.facts(handoff).fence) == ("running", fence)
    assert not world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1"))).duplicate
    reply = world.run(GetResult(handoff=handoff))
    assert (reply.status, bytes(reply.result), reply.refused) == ("completed", b"1", UNSET)


def test_the_last_one_allowed_makes_it_dead_and_is_kept() -> None:
    world = World()
    handoff = world.dispatch()
    mine = world.connect("mine")
    fence = world.claim(handoff, on=mine)
    lefts = [refused(world, handoff, fence, b'"%d"' % number, on=mine)["left"] for number in range(3)]
    assert lefts == [2, 1, 0]
    status = world.status(handoff)
    assert (status.status, status.reason) == ("dead", "max_invalid_results: 3 results did not fit the schema")
    assert world.heard[mine] == [LeaseLostEvent(handoff=handoff, fence=fence, why="dead", status="dead")]
    for _ in range(2):
        reply = world.run(GetResult(handoff=handoff))
        assert (reply.status, reply.result, bytes(reply.refused)) == ("dead", UNSET, b'"2"')
        world.restart()
    with pytest.raises(LeaseLost) as caught:
        world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    assert caught.value.details["why"] == "dead"


def test_each_is_on_record() -> None:
    world = World()
    handoff, fence = world.held()
    refused(world, handoff, fence, b'"1"')
    last = world.run(History(handoff=handoff)).records[-1]
    shown = {name: last[name] for name in ("type", "worker", "path", "rule", "left", "bytes", "fence")}
    assert shown == {
        "type": "result_refused",
        "worker": "ada",
        "path": "/price",
        "rule": "type",
        "left": 2,
        "bytes": 3,
        "fence": fence,
    }


def test_whoever_waits_for_the_result_gets_the_last_answer() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_invalid_results":1}'))
    call = world.send(GetResult(handoff=handoff, wait_ms=5_000))
    assert refused(world, handoff, fence, b'"no"')["left"] == 0
    assert (call.result().status, bytes(call.result().refused)) == ("dead", b'"no"')


def test_they_count_over_several_holds() -> None:
    world = World()
    handoff, fence = world.held()
    refused(world, handoff, fence, b'"1"')
    world.advance(TTL_MS)
    fence = world.claim(handoff)
    assert refused(world, handoff, fence, b'"1"')["left"] == 1


def test_the_same_wrong_answer_again_and_again_ends_too() -> None:
    world = World()
    handoff, fence = world.held()
    assert [refused(world, handoff, fence, b'"1"')["left"] for _ in range(3)] == [2, 1, 0]
    assert world.status(handoff).status == "dead"


def test_one_sent_again_because_the_answer_was_lost_with_its_connection_counts_once() -> None:
    world = World()
    handoff = world.dispatch()
    first = world.connect("mine")
    fence = world.claim(handoff, on=first)
    assert refused(world, handoff, fence, b'"1"', on=first)["left"] == 2
    second = world.connect("mine")
    world.disconnect(first)
    n = world.facts(handoff).n
    assert refused(world, handoff, fence, b'"1"', on=second)["left"] == 2
    assert world.facts(handoff).n == n
    assert refused(world, handoff, fence, b'"1"', on=second)["left"] == 1, "now it is another try"
    assert refused(world, handoff, fence, b'"2"', on=world.connect())["left"] == 0


def test_one_whose_refusal_could_not_be_kept_is_counted_when_it_comes_again() -> None:
    world = World()
    handoff, fence = world.held()
    verdict = ResultInvalid("The result doesn't fit.", path="", rule="type")
    call = world.send(Complete(handoff=handoff, fence=fence, result=Raw(b'"1"')), verdict=verdict)
    world.fail_commit()
    assert call.answer.code == "store_unavailable"
    assert world.facts(handoff).invalid_results == 0
    assert refused(world, handoff, fence, b'"1"', on=world.connect())["left"] == 2


def test_a_late_worker_hears_that_it_is_late_and_nothing_is_counted() -> None:
    world = World()
    handoff, fence = world.orphaned()
    verdict = ResultInvalid("The result doesn't fit.", path="", rule="type")
    with pytest.raises(LeaseLost):
        world.run(Complete(handoff=handoff, fence=fence, result=Raw(b'"1"')), verdict=verdict)
    assert world.facts(handoff).invalid_results == 0


def test_an_over_long_result_is_refused_by_its_size_and_the_lease_goes_on() -> None:
    world = World()
    handoff, fence = world.held()
    result = b'"%s"' % (b"x" * LIMITS.max_result_bytes)
    with pytest.raises(TooLarge) as caught:
        world.run(Complete(handoff=handoff, fence=fence, result=Raw(result)))
    assert caught.value.details == {"member": "result", "limit": LIMITS.max_result_bytes, "size": len(result)}
    assert not world.run(Complete(handoff=handoff, fence=fence, result=Raw(b'"short"'))).duplicate


def test_a_redrive_gives_all_tries_anew_and_budget_add_more_of_them() -> None:
    world = World()
    handoff, fence = world.held(budget=Raw(b'{"max_invalid_results":1}'))
    refused(world, handoff, fence, b'"1"')
    world.run(BudgetAdd(handoff=handoff, add=Raw(b'{"max_invalid_results":1}')))
    world.run(Redrive(handoff=handoff))
    assert world.run(GetResult(handoff=handoff)).refused is UNSET, "it is at work again"
    fence = world.claim(handoff)
    assert [refused(world, handoff, fence, b'"%d"' % number)["left"] for number in range(2)] == [1, 0]


def test_dead_for_another_reason_it_still_shows_the_last_answer_refused() -> None:
    world = World()
    handoff, fence = world.held()
    refused(world, handoff, fence, b'"almost"')
    world.run(Fail(handoff=handoff, fence=fence, error=WorkError(type="GaveUp"), retry=False))
    assert bytes(world.run(GetResult(handoff=handoff)).refused) == b'"almost"'
