"""Streams of bytes, where the limit is small; and that a daemon is well after all of them. `test_points` plays the others."""

from dhp_client.addresses import parse_address
from dhp_client.conform.bench import Target, learn_terms
from dhp_client.conform.catalogue import POINTS
from dhp_client.conform.run import outcomes
from dhp_client.conform.wire import Wire
from tests.protocol.vectors import load, spelled
from tests.support.daemon_process import DaemonProcess


def test_streams_where_the_limit_is_small(small_frames_daemon: DaemonProcess) -> None:
    target = Target(address=parse_address(small_frames_daemon.address))
    streams = [point for point in POINTS if point.name.startswith(("vectors/frames/", "frames/", "hello/max-"))]
    found = list(outcomes(streams, target, learn_terms(target), drains=False, all_points=False))
    assert [outcome for outcome in found if outcome.outcome == "failed"] == []
    small = [case for case in load("frames") if case["max_frame_bytes"] == 8192]
    assert len(small) > 5
    skipped = [outcome for outcome in found if outcome.outcome == "skipped"]
    assert len(skipped) == len(load("frames")) - len(small) + 1, "details fit in no frame either"


def test_every_stream_leaves_the_daemon_well(daemon: DaemonProcess) -> None:
    before = daemon.pid
    address = parse_address(daemon.tcp)
    with Wire(address) as bystander:
        for case in load("frames"):
            with Wire(address) as wire:
                for chunk in case["chunks"]:
                    try:
                        wire.send(spelled(chunk))
                    except OSError:
                        break
        bystander.send(b'{"op":"ping","id":"still here"}\n')
        line = bystander.receive()
    assert line is not None
    assert line.value == {"id": "still here", "ok": True}
    assert (daemon.pid, daemon.alive) == (before, True)
