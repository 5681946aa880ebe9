"""The plan of a run follows from its options and its seed alone, and leaves no kind of fault out."""

import random

from dhp_client.chaos.plan import KILL_DAEMON, KILL_WORKER, KINDS, TTL_MS, Options, acts


def test_the_same_seed_makes_the_same_plan_and_another_one_another() -> None:
    assert acts(Options(seed=7)) == acts(Options(seed=7))
    assert acts(Options(seed=7)) != acts(Options(seed=8))


def test_a_short_run_has_every_kind_of_fault(rng: random.Random) -> None:
    for _ in range(50):
        planned = acts(Options(seconds=10, daemon_kills=1, seed=rng.randrange(2**32)))
        assert {act.kind for act in planned} == set(KINDS)


def test_as_many_kills_as_are_asked_for_within_the_time(rng: random.Random) -> None:
    options = Options(handoffs=300, workers=6, seconds=120, daemon_kills=5, seed=rng.randrange(2**32))
    planned = acts(options)
    kinds = [act.kind for act in planned]
    assert (kinds.count(KILL_WORKER), kinds.count(KILL_DAEMON)) == (120, 5)
    assert all(0 <= act.at_ms <= 120_000 for act in planned)
    assert planned == sorted(planned)
    assert {act.worker for act in planned} == set(range(6))
    assert any(act.lasts_ms > TTL_MS for act in planned)


def test_nobody_is_killed_where_none_is_to_be() -> None:
    kinds = {act.kind for act in acts(Options(kill_every_ms=0, daemon_kills=0))}
    assert kinds == set(KINDS) - {KILL_WORKER, KILL_DAEMON}


def test_steps_take_as_long_as_fills_the_time() -> None:
    assert Options(handoffs=300, workers=6, steps=40, seconds=120).step_ms == 48
    assert Options(handoffs=1, workers=6, steps=10, seconds=10).step_ms == 800
    assert Options(handoffs=10_000, workers=1, steps=1_000, seconds=1).step_ms == 1
