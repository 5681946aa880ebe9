"""Whose turn it is: by what was used lately, then by size, then by arrival."""

from dataclasses import dataclass

import pytest

from dhpd.sandbox.fairness import HALF_LIFE_S, Asker, Room, Turns, Uses


@dataclass
class Item:
    asker: Asker
    size: int
    number: int


def order(turns: Turns[Item], now_s: float = 0.0) -> list[Item]:
    found = []
    while (item := turns.next(now_s)) is not None:
        found.append(item)
    return found


@pytest.fixture
def uses() -> Uses:
    return Uses()


@pytest.fixture
def room() -> Room:
    return Room()


@pytest.fixture
def turns(uses: Uses, room: Room) -> Turns[Item]:
    return Turns(uses, room)


def test_whoever_has_used_less_comes_first_however_large_and_late(turns: Turns[Item], uses: Uses) -> None:
    uses.add("much", 2.0, 0.0)
    uses.add("little", 1.0, 0.0)
    items = [Item("much", 1, 1), Item("little", 50, 2), Item(7, 100, 3)]
    for item in items:
        turns.add(item)
    assert order(turns) == items[::-1]


def test_what_was_used_counts_less_as_time_goes_by(turns: Turns[Item], uses: Uses) -> None:
    uses.add("early", 3.0, 0.0)
    uses.add("late", 1.0, 2 * HALF_LIFE_S)
    assert uses.of("early", 2 * HALF_LIFE_S) == pytest.approx(0.75)
    turns.add(Item("late", 1, 1))
    turns.add(Item("early", 1, 2))
    assert [item.asker for item in order(turns, 2 * HALF_LIFE_S)] == ["early", "late"]


def test_what_was_used_adds_up_and_is_forgotten_at_last(uses: Uses) -> None:
    uses.add("a", 1.0, 0.0)
    uses.add("a", 1.0, 0.0)
    assert uses.of("a", 0.0) == 2.0
    uses.add("b", 1.0, 100 * HALF_LIFE_S)
    assert uses.of("a", 0.0) == 0.0
    assert uses.of("b", 100 * HALF_LIFE_S) == 1.0


def test_of_those_that_have_used_the_same_the_small_comes_first_then_the_early(turns: Turns[Item]) -> None:
    small, large, late = Item(1, 10, 3), Item(2, 20, 1), Item(3, 10, 4)
    own_large, own_small = Item(4, 90, 2), Item(4, 5, 5)
    for item in (late, large, own_large, small, own_small):
        turns.add(item)
    assert order(turns) == [own_small, small, late, large, own_large]


def test_the_turn_goes_on_once_one_has_used_more(turns: Turns[Item], uses: Uses) -> None:
    for item in (Item(1, 1, 1), Item(1, 1, 2), Item(2, 9, 3)):
        turns.add(item)
    assert turns.next(0.0) == Item(1, 1, 1)
    uses.add(1, 0.001, 0.0)
    assert order(turns) == [Item(2, 9, 3), Item(1, 1, 2)]


def test_room_is_taken_by_what_waits_and_no_longer(turns: Turns[Item], room: Room) -> None:
    items = [Item(1, 10, 1), Item(1, 30, 2), Item(2, 35, 3)]
    for item in items:
        turns.add(item)
    assert (room.taken, room.of(1), room.of(2), room.fullest()) == (75, 40, 35, 1)
    assert turns.last(1) == items[1]
    assert turns.remove(items[1])
    assert not turns.remove(items[1])
    assert (room.taken, room.fullest()) == (45, 2)
    assert order(turns) == [items[0], items[2]]
    assert (room.taken, room.of(1), turns.last(1)) == (0, 0, None)
