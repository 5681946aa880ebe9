"""Capabilities: what the intent names is granted, everything else refused, and both are on record."""

import itertools
from typing import Any

import pytest
from msgspec import Raw

from dhp_protocol.errors import InvalidRequest, LeaseLost, StoreUnavailable
from dhp_protocol.messages import Cancel, CheckCapability, Complete, History, Release
from dhpd.engine.capabilities import MAX_DOMAINS, MAX_RESOURCES, capabilities_of, granted
from dhpd.engine.effect_operations import MAX_CHECKS_KEPT
from tests.support.engine_world import TTL_MS, World

SET = Raw(b'{"fs":["/data/*","/etc/hosts"],"net":["*"],"none":[]}')


def check(world: World, handoff: str, fence: int, domain: str, resource: str) -> bool:
    asked = CheckCapability(handoff=handoff, fence=fence, domain=domain, resource=resource)
    said: bool = world.run(asked).granted
    return said


def checks(world: World, handoff: str) -> list[tuple[str, str, bool]]:
    """What is on record."""
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = world.run(History(handoff=handoff, after=after))
        found += page.records
        after = page.next
    return [(r["domain"], r["resource"], r["granted"]) for r in found if r["type"] == "capability_checked"]


@pytest.mark.parametrize(
    ("domain", "resource", "said"),
    [
        ("fs", "/etc/hosts", True),
        ("fs", "/etc/hosts2", False),
        ("fs", "/etc/host", False),
        ("fs", "/data/", True),
        ("fs", "/data/x/y", True),
        ("fs", "/data", False),
        ("fs", "/x/data/y", False),
        ("fs", "https://elsewhere.example/?/data/", False),
        ("fs", "/DATA/x", False),
        ("fs", "/data/*", True),
        ("fs", "*", False),
        ("fs", "/etc/*", False),
        ("net", "anything at all", True),
        ("net", "*", True),
        ("none", "x", False),
        ("other", "/etc/hosts", False),
        ("FS", "/etc/hosts", False),
    ],
)
def test_what_is_named_is_granted_and_nothing_else(domain: str, resource: str, said: bool) -> None:
    world = World()
    handoff, fence = world.held(capabilities=SET)
    assert check(world, handoff, fence, domain, resource) is said
    assert checks(world, handoff) == [(domain, resource, said)]


