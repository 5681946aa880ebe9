"""What all connections hold together has a bound, each bound has an answer, and an honest one beside them goes on."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dhpd.config import Config, ConfigError, load_config
from dhpd.server import silence as silence_module
from dhpd.server.memory import BASE_BYTES, TLS_BYTES, bound_bytes
from tests.daemon.conftest import assert_no_mistake
from tests.support.daemon_process import DaemonProcess
from tests.support.in_process_daemon import InProcessDaemon
from tests.support.wire_client import WireClient, frame

KIB, MIB = 1024, 1024 * 1024
LONG_MS = 600_000
HOSTILE_PEERS = 450
"""Without bounds they would have the daemon hold some 200 MB."""
SMALL = {
    "max_frame_bytes": MIB,
    "max_state_bytes": 256 * KIB,
    "max_result_bytes": 256 * KIB,
    "max_intent_bytes": 256 * KIB,
    "max_bundle_bytes": MIB,
    "max_unsent_bytes": 64 * KIB,
    "max_buffered_bytes": 2 * MIB,
    "max_unsent_bytes_in_all": 2 * MIB,
    "max_queued_bytes": 4 * MIB,
    "max_connections": 500,
    "max_waiting_in_all": 4_096,
}


def environment(**settings: int) -> dict[str, str]:
    return {f"DHPD_{name.upper()}": str(value) for name, value in settings.items()}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon with little room."""
    with DaemonProcess(tmp_path / "data", env=environment(**SMALL)) as running:
        yield running
    assert_no_mistake(running)


@pytest.fixture
def honest(small: DaemonProcess) -> Iterator[WireClient]:
    with WireClient(small.tcp) as client:
        yield client


def unfinished(size_bytes: int, *, counted: bool) -> bytes:
    """Almost all of a frame."""
    body = b'{"op":"ping","x":"' + b"x" * size_bytes
    return b"%d %b" % (len(body) + 2, body) if counted else body


def rest_of(*, counted: bool) -> bytes:
    return b'"}\n'


@pytest.mark.parametrize("counted", [True, False])
def test_where_there_is_no_room_the_frame_that_has_stood_still_the_longest_is_skipped(
    small: DaemonProcess, honest: WireClient, counted: bool
) -> None:
    hold = honest.claim(handoff=honest.dispatch(), ttl_ms=LONG_MS)
    write = {"handoff": hold["handoff"], "fence": hold["fence"]}
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(WireClient(small.tcp)) for _ in range(6)]
        for number, peer in enumerate(peers):
            peer.send_bytes(unfinished(450 * KIB, counted=counted))
            while honest.call("stats")["buffered_bytes"] < min(4, number + 1) * 450 * KIB:
                pass
            honest.pump()
        for peer in peers[:2]:
            error = peer.receive()["error"]
            assert (error["code"], error["retry"], error["after_ms"]) == ("overloaded", "later", 1000)
            peer.send_bytes(rest_of(counted=counted))  # The rest is skipped unkept, and the connection goes on.
            peer.pump()
        for seq in range(1, 6):
            assert honest.call("checkpoint", **write, state="x" * 200 * KIB)["seq"] == seq
        stats = honest.call("stats")
        assert stats["buffered_bytes"] <= SMALL["max_buffered_bytes"]
        assert stats["limits_hit"]["frames_overloaded"] >= 2
    while honest.call("stats")["buffered_bytes"]:
        pass


def test_a_frame_that_stands_still_is_answered_and_closed(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", env=environment(frame_within_ms=300)) as daemon:
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(WireClient(daemon.tcp)) for _ in range(4)]
            beginnings = (b"500 {", b'{"op":"ping"', b"5", b"99999999 {")
            for peer, beginning in zip(peers, beginnings, strict=True):
                peer.send_bytes(beginning)
            for peer, beginning in zip(peers, beginnings, strict=True):
                told = [(told["error"]["code"], told["error"]["retry"]) for told in peer.messages_until_closed()]
                too_large = [("frame_too_large", "no")] if beginning[0] == ord("9") else []
                assert told == [*too_large, ("bad_frame", "now")]
        with WireClient(daemon.tcp) as client:
            assert client.call("stats")["limits_hit"]["frames_unfinished"] == 4
    assert_no_mistake(daemon)


