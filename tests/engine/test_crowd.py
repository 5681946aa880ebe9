"""A crowd: first come, first served, over all connections; and all of one connection leave at a stroke."""

import random

from dhpd.engine.crowd import Crowd


class Someone:
    def __init__(self, number: int, connection: int) -> None:
        self.number = number
        self.connection = connection


def test_the_first_of_all_comes_first_whatever_the_connection() -> None:
    crowd: Crowd[Someone] = Crowd()
    people = [Someone(number, connection) for number, connection in ((4, 1), (2, 2), (3, 1), (1, 2))]
    for someone in people:
        crowd.add(someone)
    assert [someone.number for someone in crowd] == [1, 2, 3, 4]
    assert crowd.first() is people[3]
    crowd.leave(2)
    assert crowd.first() is people[2]
    crowd.leave(1)
    assert crowd.first() is None
    assert not crowd


def test_it_says_the_same_as_a_sorted_list_whatever_happens(rng: random.Random) -> None:
    for _ in range(30):
        crowd: Crowd[Someone] = Crowd()
        standing: dict[int, Someone] = {}
        away: list[Someone] = []
        for number in range(1, 300):
            draw = rng.random()
            if draw < 0.45 or not standing:
                someone = (
                    away.pop(rng.randrange(len(away))) if away and draw < 0.1 else Someone(number, rng.randrange(5))
                )
                crowd.add(someone)
                standing[someone.number] = someone
            elif draw < 0.95:
                first = draw < 0.7
                someone = standing.pop(min(standing) if first else rng.choice(list(standing)))
                crowd.remove(someone)
                away.append(someone)
            else:
                connection = rng.randrange(5)
                crowd.leave(connection)
                standing = {n: one for n, one in standing.items() if one.connection != connection}
            assert crowd.first() is (standing[min(standing)] if standing else None)
            assert [one.number for one in crowd] == sorted(standing)
            assert (len(crowd), bool(crowd)) == (len(standing), bool(standing))


def test_coming_and_going_behind_one_who_stays_leaves_nothing_behind() -> None:
    crowd: Crowd[Someone] = Crowd()
    crowd.add(Someone(0, 0))
    for number in range(1, 10_000):
        someone = Someone(number, 1)
        crowd.add(someone)
        crowd.remove(someone)
    assert len(crowd._fronts) <= 128
