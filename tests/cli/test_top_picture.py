"""What `dhp top` makes of a daemon's answers."""

from typing import Any

import pytest

from dhp_client.cli.top.gathering import Facts
from dhp_client.cli.top.picture import RATES_OVER_MS, Known, Picture, answered, picture_of, silent
from dhp_protocol.replies import ActivityView, LimitsHit

from . import top_answers as made


def picture(facts: Facts, **arguments: Any) -> Picture:
    known = answered(Known(), made.health(), facts, None, at="2026-11-29T18:00:01.000Z", at_ms=1_000)
    return picture_of(known, now_ms=1_000, address="unix:/x", **arguments)


def counted(uptime_ms: int, **records: int) -> Facts:
    return made.facts(stats=made.stats(uptime_ms=uptime_ms, records_by_type=records))


def known_after(*several: Facts) -> Known:
    known = Known()
    for facts in several:
        known = answered(known, made.health(), facts, None, at=made.NOW, at_ms=0)
    return known


def rates(*several: Facts) -> tuple[dict[str, float], int]:
    seen = picture_of(known_after(*several), now_ms=0, address="")
    return {name: rate for name, rate in seen.rates_per_s.items() if rate}, seen.rates_over_ms


def test_rates_are_of_the_last_seconds() -> None:
    assert rates(counted(1_000, claimed=5)) == ({}, 0)
    first, second = counted(1_000, claimed=5), counted(3_000, claimed=6, completed=3)
    assert rates(first, second) == ({"claimed": 0.5, "completed": 1.5}, 2_000)
    later = counted(1_000 + RATES_OVER_MS + 1, claimed=6, completed=3)
    assert rates(first, second, later) == ({}, RATES_OVER_MS + 1 - 2_000)


def test_two_readings_far_apart_still_make_a_rate() -> None:
    assert rates(counted(1_000, claimed=5), counted(61_000, claimed=65)) == ({"claimed": 1.0}, 60_000)


def test_a_restarted_daemon_counts_anew() -> None:
    before = counted(50_000, claimed=500)
    assert rates(before, counted(2_000, claimed=1)) == ({}, 0)
    assert rates(before, counted(2_000, claimed=1), counted(4_000, claimed=3)) == ({"claimed": 1.0}, 2_000)
    assert rates(counted(2_000, claimed=5), counted(4_000, claimed=3)) == ({}, 0), (
        "it was gone longer than it had been up"
    )


def test_the_lease_that_was_silent_longest_stands_first() -> None:
    fresh = made.held(1, claimed_at=made.before(900), checkpoint_at=made.before(2), seq=7)
    hangs = made.held(2, claimed_at=made.before(600), checkpoint_at=made.before(300), seq=3)
    begins = made.held(3, claimed_at=made.before(5))
    circles = made.held(4, claimed_at=made.before(400), activity=ActivityView(repeats=4, ago_ms=100))
    moves = made.held(5, claimed_at=made.before(400), activity=ActivityView(repeats=0, ago_ms=100))
    seen = picture(made.facts(fresh, hangs, begins, circles, moves)).leases
    assert [(one.handoff[:1], one.quiet_ms) for one in seen] == [
        ("4", 400_000),
        ("2", 300_000),
        ("3", 5_000),
        ("1", 2_000),
        ("5", 100),
    ]
    assert (seen[1].checkpoint_ago_ms, seen[1].held_ms, seen[1].seq) == (300_000, 600_000, 3)
    assert (seen[0].repeats, seen[0].activity_ago_ms, seen[0].checkpoint_ago_ms) == (4, 100, None)


def test_what_waits_for_a_person_comes_with_the_command_that_answers() -> None:
    late, soon = made.asked(1), made.asked(2, expires_at="2026-11-29T18:00:05.000Z")
    over = made.asked(3, expires_at=made.before(5))
    seen = picture(made.facts(asked=[late, soon, over]), dhp="dhp --connect unix:/x").approvals
    assert [one.left_ms for one in seen] == [0, 5_000, 600_000]
    assert seen[2].command == f"dhp --connect unix:/x approve 1{'0' * 11}-01234567"
    assert (seen[2].action, seen[2].details, seen[2].kind) == ("pay", {"usd": 3}, "order")


