"""`drain` stops new claims and dispatches; what is held goes on to its end."""

from tests.daemon.conftest import Connect
from tests.support.wire_client import WireClient


def test_draining_refuses_new_work_and_lets_what_is_held_go_on(client: WireClient, connect: Connect) -> None:
    first, second, third = (client.dispatch(key=key) for key in "abc")
    held = [client.claim(handoff=handoff) for handoff in (first, second, third)]
    waiting = connect()
    by_kind = waiting.send("claim", worker="w", kinds=["work"], wait_ms=600_000)
    by_name = waiting.send("recover", worker="w", handoff=first, wait_ms=600_000)
    result = waiting.send("result", handoff=first, wait_ms=600_000)
    waiting.pump()
    assert client.call("drain")["leases"] == 3
    for request in (by_kind, by_name):
        assert waiting.reply(request)["error"]["code"] == "draining"
    for refusal in (
        client.refused("dispatch", kind="work", inputs={"new": True}),
        client.refused("claim", worker="w", kinds=["work"], wait_ms=600_000),
        client.refused("claim", worker="w", kinds=["work"]),
        client.refused("recover", worker="w", handoff=first),
    ):
        assert (refusal.code, refusal.error["retry"]) == ("draining", "later")
    assert client.call("dispatch", kind="work", inputs={}, key="a")["created"] is False
    assert client.call("health")["status"] == "draining"
    holds = [{"handoff": one["handoff"], "fence": one["fence"]} for one in held]
    assert client.call("heartbeat", leases=holds)["renewed"] == [first, second, third]
    assert client.call("checkpoint", **holds[0], state=1)["seq"] == 1
    client.call("complete", **holds[0], result="done")
    assert waiting.result(result)["result"] == "done"
    client.call("release", **holds[1])
    assert client.call("fail", **holds[2], error={"type": "E"})["status"] == "pending"
    assert client.call("drain")["leases"] == 0
    assert client.call("cancel", handoff=third)["status"] == "cancelled"


def test_nothing_is_granted_while_draining_although_a_lease_ends(client: WireClient, connect: Connect) -> None:
    handoff, watcher = client.dispatch(), connect()
    client.claim(ttl_ms=500)
    watcher.call("watch", handoff=handoff)
    client.call("drain")
    watcher.await_record("orphaned")
    assert client.refused("claim", worker="w", handoff=handoff).code == "draining"
    assert client.status(handoff)["status"] == "orphaned"


def test_a_nonce_is_answered_while_draining(client: WireClient) -> None:
    client.dispatch()
    held = client.claim(nonce="n")
    client.call("drain")
    assert client.claim(nonce="n")["fence"] == held["fence"]