def test_a_silent_connection_without_hello_is_told_to_go_and_others_stay(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", env=environment(idle_ms=500)) as daemon, contextlib.ExitStack() as stack:
        silent, greeted, watches, waits, holds = (stack.enter_context(WireClient(daemon.tcp)) for _ in range(5))
        greeted.call("hello")
        watches.call("watch")
        holds.claim(handoff=holds.dispatch(), ttl_ms=LONG_MS)
        waits.send("claim", worker="w", kinds=["none"], wait_ms=LONG_MS)
        again = None
        for _ in range(2):  # The second one has come when the others have been silent for long.
            (told,) = (again or silent).messages_until_closed()
            assert (told["error"]["code"], told["error"]["retry"]) == ("overloaded", "now")
            again = stack.enter_context(WireClient(daemon.tcp))
        for peer in (greeted, watches, waits, holds):
            peer.pump()
        assert greeted.call("stats")["limits_hit"]["connections_idle"] >= 2
    assert_no_mistake(daemon)


def test_silent_strangers_keep_nobody_out_and_whoever_has_something_open_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence_module, "SPARED_S", 0.0)
    with InProcessDaemon(tmp_path, max_connections=4) as daemon, contextlib.ExitStack() as stack:
        watches, first, second, third = (stack.enter_context(WireClient(daemon.address)) for _ in range(4))
        watches.call("watch")
        for stranger in (first, second, third):
            stranger.call("hello")
        for stranger in (first, second):
            newcomer = stack.enter_context(WireClient(daemon.address))
            newcomer.call("watch")
            (told,) = stranger.messages_until_closed()
            assert (told["error"]["code"], told["error"]["retry"]) == ("overloaded", "now")
        third.call("watch")
        refused = stack.enter_context(WireClient(daemon.address))
        (told,) = refused.messages_until_closed()
        assert (told["error"]["code"], told["error"]["retry"]) == ("overloaded", "later")
        hits = watches.call("stats")["limits_hit"]
        assert (hits["connections_displaced"], hits["connections_refused"]) == (2, 1)


def test_answers_that_nobody_reads_have_a_bound_in_all_and_who_reads_gets_theirs(
    small: DaemonProcess, honest: WireClient
) -> None:
    hold = honest.claim(handoff=honest.dispatch(), ttl_ms=LONG_MS)
    honest.call("checkpoint", handoff=hold["handoff"], fence=hold["fence"], state="x" * 250 * KIB)
    with contextlib.ExitStack() as stack:
        for number in range(60):
            peer = stack.enter_context(WireClient(small.tcp))
            for _ in range(40):
                peer.send("last_checkpoint", handoff=hold["handoff"])
            if number % 10 == 0:
                assert honest.call("last_checkpoint", handoff=hold["handoff"])["checkpoint"]["seq"] == 1
        while not (hits := honest.call("stats")["limits_hit"])["connections_unread"]:
            pass
        assert honest.call("stats")["unsent_bytes"] <= SMALL["max_unsent_bytes_in_all"]
        assert hits["frames_overloaded"] == 0
        assert honest.call("last_checkpoint", handoff=hold["handoff"])["checkpoint"]["seq"] == 1


def test_waits_have_a_bound_in_all(small: DaemonProcess, honest: WireClient) -> None:
    kinds = [f"kind-{number}" for number in range(64)]
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(WireClient(small.tcp)) for _ in range(8)]
        for peer in peers:
            claims = [peer.framed("claim", worker="w", kinds=kinds, wait_ms=LONG_MS) for _ in range(8)]
            peer.send_bytes(b"".join(data for _, data in claims))
            peer.pump()
        assert honest.call("stats")["waiting_claims"] == 64
        refused = honest.refused("claim", worker="w", kinds=["one"], wait_ms=LONG_MS)
        assert (refused.code, refused.error["retry"]) == ("overloaded", "later")
        assert honest.call("claim", worker="w", kinds=["one"])["handoff"] is None
        peers[0].close()
        while honest.call("stats")["waiting_claims"] == 64:
            pass
        waiting = honest.send("claim", worker="w", kinds=["one"], wait_ms=LONG_MS)
        honest.dispatch("one")
        assert honest.result(waiting)["handoff"]


