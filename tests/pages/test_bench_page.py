"""The benchmark's page names commands that there are. They take minutes, so what they say is read here, and not carried out."""

import shlex

from bench.run import IN_ROUNDS, ONCE, read_arguments

from .blocks import block

PARTS = len(IN_ROUNDS) + len(ONCE)


def test_every_command_is_understood() -> None:
    commands = block("bench/README.md", "The benchmark", "").splitlines()
    understood = []
    for command in commands:
        make, target, *words = shlex.split(command, comments=True)
        assert (make, target) == ("make", "bench")
        options = read_arguments(shlex.split(" ".join(words).removeprefix("ARGS=")))
        understood.append((options.quick, options.rounds, len(options.only)))
    assert understood == [(False, 3, PARTS), (True, 1, PARTS), (False, 1, 2)]
