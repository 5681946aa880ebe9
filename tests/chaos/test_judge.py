"""The judge believes a run that went well, and finds each lie in books that were forged."""

from collections.abc import Callable

import pytest

from dhp_client.chaos.books import Dispatched, Record, Surprise
from dhp_client.chaos.figures import figure_lines, figures
from dhp_client.chaos.judge import judge
from tests.chaos.forging import (
    FIRST,
    SECOND,
    STEPS,
    Forgery,
    accepted,
    acknowledged,
    begun,
    checkpointed,
    claimed,
    good_run,
    late,
    sha256,
)

DISPATCHED = "What was dispatched is what the daemon has"
ONE_RESULT = "Each handoff has exactly one accepted result"
RIGHT = "Each result is the right one"
KEPT = "No acknowledged checkpoint is lost"
REAL = "Each take-over began with a state that was really stored"
FENCES = "No fence ever fell, and each claim raised it"
HOLDERS = "Each fence had one holder"
REDONE = "Of each holding at most one step was done again"
SUPERSEDED = "Nothing was written under a superseded fence"
LATE = "Whoever wrote after a loss was refused"
SURPRISES = "No worker met an error that the faults don't explain"


def broken(run: Forgery) -> dict[str, str]:
    """The promises that the judge finds broken, with what it found."""
    return {check.claim: check.found for check in judge(run.books()) if not check.ok}


def test_a_run_that_went_well_is_believed() -> None:
    assert broken(good_run()) == {}


def test_the_figures_of_a_run() -> None:
    found = figures(good_run().books())
    assert (found.workers_killed, found.daemon_killed, found.other_faults, found.take_overs) == (1, 0, 0, 1)
    assert (found.steps_begun, found.steps_redone, found.most_redone, found.redone_share) == (9, 1, 1, 1 / 9)
    assert (found.checkpoints_acknowledged, found.checkpoints_lost, found.results, found.handoffs) == (8, 0, 2, 2)
    assert any("9 begun, 1 of them again (11.11%)" in line for line in figure_lines(found))


def forget_handoff(run: Forgery) -> None:
    del run.records[FIRST]


def invent_handoff(run: Forgery) -> None:
    run.dispatched.pop()


def dispatch_twice(run: Forgery) -> None:
    run.dispatched.append(run.dispatched[0])


def leave_undone(run: Forgery) -> None:
    run.records[SECOND].pop()
    run.statuses[SECOND] = "running"


def complete_twice(run: Forgery) -> None:
    run.records[FIRST].append(Record(type="completed", fence=3))


def accept_from_two(run: Forgery) -> None:
    run.workers["a"].append(accepted(FIRST, 1))


def forget_who_completed(run: Forgery) -> None:
    run.records[FIRST][-1] = Record(type="completed", fence=5)


def change_result(run: Forgery) -> None:
    run.results[FIRST] = {"steps": STEPS, "chain": "another"}


def drop_result(run: Forgery) -> None:
    run.results[SECOND] = None


def lose_checkpoint(run: Forgery) -> None:
    del run.records[FIRST][6]


def lose_newest_checkpoint(run: Forgery) -> None:
    del run.records[SECOND][3]
    del run.records[SECOND][2]


def prune_too_much(run: Forgery) -> None:
    del run.records[SECOND][2]


def change_checkpoint(run: Forgery) -> None:
    run.records[FIRST][3] = Record(type="checkpointed", fence=1, seq=2, sha256=sha256(SECOND, 2))


def go_on_from_before(run: Forgery) -> None:
    run.workers["b"][0] = claimed(FIRST, 3, seq=1)


def hand_out_another_state(run: Forgery) -> None:
    run.workers["b"][0] = claimed(SECOND, 1, seq=2).__class__(handoff=FIRST, fence=3, seq=2, chain="made up")


def let_fence_fall(run: Forgery) -> None:
    run.records[FIRST][6] = checkpointed(FIRST, 2, 3)


def claim_without_raising(run: Forgery) -> None:
    run.records[FIRST][5] = Record(type="claimed", fence=2, worker="b")


def give_a_fence_to_two(run: Forgery) -> None:
    run.workers["a"].append(acknowledged(FIRST, 3, 3))


def give_out_no_such_fence(run: Forgery) -> None:
    run.workers["a"].append(begun(FIRST, 7, 4))


