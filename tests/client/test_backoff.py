"""Pauses between attempts."""

from dhp_client.backoff import Backoff, Patience


def highest(low: float, high: float) -> float:
    return high


def test_the_reach_doubles_up_to_its_bound_and_starts_anew_after_success() -> None:
    backoff = Backoff(50, 300, uniform=highest)
    assert [backoff.next_ms() for _ in range(5)] == [50, 100, 200, 300, 300]
    backoff.reset()
    assert backoff.next_ms() == 50


def test_the_jitter_is_over_the_whole_range() -> None:
    asked: list[tuple[float, float]] = []

    def draw(low: float, high: float) -> float:
        asked.append((low, high))
        return low

    backoff = Backoff(50, 300, uniform=draw)
    assert [backoff.next_ms(), backoff.next_ms()] == [0, 0]
    assert asked == [(0, 50), (0, 100)]


def test_a_bound_on_one_pause_leaves_it_random_up_to_there_and_the_next_ones_as_they_were() -> None:
    drawn: list[tuple[float, float]] = []
    backoff = Backoff(50, 400, uniform=lambda low, high: drawn.append((low, high)) or high)
    assert [backoff.next_ms(at_most_ms=90), backoff.next_ms(at_most_ms=90), backoff.next_ms()] == [50, 90, 200]
    assert drawn == [(0, 50), (0, 90), (0, 200)]


def test_patience_ends_after_its_time_from_the_first_trouble() -> None:
    patience = Patience(1_000)
    assert patience.pause_ms(5_000) is not None
    assert patience.pause_ms(5_900, at_least_ms=50) == 50
    assert patience.pause_ms(5_990, at_least_ms=50) is None


def test_patience_is_whole_again_once_the_trouble_was_over() -> None:
    patience = Patience(1_000)
    assert patience.pause_ms(0) is not None
    patience.restart()
    assert patience.pause_ms(50_000) is not None


def test_a_pause_is_never_shorter_than_the_daemon_asks_for() -> None:
    assert (Patience(10_000).pause_ms(0, at_least_ms=700) or 0) >= 700
