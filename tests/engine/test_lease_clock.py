"""The lease clock: monotonic time, less what the daemon itself lost."""

import random

import pytest

from dhpd.engine.lease_clock import LATE_AFTER_MS, LeaseClock


def started(tick_ms: int = 1_000) -> LeaseClock:
    """A clock that began at 0 and whose next tick is due at `tick_ms`."""
    clock = LeaseClock(0)
    clock.schedule(tick_ms)
    return clock


def test_time_goes_on_with_the_monotonic_clock() -> None:
    clock = started()
    assert [clock.read(at) for at in (0, 1, 500, 999)] == [0, 1, 500, 999]


def test_lease_time_never_passes_a_tick_that_has_not_run() -> None:
    clock = started()
    assert [clock.read(at) for at in (1_000, 5_000, 60_000)] == [999, 999, 999]


def test_a_punctual_tick_works_with_the_time_it_is() -> None:
    clock = started()
    assert clock.tick(1_000) == 1_000
    assert clock.offset_ms == 0


def test_a_little_lateness_is_ordinary_jitter() -> None:
    clock = started()
    assert clock.tick(1_000 + LATE_AFTER_MS) == 1_000 + LATE_AFTER_MS
    assert clock.offset_ms == 0


def test_a_timer_that_fires_early_ends_nothing_early_nor_late() -> None:
    clock = started()
    assert clock.tick(998) == 1_000


def test_a_tick_after_a_pause_works_with_the_time_at_which_it_was_due() -> None:
    clock = started()
    assert clock.tick(61_000) == 1_000
    assert clock.offset_ms == 60_000
    clock.schedule(2_000)
    assert clock.read(61_500) == 1_500, "all deadlines have moved by the lost time"
    assert clock.until_tick_ms(61_500) == 500


def test_until_the_tick_has_done_its_work_nothing_is_read_as_later() -> None:
    clock = started()
    clock.tick(61_000)
    assert clock.read(61_010) == 999
    clock.schedule(1_010)
    assert clock.read(61_010) == 1_009


@pytest.mark.parametrize("at_ms", [998, 1_000, 61_000], ids=["early", "punctual", "late"])
def test_while_a_tick_ends_what_was_due_time_stands_at_its_reading(at_ms: int) -> None:
    clock = started()
    reading_ms = clock.tick(at_ms)
    clock.stand(reading_ms)
    assert [clock.read(at_ms + later_ms) for later_ms in (0, 1, 500)] == [reading_ms] * 3
    clock.schedule(reading_ms + 1_000)
    assert clock.read(at_ms) == reading_ms, "time doesn't go back"
    assert clock.read(at_ms + 500) == pytest.approx(reading_ms + 500, abs=2)


def test_a_pause_in_the_middle_of_a_tick_takes_nothing_from_what_was_renewed_after_it() -> None:
    clock = started()
    reading_ms = clock.tick(1_000)
    clock.stand(reading_ms)
    renewed_ms = clock.read(9_000)  # By what waited on the sockets during the pause.
    clock.done(9_000)
    clock.schedule(reading_ms + 1_000)
    assert renewed_ms == reading_ms == clock.read(9_000)
    assert clock.read(9_500) == reading_ms + 500
    assert clock.offset_ms == 8_000


def test_what_a_tick_takes_as_a_rule_is_not_lost() -> None:
    clock = started()
    clock.stand(clock.tick(1_000))
    clock.done(1_200)
    clock.schedule(2_000)
    assert clock.offset_ms == 0
    assert clock.read(1_500) == 1_500


def test_several_pauses_add_up() -> None:
    clock = started()
    for number in range(1, 4):
        clock.tick(number * 1_000 + number * 10_000)
        clock.schedule((number + 1) * 1_000)
    assert clock.offset_ms == 30_000


def test_an_overdue_tick_is_wanted_at_once() -> None:
    assert started().until_tick_ms(9_000) == 0


def test_lease_time_never_goes_back_and_never_runs_ahead(rng: random.Random) -> None:
    """However late ticks come, and however long they take."""
    for _ in range(200):
        clock, monotonic_ms, last_ms = started(100), 0, 0
        for _ in range(60):
            monotonic_ms += rng.choice([0, 1, 9, 40, 400, 9_000])
            now_ms = clock.read(monotonic_ms)
            assert now_ms >= last_ms
            assert now_ms < clock.next_tick_ms
            assert now_ms <= monotonic_ms
            last_ms = max(last_ms, now_ms)
            if clock.until_tick_ms(monotonic_ms) == 0:
                reading_ms = clock.tick(monotonic_ms)
                assert last_ms < reading_ms <= monotonic_ms
                clock.stand(reading_ms)
                monotonic_ms += rng.choice([0, 0, 3, 300])
                assert clock.read(monotonic_ms) == reading_ms
                clock.done(monotonic_ms)
                clock.schedule(reading_ms + rng.choice([10, 100, 1_000]))
                last_ms = reading_ms
