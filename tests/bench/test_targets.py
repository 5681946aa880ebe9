"""What was to be reached is said as it is: met, missed, or left out where a figure is lacking."""

import pytest

from bench import table, targets
from bench.figures import Figure, Measured, gathered
from bench.targets import TARGETS, Target, Verdict, compared, ratios, verdicts, with_limits

PAUSE = "ours/pause/max"
OURS = "ours/checkpoints/1KB"
EIGHT = "peers/dhp-protocol/checkpoints/8w/rate"


def of_rounds(**values: list[float]) -> dict[str, Measured]:
    """Rates by name, where `__` stands for a slash."""
    return rates({name.replace("__", "/"): rounds for name, rounds in values.items()})


def rates(values: dict[str, list[float]]) -> dict[str, Measured]:
    return gathered(Figure(name, value, "1/s") for name, rounds in values.items() for value in rounds)


def only(unit: str, **values: float) -> dict[str, Measured]:
    return gathered(Figure(name.replace("__", "/"), value, unit) for name, value in values.items())


def verdict_of(figure: str, figures: dict[str, Measured], per: str = "") -> Verdict:
    (verdict,) = (each for each in verdicts(figures) if (each.target.figure, each.target.per) == (figure, per))
    return verdict


@pytest.mark.parametrize(("pause_ms", "state"), [(49.9, "met"), (50.0, "met"), (50.1, "missed")])
def test_a_bound_from_above_is_met_up_to_the_bound_itself(pause_ms: float, state: str) -> None:
    verdict = verdict_of(PAUSE, only("ms", ours__pause__max=pause_ms))
    assert (verdict.state, verdict.value) == (state, pytest.approx(pause_ms))


@pytest.mark.parametrize(("ours", "state"), [(1499.0, "missed"), (1500.0, "met"), (1501.0, "met")])
def test_a_bound_from_below_is_met_from_the_bound_on(ours: float, state: str) -> None:
    verdict = verdict_of(f"{OURS}/64x1/rate", rates({f"{OURS}/64x1/rate": [ours], EIGHT: [100.0]}), EIGHT)
    assert (verdict.state, verdict.value) == (state, ours / 100)


def test_nothing_is_met_where_nothing_was_measured() -> None:
    assert [verdict.state for verdict in verdicts({})] == ["left out"] * len(TARGETS)


@pytest.mark.parametrize(("lacking", "there"), [(EIGHT, f"{OURS}/64x1/rate"), (f"{OURS}/64x1/rate", EIGHT)])
def test_a_ratio_that_lacks_either_figure_is_left_out_and_names_it(lacking: str, there: str) -> None:
    verdict = verdict_of(f"{OURS}/64x1/rate", rates({there: [1e9]}), EIGHT)
    assert (verdict.state, verdict.value, verdict.reason) == ("left out", None, lacking)


def test_a_ratio_to_nothing_is_left_out() -> None:
    verdict = verdict_of(f"{OURS}/64x1/rate", rates({f"{OURS}/64x1/rate": [5.0], EIGHT: [0.0]}), EIGHT)
    assert (verdict.state, verdict.reason) == ("left out", f"{EIGHT} is 0")


def test_a_ratio_is_taken_within_each_round_and_then_its_median() -> None:
    figures = of_rounds(a=[10.0, 20.0, 90.0], b=[1.0, 10.0, 30.0])
    assert ratios(figures, "a", "b") == [10.0, 2.0, 3.0]
    slow_minute = rates({f"{OURS}/64x1/rate": [1600.0, 100.0, 3000.0], EIGHT: [100.0, 10.0, 150.0]})
    assert verdict_of(f"{OURS}/64x1/rate", slow_minute, EIGHT).value == 16.0


def test_figures_of_unequally_many_rounds_are_held_together_by_their_medians() -> None:
    assert ratios(of_rounds(a=[10.0, 40.0, 60.0], b=[4.0]), "a", "b") == [10.0]


def test_a_ratio_of_times_minds_their_units() -> None:
    assert ratios(only("ms", a=2.0) | only("us", b=500.0), "a", "b") == [pytest.approx(4.0)]


def test_a_bound_on_a_time_minds_its_unit() -> None:
    p99 = f"{OURS}/64x1/p99"
    verdict = verdict_of(p99, gathered([Figure(p99, 6100.0, "us")]))
    assert (verdict.state, verdict.value) == ("missed", pytest.approx(6.1))


