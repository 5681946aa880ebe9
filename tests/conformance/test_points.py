"""Every point of `dhp conform`, looked at as a stranger would: a real daemon, over TCP and over a Unix socket."""

from collections import Counter
from collections.abc import Iterator

import pytest

from dhp_client.addresses import parse_address
from dhp_client.conform.bench import OWN_KINDS, TOO_SLOW, Target, learn_terms
from dhp_client.conform.catalogue import POINTS
from dhp_client.conform.run import Outcome, outcomes
from tests.protocol.vectors import load
from tests.support.wire_client import WireClient


class Bystanders:
    """Handoffs of others that are at the daemon: waiting, held, ended, of kinds that the vectors name too."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        kinds = ("k", "summarise", "greet", "pipelined")
        self._ids = [client.dispatch(kind, inputs={"of": "somebody else"}) for kind in kinds]
        self._ids.append(client.dispatch("held", inputs={"of": "somebody else"}))
        client.call("claim", worker="w", handoff=self._ids[-1], ttl_ms=3_600_000, detached=True)
        self.before = self.stand()

    def stand(self) -> list[dict[str, object]]:
        """How they stand, but for what time alone changes."""
        stand = [self._client.status(handoff) for handoff in self._ids]
        return [{name: value for name, value in one.items() if name != "lease_left_ms"} for one in stand]

    def go(self) -> None:
        for handoff in self._ids:
            self._client.call("cancel", handoff=handoff)
            self._client.call("forget", handoff=handoff)


@pytest.fixture(scope="module")
def bystanders(address: str) -> Iterator[Bystanders]:
    with WireClient(address) as client:
        made = Bystanders(client)
        yield made
        made.go()


@pytest.fixture(scope="module")
def found(address: str, bystanders: Bystanders) -> dict[str, Outcome]:
    """All outcomes by name: the points are looked at many at a time, since most of them wait."""
    target = Target(address=parse_address(address))
    told = outcomes(POINTS, target, learn_terms(target), drains=False, all_points=True)
    return {outcome.name: outcome for outcome in told}


@pytest.mark.parametrize("group", list(dict.fromkeys(point.name.rpartition("/")[0] for point in POINTS)))
def test_points_of(group: str, found: dict[str, Outcome]) -> None:
    mine = [outcome for name, outcome in found.items() if name.rpartition("/")[0] == group]
    failed = [f"{one.name}: expected {one.expected}; came {one.came}" for one in mine if one.outcome == "failed"]
    assert mine
    assert not failed, "\n".join(failed)
    assert [one.name for one in mine if one.left] == []


def test_what_is_skipped_is_what_this_daemon_cant_be_asked(found: dict[str, Outcome]) -> None:
    skipped = Counter(
        name.split("/")[0]
        for name, outcome in found.items()
        if outcome.outcome == "skipped" and not str(outcome.reason).startswith(TOO_SLOW)
    )
    small = [case for case in load("frames") if case["max_frame_bytes"] == 8192]
    alone = [case for case in load("dialogues") if "alone" in case]
    tokens = 2
    unseen = sum(point.check is None for point in POINTS)
    assert skipped == {"vectors": len(small) + 2 * len(alone), "hello": tokens, "drain": 1, "unseen": unseen}


def test_others_arent_harmed_and_nothing_is_left_behind(
    found: dict[str, Outcome], bystanders: Bystanders, address: str
) -> None:
    assert found
    assert bystanders.stand() == bystanders.before
    with WireClient(address) as client:
        left = client.call("list", limit=1000)["handoffs"]
        assert [one for one in left if one["kind"].startswith((OWN_KINDS, "k-", "m-"))] == []
        assert client.call("stats")["leases"] == 1, "somebody else's"


def test_names_are_told_once() -> None:
    names = [point.name for point in POINTS]
    assert len(set(names)) == len(names) > 800
    assert all(point.rule and point.section for point in POINTS)
