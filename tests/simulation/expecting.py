"""What a test does with a world that must hold."""

from collections.abc import Iterable

import pytest

from .play import Case
from .shrinking import failure_of, replay_command, shrink


def expect_to_hold(cases: Iterable[Case]) -> None:
    """Plays the worlds. Where one fails, the test fails with the commands that play it again, as it is and shrunk."""
    for case in cases:
        failure = failure_of(case)
        if failure is not None:
            small = shrink(case, failure)
            commands = f"{replay_command(case)}\nshrunk: {replay_command(small.case)}"
            pytest.fail(f"seed {case.seed}: {failure.message}\nreplay: {commands}", pytrace=False)
