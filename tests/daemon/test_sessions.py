"""A session lives while one of its connections does: what that means for its leases, and who hears of it."""

import pytest

from tests.daemon.conftest import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

LONG_MS = 3_600_000


def grace_of_another_has_passed(connect: Connect) -> None:
    """A session that ends now has had its grace: so has every one that ended before."""
    client, goner = connect(), connect(session="another")
    handoff = client.dispatch("another")
    goner.claim("another", ttl_ms=LONG_MS)
    client.call("watch", handoff=handoff)
    goner.close()
    client.await_record("orphaned")


def assert_untouched(client: WireClient, handoff: str) -> None:
    assert [record["type"] for record in client.history(handoff)] == ["dispatched", "claimed"]


def test_hello_tells_the_terms(client: WireClient) -> None:
    reply = client.call("hello", client="test/1", session="mine")
    assert reply["protocol"] == "dhp/1"
    assert reply["session"] == "mine"
    assert reply["roles"] == ["admin"]
    assert reply["lease"] == {
        "ttl_ms": 6_000,
        "heartbeat_ms": 2_000,
        "min_ttl_ms": 500,
        "max_ttl_ms": 3_600_000,
        "disconnect_grace_ms": 250,
    }
    assert reply["limits"]["max_frame_bytes"] == 8 * 1024 * 1024


def test_a_session_left_out_is_made_up_and_differs_each_time(connect: Connect) -> None:
    names = {connect().call("hello")["session"] for _ in range(10)}
    assert len(names) == 10
    assert min(map(len, names)) >= 22


def test_hello_with_the_same_session_within_the_grace_restores_its_leases(
    daemon: DaemonProcess, connect: Connect
) -> None:
    first = connect(session="mine")
    handoff = first.dispatch()
    first.claim(ttl_ms=LONG_MS)
    daemon.pause()  # So that it is back within the grace, however slow this machine is.
    first.close()
    second = connect()
    hello = second.send("hello", session="mine")
    daemon.resume()
    second.result(hello)
    grace_of_another_has_passed(connect)
    assert_untouched(second, handoff)


def test_another_session_restores_nothing(connect: Connect) -> None:
    first = connect(session="mine")
    handoff = first.dispatch()
    first.claim(ttl_ms=LONG_MS)
    other = connect(session="yours")
    other.call("watch", handoff=handoff)
    first.close()
    other.await_record("orphaned")


def test_a_session_lives_while_one_of_its_connections_does(connect: Connect) -> None:
    first, second = connect(session="mine"), connect(session="mine")
    handoff = first.dispatch()
    first.claim(ttl_ms=LONG_MS)
    first.close()
    grace_of_another_has_passed(connect)
    assert_untouched(second, handoff)
    watcher = connect()
    watcher.call("watch", handoff=handoff)
    second.close()
    watcher.await_record("orphaned")


def test_a_half_closed_connection_counts_as_gone(connect: Connect) -> None:
    first, watcher = connect(session="mine"), connect()
    handoff = first.dispatch()
    first.claim(ttl_ms=LONG_MS)
    watcher.call("watch", handoff=handoff)
    first.half_close()
    watcher.await_record("orphaned")


def test_a_later_hello_takes_the_leases_along(connect: Connect) -> None:
    first, second = connect(), connect(session="mine")
    handoff = first.dispatch()
    first.claim(ttl_ms=LONG_MS)
    first.call("hello", session="mine")
    first.close()
    grace_of_another_has_passed(connect)
    assert_untouched(second, handoff)


def test_a_connection_without_hello_is_a_session_of_its_own(client: WireClient, connect: Connect) -> None:
    handoff, watcher = client.dispatch(), connect()
    client.claim(ttl_ms=LONG_MS)
    watcher.call("watch", handoff=handoff)
    client.close()
    watcher.await_record("orphaned")


@pytest.mark.parametrize("named", [False, True])
def test_goodbye_releases_and_costs_no_attempt(connect: Connect, named: bool) -> None:
    client, other = connect(session="mine" if named else None), connect()
    handoff, detached = client.dispatch(), client.dispatch("detached")
    client.claim(ttl_ms=LONG_MS)
    client.claim("detached", ttl_ms=LONG_MS, detached=True)
    waiting = other.send("claim", worker="next", kinds=["work"], wait_ms=600_000)
    client.call("goodbye")
    granted = other.result(waiting)
    assert (granted["was"], granted["fence"]) == ("pending", 3)
    assert other.status(handoff)["failures"] == 0
    released = other.history(handoff)[2]
    assert (released["type"], released["reason"]) == ("released", "goodbye")
    assert other.status(detached)["status"] == "running"


def test_a_restored_session_may_end_again(connect: Connect) -> None:
    first, watcher = connect(session="mine"), connect()
    handoff = first.dispatch()
    first.claim(ttl_ms=LONG_MS)
    watcher.call("watch", handoff=handoff)
    first.close()
    second = connect(session="mine")
    second.close()
    watcher.await_record("orphaned")


# --- events ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def of_session(connect: Connect) -> list[WireClient]:
    """Two connections of one session."""
    return [connect(session="mine"), connect(session="mine", counted=False)]


@pytest.fixture
def bystanders(connect: Connect) -> list[WireClient]:
    """One of another session, and one that has never said hello."""
    return [connect(session="yours"), connect()]


def assert_hear_nothing(clients: list[WireClient]) -> None:
    for client in clients:
        client.pump()
        assert not client.events


def test_every_connection_of_the_session_hears_that_a_lease_is_lost(
    of_session: list[WireClient], bystanders: list[WireClient]
) -> None:
    handoff = bystanders[1].dispatch()
    fence = of_session[0].claim(ttl_ms=500)["fence"]
    expected = {"event": "lease_lost", "handoff": handoff, "fence": fence, "why": "expired", "status": "orphaned"}
    for client in of_session:
        assert client.event() == expected
    assert_hear_nothing(bystanders)


def test_every_connection_of_the_session_hears_that_its_work_was_cancelled(
    of_session: list[WireClient], bystanders: list[WireClient]
) -> None:
    handoff = bystanders[1].dispatch()
    fence = of_session[0].claim()["fence"]
    bystanders[0].call("cancel", handoff=handoff, reason="no longer needed")
    expected = {"event": "cancelled", "handoff": handoff, "fence": fence, "reason": "no longer needed"}
    for client in of_session:
        assert client.event() == expected
    assert_hear_nothing(bystanders)


def test_every_session_hears_that_the_daemon_drains(
    daemon: DaemonProcess, connect: Connect, of_session: list[WireClient], bystanders: list[WireClient]
) -> None:
    bystanders[1].call("drain")
    for client in (*of_session, bystanders[0], connect(session="late")):
        assert client.event()["event"] == "draining"
    assert_hear_nothing([*bystanders[1:], connect()])


def test_a_connection_without_hello_never_hears_an_event(client: WireClient, connect: Connect) -> None:
    expired, cancelled, other = client.dispatch("short"), client.dispatch(), connect()
    client.claim("short", ttl_ms=500)
    client.claim()
    other.call("watch", handoff=expired)
    other.await_record("orphaned")
    other.call("cancel", handoff=cancelled)
    other.call("drain")
    assert_hear_nothing([client])