def test_the_worst_pause_of_any_round_counts_and_not_their_median() -> None:
    rounds = [Figure(PAUSE, value, "ms") for value in (10.0, 11.0, 51.0)]
    assert verdict_of(PAUSE, gathered(rounds)).state == "missed"


def limits(rows: float, batches: dict[int, float], echo: float = 100_000.0) -> dict[str, Measured]:
    values = {f"limits/sqlite/batch{size}/rate": [rate] for size, rate in batches.items()}
    values |= {"limits/echo/64x1/rate": [echo], f"{OURS}/64x1/rate": [30_000.0]}
    return rates(values) | {f"{OURS}/64x1/rows_per_commit": Measured("", rows, "count", [rows])}


def one_after_the_other(figures: dict[str, Measured]) -> float:
    return with_limits(figures)["limits/echo-then-sqlite/64x1/rate"].value


def test_one_after_the_other_adds_the_times_of_echo_and_of_sqlite() -> None:
    figures = limits(32, {32: 100_000.0})
    assert one_after_the_other(figures) == pytest.approx(50_000)
    verdict = verdict_of(f"{OURS}/64x1/rate", with_limits(figures), "limits/echo-then-sqlite/64x1/rate")
    assert (verdict.state, verdict.value) == ("met", pytest.approx(0.6))


def test_sqlite_is_taken_at_our_rows_per_commit_between_the_measured_ones() -> None:
    # A commit of 10 rows takes 1 ms and one of 30 takes 2 ms, so one of 20 takes 1.5 ms.
    batches = {10: 10_000.0, 30: 15_000.0}
    sqlite = 20 / 0.0015
    assert one_after_the_other(limits(20, batches)) == pytest.approx(1 / (1 / 100_000 + 1 / sqlite))


@pytest.mark.parametrize(("rows", "rate"), [(1.0, 10_000.0), (10.0, 10_000.0), (30.0, 15_000.0), (400.0, 15_000.0)])
def test_sqlite_is_taken_as_measured_at_and_beyond_the_ends(rows: float, rate: float) -> None:
    assert one_after_the_other(limits(rows, {10: 10_000.0, 30: 15_000.0}, echo=rate)) == pytest.approx(rate / 2)


@pytest.mark.parametrize(
    "lacking", ["limits/echo/64x1/rate", "limits/sqlite/batch32/rate", f"{OURS}/64x1/rows_per_commit"]
)
def test_there_is_no_limit_without_all_that_it_is_made_of(lacking: str) -> None:
    figures = limits(32, {32: 100_000.0})
    del figures[lacking]
    assert with_limits(figures) == figures


def test_a_comparison_with_a_peer_that_was_not_measured_is_left_out() -> None:
    figures = rates({f"{OURS}/64x1/rate": [30_000.0], "peers/redis-streams/xadd/1KB/64x1/rate": [15_000.0]})
    assert [(comparison.per, ratio) for comparison, ratio in compared(figures)] == [
        ("peers/redis-streams/xadd/1KB/64x1/rate", 2.0)
    ]


def test_the_table_says_missed_met_and_what_a_target_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = (
        Target("low", "ours/a/rate", 2.0, unit="1/s"),
        Target("high", "ours/a/rate", 4.0, unit="1/s"),
        Target("gone", "ours/b/rate", 0.0, unit="1/s"),
    )
    monkeypatch.setattr(targets, "TARGETS", wanted)
    lines = list(table.report(rates({"ours/a/rate": [3.0]}), {}, {}))
    assert [" ".join(line.split()) for line in lines[-3:]] == [
        "low 3/s ≥ 2/s met",
        "high 3/s ≥ 4/s missed",
        "gone ≥ 0/s left out: needs ours/b/rate",
    ]


def test_the_table_prints_each_peer_with_its_durability_and_each_part_that_was_left_out() -> None:
    figures = rates({"peers/slow-but-safe/put/1x1/rate": [1234.0]})
    text = "\n".join(
        table.report(figures, {"slow-but-safe": "syncs twice", "absent": "none"}, {"absent": "no network"})
    )
    assert "Peer: slow-but-safe" in text
    assert "Durability: syncs twice" in text
    assert "1,234/s" in text
    assert "absent: no network" in text
    assert "none" not in text


def test_the_table_shows_of_a_long_reason_its_first_and_last_line() -> None:
    text = "\n".join(table.report({}, {}, {"part": "ended with 1\n  File x, line 1\nNameError: y"}))
    assert "part: ended with 1 … NameError: y" in text
    assert "File x" not in text