def test_what_is_stuck_says_why_and_how_to_go_on() -> None:
    dead = made.handoff(1, status="dead", reason="max_usd would be passed", failures=2, updated_at=made.before(240))
    sleeps = made.handoff(2, status="suspended", wake_at="2026-11-29T18:01:00.000Z", reason="night")
    seen = picture(made.facts(dead=[dead], suspended=[sleeps]))
    assert (seen.dead[0].reason, seen.dead[0].for_ms) == ("max_usd would be passed", 240_000)
    assert (seen.dead[0].failures, seen.dead[0].max_attempts) == (2, 3)
    assert seen.dead[0].command == f"dhp redrive 1{'0' * 11}"
    assert (seen.suspended[0].wakes_in_ms, seen.suspended[0].command) == (60_000, f"dhp resume 2{'0' * 11}")


def test_what_is_put_aside_for_a_question_is_told_once() -> None:
    parked = made.handoff(1, status="suspended", reason="waits for approval: pay")
    seen = picture(made.facts(asked=[made.asked(1)], suspended=[parked, made.handoff(2, status="suspended")]))
    assert [one.handoff[:1] for one in seen.suspended] == ["2"]
    assert len(seen.approvals) == 1


def test_only_bounds_that_were_met_are_told() -> None:
    seen = picture(made.facts(stats=made.stats(limits_hit=LimitsHit(waits_refused=3))))
    assert seen.limits_hit == {"waits_refused": 3}


def test_since_when_nobody_answers_is_told_and_the_rest_stays() -> None:
    known = answered(Known(), made.health(), made.facts(made.held()), None, at="2026-11-29T18:00:01.000Z", at_ms=1_000)
    for at_ms in (2_000, 9_000):
        known = silent(known, at="later", at_ms=at_ms)
    seen = picture_of(known, now_ms=9_500, address="")
    assert (seen.silent_since, seen.silent_ms) == ("2026-11-29T18:00:01.000Z", 8_500)
    assert len(seen.leases) == 1
    back = answered(known, made.health(), made.facts(), None, at="x", at_ms=10_000)
    assert picture_of(back, now_ms=10_000, address="").silent_since is None


def test_where_nobody_ever_answered_it_counts_from_the_first_try() -> None:
    known = silent(silent(Known(), at="first", at_ms=1_000), at="second", at_ms=3_000)
    seen = picture_of(known, now_ms=4_000, address="")
    assert (seen.silent_since, seen.silent_ms, seen.handoffs, seen.health) == ("first", 3_000, {}, None)


def test_a_store_that_cannot_be_read_leaves_what_was_read_last() -> None:
    known = known_after(made.facts(made.held()))
    sick = made.health(status="store_unavailable", store="unavailable")
    known = answered(known, sick, None, "not now", at="later", at_ms=9_000)
    seen = picture_of(known, now_ms=9_000, address="")
    assert (seen.refusal, seen.facts_at, seen.silent_since) == ("not now", made.NOW, None)
    assert len(seen.leases) == 1
    known = answered(known, made.health(), made.facts(), None, at="x", at_ms=9_500)
    well = picture_of(known, now_ms=9_500, address="")
    assert (well.refusal, well.facts_at, well.leases) == (None, None, [])


@pytest.mark.parametrize("name", ["running", "dead", "orphaned", "suspended", "pending"])
def test_a_list_that_goes_on_is_named(name: str) -> None:
    from dhp_client.cli.top.gathering import Listed

    seen = picture(made.facts(**{name: Listed([made.held()], more=True)}))
    assert seen.more == ["leases" if name == "running" else name]
