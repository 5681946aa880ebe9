"""Who waits holds up nobody, is served first come, first served, and is passed over once it has gone."""

from tests.daemon.conftest import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient
from tests.support.worker_process import WorkerProcess

LONG_MS = 600_000


def wait_for_waiting(client: WireClient, claims: int) -> None:
    """Returns once so many claims wait."""
    while client.call("stats")["waiting_claims"] != claims:
        pass


def test_a_waiting_claim_does_not_hold_up_the_heartbeats_behind_it(client: WireClient, connect: Connect) -> None:
    handoff = client.dispatch()
    fence = client.claim(ttl_ms=500)["fence"]
    other = connect()
    other.call("watch", handoff=handoff)
    waiting = client.send("claim", worker="w", kinds=["more"], wait_ms=LONG_MS)
    result = client.send("result", handoff=handoff, wait_ms=LONG_MS)
    # Beats for longer than the lease would last without them: as long as another one lasts, twice over.
    for _ in range(2):
        shorter = other.dispatch("shorter", key=str(_))
        other.claim("shorter", ttl_ms=500)
        while other.status(shorter)["status"] == "running":
            assert client.call("heartbeat", leases=[{"handoff": handoff, "fence": fence}])["renewed"] == [handoff]
    client.call("complete", handoff=handoff, fence=fence, result="done")
    assert client.result(result)["result"] == "done"
    assert not client.answered(waiting)


def test_of_two_hundred_waiting_claims_the_first_gets_the_handoff(connect: Connect) -> None:
    waiters = [connect() for _ in range(200)]
    asked = []
    for number, waiter in enumerate(waiters):
        asked.append(waiter.send("claim", worker=f"w{number}", kinds=["other", "work"], wait_ms=LONG_MS))
        waiter.pump()  # In this order.
    client = connect()
    assert client.call("stats")["waiting_claims"] == 200
    handoff = client.dispatch()
    assert waiters[0].result(asked[0])["handoff"] == handoff
    assert client.status(handoff)["holder"] == "w0"
    assert client.call("stats")["waiting_claims"] == 199
    another = client.dispatch(key="another")
    assert waiters[1].result(asked[1])["handoff"] == another


def test_a_waiter_whose_process_was_killed_is_passed_over(daemon: DaemonProcess, connect: Connect) -> None:
    client, second = connect(), connect()
    with WorkerProcess(daemon.tcp) as worker:
        worker.client.send("claim", worker="killed", kinds=["work"], wait_ms=LONG_MS)
        wait_for_waiting(client, 1)
        asked = second.send("claim", worker="second", kinds=["work"], wait_ms=LONG_MS)
        wait_for_waiting(client, 2)
        worker.kill()
    wait_for_waiting(client, 1)
    handoff = client.dispatch()
    granted = second.result(asked)
    assert (granted["handoff"], granted["fence"], granted["was"]) == (handoff, 1, "pending")


def test_a_waiter_whose_connection_was_reset_is_passed_over(connect: Connect) -> None:
    client, first, second = connect(), connect(), connect()
    first.send("claim", worker="first", kinds=["work"], wait_ms=LONG_MS)
    wait_for_waiting(client, 1)
    asked = second.send("claim", worker="second", kinds=["work"], wait_ms=LONG_MS)
    wait_for_waiting(client, 2)
    first.reset()
    wait_for_waiting(client, 1)
    client.dispatch()
    assert second.result(asked)["fence"] == 1


def test_a_wait_ends_empty_when_its_time_is_over(client: WireClient) -> None:
    handoff = client.dispatch()
    claimed = client.claim()
    empty = client.send("claim", worker="w", kinds=["none"], wait_ms=50)
    running = client.send("result", handoff=handoff, wait_ms=50)
    assert client.result(empty)["handoff"] is None
    assert client.result(running)["status"] == "running"
    assert client.refused("claim", worker="w", handoff=handoff).code == "already_claimed"
    assert client.result(client.send("claim", worker="w", handoff=handoff, wait_ms=50))["handoff"] is None
    assert claimed["fence"] == 1


def test_a_claim_of_one_handoff_waits_until_it_is_free(client: WireClient, connect: Connect) -> None:
    handoff, other = client.dispatch(), connect()
    held = client.claim()
    waiting = other.send("claim", worker="next", handoff=handoff, wait_ms=LONG_MS)
    other.pump()
    client.call("release", handoff=handoff, fence=held["fence"])
    granted = other.result(waiting)
    assert (granted["fence"], granted["was"]) == (3, "pending")
    again = client.send("claim", worker="after", handoff=handoff, wait_ms=LONG_MS)
    client.pump()
    other.call("complete", handoff=handoff, fence=3, result=1)
    refusal = client.reply(again)["error"]
    assert (refusal["code"], refusal["retry"]) == ("not_claimable", "no")


def test_a_waiting_claim_gets_delayed_work_when_its_time_has_come(client: WireClient) -> None:
    waiting = client.send("claim", worker="w", kinds=["work"], wait_ms=LONG_MS)
    handoff = client.dispatch(delay_ms=100)
    assert client.result(waiting)["handoff"] == handoff


def test_more_than_a_connection_may_have_waiting_is_refused_and_the_rest_goes_on(client: WireClient) -> None:
    asked = [client.send("claim", worker="w", kinds=["none"], wait_ms=LONG_MS) for _ in range(1_500)]
    handoff = client.dispatch()
    fence = client.claim()["fence"]
    assert client.call("heartbeat", leases=[{"handoff": handoff, "fence": fence}])["renewed"] == [handoff]
    assert client.call("stats")["waiting_claims"] == 1_024
    refused = [client.reply(request)["error"] for request in asked if client.answered(request)]
    assert [error["code"] for error in refused] == ["overloaded"] * 476
    assert {error["retry"] for error in refused} == {"later"}
