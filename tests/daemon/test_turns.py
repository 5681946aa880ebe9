"""Turns are fair and short, by a clock that the test moves."""

from collections.abc import Callable

import pytest

from dhpd.server.turns import NEW_IN_A_ROW, PASS_S, SHORTEST_TURN_S, TURN_S, Turns


class Loop:
    """A clock, and what is to be called in the next pass."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.due: list[Callable[[], None]] = []
        self.turns = Turns(lambda: self.now_s, self.due.append)
        self.taken: list[str] = []

    def passes(self) -> list[str]:
        """Runs one pass; gives what was taken in it, in order."""
        due, self.due[:] = list(self.due), []
        self.taken = []
        for call in due:
            call()
        return self.taken

    def last_until_nothing_is_due(self) -> int:
        """How many passes that takes."""
        number = 0
        while self.due:
            self.passes()
            number += 1
        return number


class Peer:
    """Has so many frames, each of which takes so long."""

    def __init__(self, loop: Loop, name: str, frames: int, frame_s: float) -> None:
        self.loop, self.name, self.frames, self.frame_s = loop, name, frames, frame_s

    def take_turn(self, is_over: Callable[[], bool]) -> None:
        while self.frames:
            self.frames -= 1
            self.loop.now_s += self.frame_s
            self.loop.taken.append(self.name)
            if is_over():
                break
        if self.frames:
            self.loop.turns.line_up(self)


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_who_is_alone_is_taken_in_at_once(loop: Loop) -> None:
    assert loop.turns.take_at_once(Peer(loop, "a", 3, TURN_S / 10))
    assert loop.taken == ["a"] * 3
    assert not loop.due


def test_a_turn_ends_by_the_clock_and_the_rest_lines_up(loop: Loop) -> None:
    peer = Peer(loop, "a", 100, TURN_S / 3.9)
    assert loop.turns.take_at_once(peer)
    assert len(loop.taken) == 4
    assert loop.due


def test_a_turn_is_one_frame_at_least(loop: Loop) -> None:
    for name in "ab":
        loop.turns.line_up(Peer(loop, name, 2, 10 * PASS_S))
    assert [loop.passes() for _ in range(5)] == [["a"], ["b"], ["a"], ["b"], []]
    assert not loop.due


def test_nobody_has_a_second_turn_before_all_have_had_one(loop: Loop) -> None:
    for name in "abc":
        loop.turns.line_up(Peer(loop, name, 4, PASS_S / 3.9))
    rounds = [*loop.passes(), *loop.passes(), *loop.passes()]
    assert rounds == list("abcabcabcabc")


def test_whoever_comes_while_others_wait_lines_up_behind_them(loop: Loop) -> None:
    loop.turns.line_up(Peer(loop, "a", 8, 2 * PASS_S))
    late = Peer(loop, "b", 1, 2 * PASS_S)
    assert not loop.turns.take_at_once(late)
    loop.turns.line_up(late)
    assert [loop.passes(), loop.passes(), loop.passes()] == [["a"], ["b"], ["a"]]


def test_a_pass_is_used_up_by_many_who_come_at_once(loop: Loop) -> None:
    comers = [Peer(loop, str(number), 1, PASS_S / 3.9) for number in range(6)]
    taken_at_once = [loop.turns.take_at_once(comer) for comer in comers]
    assert taken_at_once == [True] * 4 + [False] * 2
    for comer in comers[4:]:
        loop.turns.line_up(comer)
    assert loop.passes() == ["4", "5"]
    assert loop.turns.take_at_once(Peer(loop, "next", 1, 0.0))


@pytest.mark.parametrize("waiting", [1, 3, 8, 1000])
def test_a_pass_spends_no_more_than_its_time_and_a_turn_with_its_last_frame(loop: Loop, waiting: int) -> None:
    frame_s = SHORTEST_TURN_S / 10
    for number in range(waiting):
        loop.turns.line_up(Peer(loop, str(number), 5_000, frame_s))
    for _ in range(20):
        began_s = loop.now_s
        loop.passes()
        tiny_s = frame_s / 1000  # Seconds don't add up exactly.
        assert PASS_S - tiny_s <= loop.now_s - began_s <= PASS_S + TURN_S + frame_s + tiny_s


def test_a_share_becomes_short_where_many_wait_and_no_shorter(loop: Loop) -> None:
    frame_s = SHORTEST_TURN_S / 3.9
    for number in range(100):
        loop.turns.line_up(Peer(loop, str(number), 100, frame_s))
    taken = loop.passes()
    assert [taken.count(name) for name in ("0", "1")] == [4, 4]
    assert PASS_S / 100 < SHORTEST_TURN_S < TURN_S


def test_who_comes_with_something_new_is_not_behind_all_who_never_end(loop: Loop) -> None:
    for name in "abcd":
        loop.turns.line_up(Peer(loop, name, 100, 2 * PASS_S))
    assert [*loop.passes(), *loop.passes()] == ["a", "b"]
    loop.turns.line_up(Peer(loop, "new", 1, 2 * PASS_S), new=True)
    assert [*loop.passes(), *loop.passes()] == ["new", "c"]


def test_those_who_go_on_do_so_however_many_come_with_something_new(loop: Loop) -> None:
    loop.turns.line_up(Peer(loop, "a", 5, 2 * PASS_S))
    taken: list[str] = []
    for number in range(5 * (NEW_IN_A_ROW + 1)):
        loop.turns.line_up(Peer(loop, f"new {number}", 1, 2 * PASS_S), new=True)
        taken += loop.passes()
    assert taken.count("a") == 5


def test_who_leaves_has_no_turn(loop: Loop) -> None:
    peers = [Peer(loop, name, 1, 0.0) for name in "abc"]
    for peer in peers:
        loop.turns.line_up(peer)
        loop.turns.line_up(peer)  # Whoever stands there already stays there.
    loop.turns.leave(peers[1])
    loop.turns.leave(peers[1])
    assert loop.passes() == ["a", "c"]


def test_a_mistake_in_a_turn_costs_nobody_else_theirs(loop: Loop) -> None:
    class Mistaken(Peer):
        def take_turn(self, is_over: Callable[[], bool]) -> None:
            raise ZeroDivisionError

    loop.turns.line_up(Mistaken(loop, "a", 1, 0.0))
    loop.turns.line_up(Peer(loop, "b", 1, 0.0))
    with pytest.raises(ZeroDivisionError):
        loop.passes()
    assert loop.passes() == ["b"]


def test_it_is_told_when_those_who_stood_there_have_had_their_turn(loop: Loop) -> None:
    assert loop.turns.have_had(loop.turns.newest)
    for name in "ab":
        loop.turns.line_up(Peer(loop, name, 10, 2 * PASS_S))
    newest = loop.turns.newest
    loop.passes()
    loop.turns.line_up(Peer(loop, "c", 10, 2 * PASS_S))
    assert not loop.turns.have_had(newest)
    loop.passes()
    assert loop.turns.have_had(newest), "though all of them wait again"
    assert not loop.turns.have_had(loop.turns.newest)


def test_all_is_taken_in_in_the_end(loop: Loop) -> None:
    peers = [Peer(loop, str(number), 50, TURN_S / 7) for number in range(30)]
    for peer in peers:
        if not loop.turns.take_at_once(peer):
            loop.turns.line_up(peer)
    assert loop.last_until_nothing_is_due() > 1
    assert not any(peer.frames for peer in peers)


class Reader:
    """Takes in little in its turn, and is read from again after it, at so much of the pass."""

    def __init__(self, loop: Loop, name: str, read_s: float) -> None:
        self.loop, self.name, self.read_s = loop, name, read_s

    def take_turn(self, is_over: Callable[[], bool]) -> None:
        self.loop.taken.append(self.name)
        self.loop.turns.charge(self.read_s)


def test_what_will_be_read_counts_so_that_one_poll_reads_from_few(loop: Loop) -> None:
    for name in "abcdef":
        loop.turns.line_up(Reader(loop, name, PASS_S / 3.9))
    assert [loop.passes() for _ in range(3)] == [["a", "b", "c", "d"], ["e", "f"], []]


def test_what_was_read_counts_so_that_nobody_is_taken_in_at_once_after_much(loop: Loop) -> None:
    loop.turns.charge(PASS_S)
    peer = Peer(loop, "a", 1, 0)
    assert not loop.turns.take_at_once(peer)
    loop.turns.line_up(peer)
    assert loop.passes() == ["a"]
    assert loop.turns.take_at_once(Peer(loop, "b", 1, 0))