def test_a_crowd_of_hostile_peers_leaves_memory_within_what_is_said(small: DaemonProcess, honest: WireClient) -> None:
    hold = honest.claim(handoff=honest.dispatch(), ttl_ms=LONG_MS)
    write = {"handoff": hold["handoff"], "fence": hold["fence"]}
    honest.call("checkpoint", **write, state="x" * 250 * KIB)
    before_bytes = small.rss_bytes
    config = load_config(None, environment(**SMALL), {})
    asked = frame({"op": "last_checkpoint", "id": 1, "handoff": hold["handoff"]}) * 200
    huge = frame({"op": "heartbeat", "leases": [{"handoff": "a" * 64, "fence": n} for n in range(2**15)]})
    waits = frame({"op": "claim", "worker": "w", "kinds": [f"{n}" * 20 for n in range(64)], "wait_ms": LONG_MS}) * 40
    abuses = [
        b"",
        b"x" * MIB,
        bytes(range(256)) * 4 * KIB,
        huge[: 900 * KIB],
        asked,
        waits,
        b"1000000 {" + b"x" * 960 * KIB,
        b"{" + b"x" * 960 * KIB,
        frame({"op": "dispatch", "kind": "k", "inputs": {"x": "x" * 200 * KIB}}) * 4,
    ]
    most_bytes = 0
    with contextlib.ExitStack() as stack:
        for number in range(HOSTILE_PEERS):
            peer = stack.enter_context(WireClient(small.tcp))
            peer.socket.settimeout(0.1)
            with contextlib.suppress(OSError):
                peer.socket.sendall(abuses[number % len(abuses)])
            if number % len(abuses) == 0:
                honest.pump()
                most_bytes = max(most_bytes, small.rss_bytes)
        stack.enter_context(WireClient(small.tcp)).pump()  # All before it have come.
        while not (stats := honest.call("stats"))["handoffs"]["pending"]:
            most_bytes = max(most_bytes, small.rss_bytes)
        most_bytes = max(most_bytes, small.rss_bytes)
        assert most_bytes - before_bytes <= bound_bytes(config, 2) - BASE_BYTES
        assert stats["memory_bytes"] <= stats["memory_bound_bytes"] == bound_bytes(config, 2)
        assert stats["buffered_bytes"] <= SMALL["max_buffered_bytes"]
        assert honest.call("checkpoint", **write, state="x" * 200 * KIB)["seq"] == 2


def test_the_bound_on_memory_follows_the_settings() -> None:
    plain = bound_bytes(Config(), 0)
    assert plain < 2_000 * MIB
    assert bound_bytes(Config(max_buffered_bytes=256 * MIB), 0) == plain + 2 * 128 * MIB
    assert bound_bytes(Config(), 1_000_000) - plain < 2_500 * MIB
    encrypted = Config(tls_cert="cert.pem", tls_key="key.pem", max_connections=1_000)
    assert bound_bytes(encrypted, 0) == bound_bytes(Config(max_connections=1_000), 0) + 1_000 * TLS_BYTES


def test_more_unsent_bytes_than_the_loop_can_count_are_refused_as_a_setting() -> None:
    """The loop counts in 32 bits, and would fail at each connection."""
    assert load_config(None, environment(max_unsent_bytes=1024 * MIB), {}).max_unsent_bytes == 1024 * MIB
    with pytest.raises(ConfigError, match="max_unsent_bytes"):
        load_config(None, environment(max_unsent_bytes=2048 * MIB), {})


@pytest.mark.parametrize("name", ["max_buffered_bytes", "max_unsent_bytes_in_all"])
def test_room_for_less_than_a_frame_is_refused_as_a_setting(tmp_path: Path, name: str) -> None:
    with pytest.raises(AssertionError, match=name), DaemonProcess(tmp_path / "data", env=environment(**{name: MIB})):
        pass


@pytest.mark.parametrize("name", ["hello_within_ms", "max_ttl_ms", "vanished_ms", "drain_grace_ms", "idle_exit_ms"])
def test_a_time_that_no_timer_takes_is_refused_as_a_setting(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load_config(None, environment(**{name: 2**63}), {})
