"""Room for what all connections hold together: who has got on the longest ago gives way, and nobody's own share counts."""

from dhpd.server.room import FREE_BYTES, Room

KIB = 1024


def room_of(max_bytes: int) -> tuple[Room[str], list[str]]:
    gave_way: list[str] = []
    return Room(max_bytes, gave_way.append), gave_way


def test_what_is_everybodys_own_is_not_counted() -> None:
    room, gave_way = room_of(100)
    for number in range(1_000):
        room.hold(f"{number}", FREE_BYTES)
    assert (room.used_bytes, room.holders(), gave_way) == (0, [], [])


def test_who_has_got_on_the_longest_ago_gives_way() -> None:
    room, gave_way = room_of(100 * KIB)
    for name in ("a", "b", "c"):
        room.hold(name, 30 * KIB)
    room.hold("a", 31 * KIB)
    room.hold("d", 30 * KIB)
    assert gave_way == ["b"]
    assert room.used_bytes == 91 * KIB


def test_who_only_has_more_has_not_got_on() -> None:
    room, gave_way = room_of(100 * KIB)
    room.hold("a", 30 * KIB)
    room.hold("b", 30 * KIB)
    room.hold("a", 60 * KIB, got_on=False)
    room.hold("c", 30 * KIB)
    assert gave_way == ["a"]


def test_so_many_give_way_as_it_takes_and_the_one_who_asks_last() -> None:
    room, gave_way = room_of(100 * KIB)
    room.hold("a", 30 * KIB)
    room.hold("b", 30 * KIB)
    room.hold("c", 200 * KIB)
    assert gave_way == ["a", "b", "c"]
    assert room.used_bytes == 0


def test_what_is_under_way_gives_way_to_nobody() -> None:
    room, gave_way = room_of(100 * KIB)
    room.work(90 * KIB)
    room.hold("a", 30 * KIB)
    assert gave_way == ["a"]
    room.work(-90 * KIB)
    room.hold("a", 30 * KIB)
    assert (gave_way, room.used_bytes) == (["a"], 30 * KIB)


def test_who_is_gone_holds_nothing() -> None:
    room, gave_way = room_of(100 * KIB)
    room.hold("a", 90 * KIB)
    room.hold("a", 0)
    room.hold("b", 90 * KIB)
    assert (gave_way, room.holders()) == ([], ["b"])
