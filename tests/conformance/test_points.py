"""Every point of `dhp conform`, looked at as a stranger would: a real daemon, over TCP and over a Unix socket."""

from collections import Counter

import pytest

from dhp_client.addresses import parse_address
from dhp_client.conform.bench import OWN_KINDS, TOO_SLOW, Target, learn_terms
from dhp_client.conform.catalogue import POINTS
from dhp_client.conform.run import Outcome, outcomes
from tests.protocol.vectors import load
from tests.support.wire_client import WireClient


@pytest.fixture(scope="module")
def found(address: str) -> dict[str, Outcome]:
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


def test_nothing_is_left_behind(found: dict[str, Outcome], address: str) -> None:
    del found
    with WireClient(address) as client:
        left = client.call("list", limit=1000)["handoffs"]
        assert [one for one in left if one["kind"].startswith((OWN_KINDS, "k-", "m-"))] == []
        assert client.call("stats")["leases"] == 0


def test_names_are_told_once() -> None:
    names = [point.name for point in POINTS]
    assert len(set(names)) == len(names) > 800
    assert all(point.rule and point.section for point in POINTS)
