"""The dialogues: that they hold everything, and those that need a daemon of their own. `test_points` plays the others."""

import itertools
import secrets
from pathlib import Path

import pytest

from dhp_client.addresses import parse_address
from dhp_client.conform.dialogues import Conversation
from dhp_client.conform.wire import Wire
from dhp_protocol.decoding import OPS
from dhp_protocol.errors import ERROR_BY_CODE
from tests.protocol.vectors import Case, load, parameters
from tests.support.daemon_process import DaemonProcess

NOT_SENT = {
    # By no rule of this version.
    "not_primary",
    # Only where tokens are in use.
    "unauthenticated",
    # Only where a disk fails, a queue is full, or the daemon is wrong.
    *("store_unavailable", "overloaded", "internal"),
    # `frames.json` has them.
    *("bad_frame", "frame_too_large"),
}


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "bare"])
@pytest.mark.parametrize("case", [p for p in parameters("dialogues") if "alone" in p.values[0]])
def test_dialogue_with_a_daemon_of_its_own(case: Case, counted: bool, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        address = parse_address(daemon.tcp)
        with Conversation(lambda on: Wire(address), secrets.token_hex(6), counted=counted) as conversation:
            for step in case["steps"]:
                conversation.play(step)


def test_the_dialogues_hold_every_operation_and_every_error_that_can_be_provoked() -> None:
    steps = list(itertools.chain.from_iterable(case["steps"] for case in load("dialogues")))
    good = {step["send"]["op"] for step in steps if "send" in step and step.get("expect", {}).get("ok", True)}
    assert good == OPS
    codes = {step["expect"]["error"]["code"] for step in steps if "error" in step.get("expect", {})}
    assert codes == ERROR_BY_CODE.keys() - NOT_SENT