def test_without_capabilities_nothing_is_granted() -> None:
    world = World()
    handoff, fence = world.held()
    assert check(world, handoff, fence, "net", "x") is False
    assert checks(world, handoff) == [("net", "x", False)]


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b'"*"',
        b'{"net":"*"}',
        b'{"net":[1]}',
        b'{"net":[null]}',
        b'{"net":{"x":true}}',
        b'{"net":[""]}',
        b'{"":["x"]}',
        b'{"net":["*x"]}',
        b'{"net":["a*b"]}',
        b'{"net":["**"]}',
        b'{"net":["' + b"x" * 1025 + b'"]}',
        b'{"' + b"d" * 257 + b'":["x"]}',
        b"{" + b",".join(b'"d%d":["x"]' % number for number in range(MAX_DOMAINS + 1)) + b"}",
        b'{"net":[' + b",".join(b'"r%d"' % number for number in range(MAX_RESOURCES + 1)) + b"]}",
    ],
)
def test_other_forms_are_refused_at_dispatch(text: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        capabilities_of(Raw(text))
    assert caught.value.details["member"].startswith("capabilities")


def test_a_malformed_set_creates_no_handoff() -> None:
    world = World()
    with pytest.raises(InvalidRequest):
        world.dispatch(capabilities=Raw(b'{"net":"*"}'))
    assert len(world.engine.ledger) == 0


def test_the_largest_set_is_taken() -> None:
    text = b'{"net":[' + b",".join(b'"r%d*"' % number for number in range(MAX_RESOURCES)) + b"]}"
    found = capabilities_of(Raw(text))
    assert granted(found, "net", f"r{MAX_RESOURCES - 1}x")
    assert not granted(found, "net", "s")


def test_capabilities_are_part_of_the_identity() -> None:
    world = World()
    inputs = Raw(b"{}")
    ids = {world.dispatch(inputs=inputs, capabilities=Raw(text)) for text in (b"{}", b'{"a":[]}', b'{"a":["*"]}')}
    assert len(ids) == 3


def test_a_grant_is_on_record_once_per_fence_and_a_refusal_each_time() -> None:
    world = World()
    handoff, fence = world.held(capabilities=SET)
    for _ in range(3):
        assert check(world, handoff, fence, "net", "x")
        assert not check(world, handoff, fence, "fs", "/")
    first = [("net", "x", True), *[("fs", "/", False)] * 3]
    assert checks(world, handoff) == first
    world.run(Release(handoff=handoff, fence=fence))
    second = world.claim(handoff)
    check(world, handoff, second, "net", "x")
    check(world, handoff, second, "fs", "/")
    assert checks(world, handoff) == [*first, ("net", "x", True), ("fs", "/", False)]


def test_every_distinct_grant_is_on_record_however_many_there_are() -> None:
    world = World()
    handoff, fence = world.held(capabilities=SET)
    asked = [("net", f"{number}", True) for number in range(MAX_CHECKS_KEPT + 5)]
    for domain, resource, _ in asked:
        assert check(world, handoff, fence, domain, resource)
    assert checks(world, handoff) == asked
    check(world, handoff, fence, *asked[0][:2])  # Still remembered.
    assert checks(world, handoff) == asked
    check(world, handoff, fence, *asked[-1][:2])
    assert checks(world, handoff) == [*asked, asked[-1]]
    lease = world.engine.leases.get(handoff, fence)
    assert lease is not None
    assert len(lease.checked) == MAX_CHECKS_KEPT


def test_a_check_whose_record_was_undone_is_recorded_when_asked_again() -> None:
    world = World()
    handoff, fence = world.held(capabilities=SET)
    asked = [CheckCapability(handoff=handoff, fence=fence, domain=d, resource="x") for d in ("net", "fs")]
    calls = [world.send(request) for request in asked]
    assert [call.answered for call in calls] == [False, False]
    world.fail_commit()
    for call in calls:
        with pytest.raises(StoreUnavailable):
            call.result()
    assert [world.run(request).granted for request in asked] == [True, False]
    assert checks(world, handoff) == [("net", "x", True), ("fs", "x", False)]


@pytest.mark.parametrize(
    ("end", "why"), [("expiry", "expired"), ("release", "released"), ("cancel", "cancelled"), ("complete", "completed")]
)
def test_a_void_fence_is_told_nothing_and_leaves_no_record(end: str, why: str) -> None:
    world = World()
    handoff, fence = world.held(capabilities=SET)
    match end:
        case "expiry":
            world.jump(TTL_MS)
        case "release":
            world.run(Release(handoff=handoff, fence=fence))
        case "cancel":
            world.run(Cancel(handoff=handoff))
        case "complete":
            world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    for domain, resource in itertools.product(("net", "fs"), ("x", "/etc/hosts")):
        with pytest.raises(LeaseLost) as caught:
            check(world, handoff, fence, domain, resource)
        assert caught.value.details["why"] == why
    assert checks(world, handoff) == []


def test_a_check_renews_the_lease_and_moves_no_stall_clock() -> None:
    world = World()
    handoff, fence = world.held(capabilities=SET, budget=Raw(b'{"stall_ms":7000}'))
    world.jump(TTL_MS - 1)
    check(world, handoff, fence, "net", "x")
    world.jump(1_000)
    check(world, handoff, fence, "net", "y")
    world.jump(1)
    with pytest.raises(LeaseLost) as caught:
        check(world, handoff, fence, "net", "z")
    assert caught.value.details["why"] == "stalled"
