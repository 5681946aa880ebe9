"""Who is silent, or comes to no end, is closed in time and with a reason; whoever has something open, or gets on, isn't."""

from collections.abc import Callable
from typing import Any

import pytest

from dhp_protocol.errors import DHPError
from dhp_protocol.replies import LimitsHit
from dhpd.config import Config
from dhpd.server.room import Room
from dhpd.server.silence import (
    LOOK_EVERY_S,
    LOOKS_FOR_ROOM,
    MAX_LEAVING,
    PROGRESS_BYTES,
    SHORTEST_LOOK_S,
    SPARED_S,
    Silence,
)

IDLE_S, FRAME_S = 100.0, 10.0


class Peer:
    """As much of a connection as is looked at."""

    def __init__(self, number: int, heard_s: float) -> None:
        self.number = number
        self.heard_s = heard_s
        self.mid_frame = self.is_held_back = False
        self.frames = self.received_bytes = 0
        self.idle, self.greeted = True, False
        self.told: DHPError | None = None

    def end_with(self, error: DHPError) -> None:
        self.told = error


class World:
    def __init__(self) -> None:
        self.now_s = 1_000.0
        config = Config(idle_ms=round(IDLE_S * 1000), frame_within_ms=round(FRAME_S * 1000))
        self.hits = LimitsHit()
        unsent: Room[Any] = Room(1, lambda _: None)
        self.silence: Any = Silence(config, lambda: self.now_s, self.hits, unsent)
        self.silence.opened = self
        self.peers: list[Peer] = []

    def is_idle(self, peer: Any) -> bool:
        return bool(peer.idle)

    def has_said_hello(self, peer: Any) -> bool:
        return bool(peer.greeted)

    def peer(self) -> Peer:
        self.peers.append(Peer(len(self.peers), self.now_s))
        self.silence.came(self.peers[-1])
        return self.peers[-1]

    def look(self, after_s: float) -> None:
        self.now_s += after_s
        self.silence.look()

    def told(self) -> list[int]:
        return [peer.number for peer in self.peers if peer.told is not None]


@pytest.fixture
def world() -> World:
    return World()


def test_who_says_nothing_for_long_is_told_so(world: World) -> None:
    silent, speaks = world.peer(), world.peer()
    world.look(IDLE_S - 1)
    speaks.heard_s = world.now_s
    world.look(1)
    assert world.told() == [silent.number]
    assert silent.told is not None
    assert (silent.told.code, silent.told.retry) == ("overloaded", "now")
    assert "say hello" in silent.told.message
    world.look(IDLE_S - 1)
    assert world.told() == [silent.number, speaks.number]
    assert world.hits.connections_idle == 2


@pytest.mark.parametrize("stays", ["has something open", "said hello"])
def test_who_has_a_reason_to_be_silent_stays_until_it_is_gone(world: World, stays: str) -> None:
    peer = world.peer()
    peer.idle, peer.greeted = stays != "has something open", stays == "said hello"
    for _ in range(5):
        world.look(IDLE_S)
    assert world.told() == []
    peer.idle, peer.greeted = True, False
    world.look(IDLE_S)
    assert world.told() == [peer.number]


def test_room_is_made_by_the_one_that_was_silent_the_longest_and_has_nothing_open(world: World) -> None:
    peers = [world.peer() for _ in range(4)]
    peers[0].idle = False
    for number, peer in enumerate((peers[2], peers[1], peers[3])):
        peer.greeted = True
        peer.heard_s = world.now_s + number
    world.now_s += SPARED_S + 10
    assert world.silence.make_room()
    assert world.told() == [2]
    assert world.silence.make_room()
    assert world.told() == [1, 2]
    assert world.silence.leaving == 2
    world.silence.went(peers[1])
    assert world.silence.leaving == 1
    assert world.silence.make_room()
    assert not world.silence.make_room(), "the one that is left has something open"
    assert world.hits.connections_displaced == 3


def test_who_spoke_a_moment_ago_makes_no_room(world: World) -> None:
    world.peer()
    world.now_s += SPARED_S / 2
    assert not world.silence.make_room()


def test_however_many_have_something_open_few_are_looked_at_for_one_place_and_others_the_next_time(
    world: World,
) -> None:
    for _ in range(3 * LOOKS_FOR_ROOM):
        world.peer().idle = False
    last = world.peer()
    last.heard_s += 1
    world.now_s += SPARED_S + 10
    assert [world.silence.make_room() for _ in range(4)] == [False, False, False, True]
    assert world.told() == [last.number]


def test_no_more_are_on_their_way_out_than_there_are_files_for(world: World) -> None:
    for _ in range(MAX_LEAVING + 1):
        world.peer()
    world.now_s += SPARED_S + 1
    made = [world.silence.make_room() for _ in range(MAX_LEAVING + 1)]
    assert made == [True] * MAX_LEAVING + [False]


@pytest.mark.parametrize("setting", ["idle_ms", "frame_within_ms"])
def test_however_short_a_time_is_set_looking_leaves_the_loop_to_others(setting: str) -> None:
    unsent: Room[Any] = Room(1, lambda _: None)

    def every_s(**settings: int) -> float:
        return Silence(Config(**settings), lambda: 0.0, LimitsHit(), unsent).every_s  # type: ignore[arg-type]

    assert every_s(**{setting: 1}) == SHORTEST_LOOK_S < every_s(**{setting: 1_000}) < every_s() == LOOK_EVERY_S


def begun(world: World) -> Peer:
    peer = world.peer()
    peer.mid_frame = peer.greeted = True
    world.silence.unfinished(peer)
    return peer


def test_a_frame_that_does_not_come_to_its_end_is_given_up_at_the_second_look(world: World) -> None:
    peer = begun(world)
    world.look(FRAME_S - 1)
    world.look(1)
    assert world.told() == [], "what has come while the daemon was stopped is read first"
    world.look(1)
    assert peer.told is not None
    assert (peer.told.code, peer.told.retry) == ("bad_frame", "now"), "its sender may have been stopped, and means well"
    assert world.hits.frames_unfinished == 1


def ends(peer: Peer) -> None:
    peer.mid_frame = False


def next_one(peer: Peer) -> None:
    peer.frames += 1


def grows(peer: Peer) -> None:
    peer.received_bytes += PROGRESS_BYTES


def held_back(peer: Peer) -> None:
    peer.is_held_back = True


@pytest.mark.parametrize("gets_on", [ends, next_one, grows, held_back])
def test_who_gets_on_or_is_not_read_from_has_its_time_anew(world: World, gets_on: Callable[[Peer], None]) -> None:
    peer = begun(world)
    for _ in range(10):
        world.look(FRAME_S - 1)
        gets_on(peer)
        world.look(1)
    assert world.told() == []


def test_who_sends_a_byte_now_and_then_does_not_get_on(world: World) -> None:
    peer = begun(world)
    for _ in range(12):
        peer.received_bytes += 10
        world.look(1)
    assert world.told() == [peer.number]
