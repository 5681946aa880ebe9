"""A line: first come, first served, and whoever comes back stands where they stood."""

import random

from dhpd.engine.line import Line


class Someone:
    def __init__(self, number: int) -> None:
        self.number = number


def line(*numbers: int) -> tuple[Line[Someone], list[Someone]]:
    waiting: Line[Someone] = Line()
    people = [Someone(number) for number in numbers]
    for someone in people:
        waiting.add(someone)
    return waiting, people


def test_the_first_is_who_has_the_lowest_number_whoever_came_last() -> None:
    waiting, (third, first, second) = line(3, 1, 2)
    assert waiting.first() is first
    assert list(waiting) == [first, second, third]
    assert len(waiting) == 3


def test_whoever_left_is_not_found_and_may_come_back() -> None:
    waiting, (first, second) = line(1, 2)
    assert waiting.remove(first) is True
    assert waiting.remove(first) is False
    assert waiting.first() is second
    waiting.add(first)
    assert waiting.first() is first


def test_an_empty_line_has_no_first() -> None:
    waiting, (only,) = line(1)
    waiting.remove(only)
    assert waiting.first() is None
    assert len(waiting) == 0


def test_whoever_left_is_not_kept() -> None:
    waiting, (first, _) = line(0, 1)
    for number in range(2, 10_000):
        someone = Someone(number)
        waiting.add(someone)
        waiting.remove(someone)
        waiting.remove(first)
        waiting.add(first)
    assert len(waiting._numbers) <= 128


def test_random_comings_and_goings_keep_the_order(rng: random.Random) -> None:
    for _ in range(50):
        waiting, people = line()
        everyone = [Someone(number) for number in range(1, 150)]
        for _ in range(300):
            someone = rng.choice(everyone)
            if someone in people:
                assert waiting.remove(someone)
                people.remove(someone)
            else:
                waiting.add(someone)
                people.append(someone)
            assert waiting.first() is min(people, key=lambda each: each.number, default=None)
        assert list(waiting) == sorted(people, key=lambda each: each.number)
