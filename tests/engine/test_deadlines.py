"""Deadlines: each comes once, at its time, however often it was moved."""

import random
import sys

from dhpd.engine.deadlines import PASSED_AT_ONCE, SPAN_MS, Deadlines

NOW_MS = 50 * SPAN_MS


class Item:
    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.deadline_entry = 0


def minded(*deadlines_ms: int) -> tuple[Deadlines[Item], list[Item]]:
    deadlines: Deadlines[Item] = Deadlines()
    items = [Item(deadline_ms) for deadline_ms in deadlines_ms]
    for item in items:
        deadlines.add(item)
    return deadlines, items


def test_due_are_those_at_or_before_now_the_earliest_first() -> None:
    deadlines, (late, early, later) = minded(20, 10, 21)
    assert list(deadlines.due(9)) == []
    assert list(deadlines.due(20)) == [early, late]
    assert list(deadlines.due(20)) == []
    assert list(deadlines.due(99)) == [later]


def test_one_that_moved_later_comes_then_and_once() -> None:
    deadlines, (item,) = minded(10)
    item.deadline_ms = 30
    assert list(deadlines.due(10)) == []
    item.deadline_ms = 40
    assert list(deadlines.due(30)) == []
    assert list(deadlines.due(40)) == [item]


def test_one_that_moved_earlier_comes_then_and_once() -> None:
    deadlines, (item,) = minded(30)
    item.deadline_ms = 10
    deadlines.add(item)
    assert list(deadlines.due(9)) == []
    assert deadlines.next_ms() == 10
    assert list(deadlines.due(10)) == [item]
    assert list(deadlines.due(99)) == []


def test_one_that_was_removed_never_comes() -> None:
    deadlines, (item, other) = minded(10, 20)
    deadlines.remove(item)
    deadlines.remove(item)
    assert list(deadlines.due(19)) == []
    assert deadlines.next_ms() == 20
    assert list(deadlines.due(99)) == [other]
    deadlines.remove(other)
    assert deadlines.next_ms() is None
    deadlines.add(item)
    assert list(deadlines.due(10)) == [item]


def test_one_may_be_removed_while_others_come() -> None:
    deadlines, items = minded(*range(1_000))
    came = []
    for item in deadlines.due(999):
        if item is None:
            continue
        came.append(item)
        for other in items[item.deadline_ms + 1 : item.deadline_ms + 4]:
            deadlines.remove(other)
    assert came == items[::4]


def test_what_is_not_minded_any_more_is_not_kept() -> None:
    """A lease of an hour that ended after a second isn't remembered for an hour."""
    deadlines, _ = minded(1)
    for _ in range(10_000):
        item = Item(3_600_000)
        deadlines.add(item)
        deadlines.remove(item)
    assert len(deadlines._far) == 1
    item = Item(3_600_000)
    for _ in range(10_000):
        item.deadline_ms -= 300
        deadlines.add(item)
    assert len(deadlines._far) == 2
    assert len(deadlines._spans) <= 128


def test_one_that_was_due_may_be_minded_again() -> None:
    deadlines, (item,) = minded(10)
    assert list(deadlines.due(10)) == [item]
    deadlines.add(item)
    assert deadlines.next_ms() == 10
    assert list(deadlines.due(10)) == [item]


def test_the_next_look_is_never_after_the_first_deadline() -> None:
    deadlines, (item, _) = minded(10, 50)
    item.deadline_ms = 40
    first_ms = deadlines.next_ms()
    assert first_ms is not None
    assert first_ms <= 40


def test_moving_one_later_costs_nothing_until_it_would_have_come() -> None:
    deadlines, (item,) = minded(10)
    for deadline_ms in range(11, 10_000):
        item.deadline_ms = deadline_ms
    assert len(deadlines._far) == 1
    assert len(deadlines._near) == 0


def test_random_moves_bring_each_at_its_time(rng: random.Random) -> None:
    for _ in range(100):
        deadlines, items = minded(*[rng.randrange(100) for _ in range(20)])
        came: dict[int, int] = {}
        for now_ms in range(220):
            for item in rng.sample(items, 3):
                if id(item) not in came and item.deadline_entry and item.deadline_ms > now_ms:
                    move = rng.choice(["later", "earlier", "never"])
                    if move == "later":
                        item.deadline_ms += rng.randrange(50)
                    elif move == "earlier":
                        item.deadline_ms = rng.randrange(now_ms, item.deadline_ms)
                        deadlines.add(item)
                    elif rng.random() < 0.1:
                        deadlines.remove(item)
            for item in deadlines.due(now_ms):
                assert id(item) not in came
                assert item.deadline_ms == now_ms
                came[id(item)] = now_ms
            assert all(id(i) in came or not i.deadline_entry or i.deadline_ms > now_ms for i in items)


def test_those_of_one_moment_come_in_the_order_in_which_they_were_added() -> None:
    deadlines, items = minded(*[NOW_MS] * 5)
    assert list(deadlines.due(NOW_MS - 1)) == []
    late = Item(NOW_MS)
    deadlines.add(late)
    assert list(deadlines.due(NOW_MS)) == [*items, late]


def test_whoever_looks_has_pauses_however_many_moved_or_went() -> None:
    deadlines, items = minded(*[NOW_MS] * 10 * PASSED_AT_ONCE)
    for item in items[::2]:
        item.deadline_ms += 3_600_000
    for item in items[1::2]:
        deadlines.remove(item)
    last = Item(NOW_MS)
    deadlines.add(last)
    came = list(deadlines.due(NOW_MS))
    assert came[-1] is last
    assert came[:-1] == [None] * 5


def test_whoever_stops_looking_finds_the_rest_later() -> None:
    deadlines, items = minded(*[NOW_MS] * 3 * PASSED_AT_ONCE)
    assert next(deadlines.due(NOW_MS)) is None
    removed, moved = items[-1], items[-2]
    deadlines.remove(removed)
    moved.deadline_ms += 5
    next_ms = deadlines.next_ms()
    assert next_ms is not None
    assert next_ms <= NOW_MS
    assert [item for item in deadlines.due(NOW_MS) if item is not None] == items[:-2]
    assert list(deadlines.due(NOW_MS + 5)) == [moved]
    assert deadlines.next_ms() is None


def test_a_second_from_which_most_have_gone_takes_no_more_room_than_the_rest() -> None:
    deadlines, items = minded(*[NOW_MS] * 10_000)
    for item in items[100:]:
        deadlines.remove(item)
    (span,) = deadlines._far.values()
    assert sys.getsizeof(span.items) <= sys.getsizeof(dict.fromkeys(range(400)))
    assert [item for item in deadlines.due(NOW_MS) if item is not None] == items[:100]
