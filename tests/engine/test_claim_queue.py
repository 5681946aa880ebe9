"""The claim queue: the first of what is claimable now, by kind."""

import random

from msgspec.structs import replace

from dhpd.engine.budget import Budget
from dhpd.engine.claim_queue import ClaimQueue, order
from dhpd.engine.facts import ORPHANED, PENDING, Handoff


def handoff(number: int, *, kind: str = "work", priority: int = 5, orphaned: bool = False) -> Handoff:
    return Handoff(
        id=f"{number:064x}",
        kind=kind,
        status=ORPHANED if orphaned else PENDING,
        priority=priority,
        number=number,
        position=number,
        anchor=number,
        n=1,
        fence=0,
        budget=Budget(),
        has_schema=False,
        created_at_ms=0,
        updated_at_ms=0,
    )


class Queued:
    """A queue with the facts that it is checked against."""

    def __init__(self) -> None:
        self.facts: dict[str, Handoff] = {}
        self.queue = ClaimQueue(self.facts.get)

    def put(self, facts: Handoff) -> Handoff:
        before = self.facts.get(facts.id)
        if before is not None:
            self.queue.remove(before)
        self.facts[facts.id] = facts
        self.queue.add(facts)
        return facts

    def remove(self, facts: Handoff) -> None:
        del self.facts[facts.id]
        self.queue.remove(facts)

    def drain(self, *kinds: str) -> list[int]:
        numbers = []
        while (first := self.queue.first(kinds)) is not None:
            numbers.append(first.number)
            self.remove(first)
        return numbers


def test_the_order() -> None:
    queued = Queued()
    for facts in (
        handoff(1, priority=0),
        handoff(2),
        handoff(3),
        handoff(4, orphaned=True),
        handoff(5, priority=9),
        handoff(6, priority=0, orphaned=True),
    ):
        queued.put(facts)
    assert queued.drain("work") == [5, 4, 2, 3, 6, 1]


def test_of_several_kinds_and_of_none() -> None:
    queued = Queued()
    for facts in (handoff(1, kind="a"), handoff(2, kind="b"), handoff(3, kind="a")):
        queued.put(facts)
    assert queued.queue.first([]) is None
    assert queued.queue.first(["c"]) is None
    assert queued.drain("b", "a") == [1, 2, 3]


def test_looking_takes_nothing() -> None:
    queued = Queued()
    one = queued.put(handoff(1))
    assert queued.queue.first(["work"]) is queued.queue.first(["work"]) is one
    assert queued.queue.holds(one)
    queued.remove(one)
    assert not queued.queue.holds(one)


def test_one_that_comes_back_another_way_stands_in_its_new_place() -> None:
    queued = Queued()
    queued.put(handoff(1))
    two = queued.put(handoff(2))
    queued.put(replace(two, status=ORPHANED))
    assert queued.drain("work") == [2, 1]


def test_one_that_goes_and_comes_again_and_again_is_kept_once() -> None:
    queued = Queued()
    one = handoff(1)
    for _ in range(1_000):
        queued.put(one)
        queued.queue.remove(one)
    queued.put(one)
    queued.put(handoff(2))
    assert queued.drain("work") == [1, 2]


def test_what_has_gone_leaves_nothing_behind() -> None:
    queued = Queued()
    keeper = queued.put(handoff(0, priority=0))
    for number in range(1, 10_000):
        queued.remove(queued.put(handoff(number, kind=f"k{number % 7}", priority=number % 10)))
    assert queued.queue.first(["work"]) is keeper
    queued.remove(keeper)
    assert queued.queue._kinds == {}


def test_many_added_at_once_stand_in_their_order_among_those_that_were_there() -> None:
    queued = Queued()
    queued.put(handoff(700))
    many = [handoff(number, kind="ab"[number % 2], priority=number % 3) for number in range(1, 700)]
    many += [handoff(number, kind="work", orphaned=number % 2 == 1) for number in range(701, 710)]
    queued.facts.update({facts.id: facts for facts in many})
    queued.queue.add_all(many)
    expected = [facts.number for facts in sorted(queued.facts.values(), key=order)]
    assert queued.drain("a", "b", "work") == expected


def test_random_comings_and_goings_keep_the_order(rng: random.Random) -> None:
    for _ in range(50):
        queued = Queued()
        for _ in range(200):
            if queued.facts and rng.random() < 0.4:
                queued.remove(rng.choice(list(queued.facts.values())))
            else:
                facts = handoff(rng.randrange(30), priority=rng.randrange(3), orphaned=rng.random() < 0.5)
                queued.put(replace(facts, kind="abc"[facts.number % 3]))
            expected = min(queued.facts.values(), key=order, default=None)
            assert queued.queue.first("abc") == expected