def redo_two_steps(run: Forgery) -> None:
    run.workers["a"].append(begun(FIRST, 1, 4))


def redo_under_one_fence(run: Forgery) -> None:
    run.workers["b"][1:1] = [begun(FIRST, 3, 3), begun(FIRST, 3, 3)]


def write_after_the_take_over(run: Forgery) -> None:
    run.records[FIRST][6] = checkpointed(FIRST, 1, 3)


def write_while_nobody_holds_it(run: Forgery) -> None:
    run.records[FIRST].insert(5, checkpointed(FIRST, 2, 3))
    del run.records[FIRST][7]


def write_after_the_end(run: Forgery) -> None:
    run.records[SECOND].append(checkpointed(SECOND, 1, 5))


def store_a_seq_twice(run: Forgery) -> None:
    run.records[FIRST].insert(7, checkpointed(FIRST, 3, 3))


def accept_a_late_write(run: Forgery) -> None:
    run.workers["a"].append(late(FIRST, 1, "accepted"))


def refuse_a_late_write_for_another_reason(run: Forgery) -> None:
    run.workers["a"].append(late(FIRST, 1, "internal"))


def meet_a_surprise(run: Forgery) -> None:
    run.workers["b"].append(Surprise(handoff=FIRST, fence=3, error="OutOfOrder: expected 2"))


@pytest.mark.parametrize(
    ("forge", "claim", "found"),
    [
        (forget_handoff, DISPATCHED, "isn't there"),
        (invent_handoff, DISPATCHED, "nobody dispatched it"),
        (dispatch_twice, DISPATCHED, "dispatched 2 times"),
        (leave_undone, ONE_RESULT, "it is running"),
        (complete_twice, ONE_RESULT, "2 results"),
        (accept_from_two, ONE_RESULT, "from each of a, b"),
        (forget_who_completed, ONE_RESULT, "under fence 3, which isn't there"),
        (change_result, RIGHT, "another"),
        (drop_result, RIGHT, "None"),
        (lose_checkpoint, KEPT, "checkpoint 3 was acknowledged to b, and isn't there"),
        (prune_too_much, KEPT, "checkpoint 3 was acknowledged to b, and isn't there"),
        (change_checkpoint, KEPT, "another content"),
        (go_on_from_before, KEPT, "from checkpoint 1, though 2"),
        (hand_out_another_state, REAL, "that nobody made"),
        (let_fence_fall, FENCES, "fell from 3"),
        (claim_without_raising, FENCES, "left the fence at 2"),
        (give_a_fence_to_two, HOLDERS, "fence 3 was held by a, b"),
        (give_out_no_such_fence, HOLDERS, "never given out"),
        (redo_two_steps, REDONE, "2 steps"),
        (redo_under_one_fence, REDONE, "2 steps"),
        (write_after_the_take_over, SUPERSEDED, "under fence 1 while 3"),
        (write_while_nobody_holds_it, SUPERSEDED, "nobody held it"),
        (write_after_the_end, SUPERSEDED, "nobody held it"),
        (store_a_seq_twice, SUPERSEDED, "checkpoint 3 was stored after 3"),
        (accept_a_late_write, LATE, "answered accepted"),
        (refuse_a_late_write_for_another_reason, LATE, "answered internal"),
        (meet_a_surprise, SURPRISES, "OutOfOrder"),
    ],
)
def test_a_lie_is_found_and_named(forge: Callable[[Forgery], None], claim: str, found: str) -> None:
    run = good_run()
    forge(run)
    assert found in broken(run)[claim]


def test_what_the_rule_keeps_goes_by_what_was_acknowledged_and_not_by_what_is_left() -> None:
    run = good_run()
    lose_newest_checkpoint(run)
    assert broken(run)[KEPT].count("checkpoint") == 2


def test_what_was_pruned_by_the_rule_is_no_loss() -> None:
    run = good_run()
    assert [record.seq for record in run.records[SECOND] if record.type == "checkpointed"] == [3, 4]
    assert KEPT not in broken(run)


def test_many_faults_of_one_kind_are_counted() -> None:
    run = good_run()
    run.dispatched += [
        Dispatched(number=number, handoff=f"{number:064}", steps=STEPS, keep_checkpoints=1) for number in range(10)
    ]
    assert broken(run)[DISPATCHED].endswith("and 7 more")
