"""The setting of a measurement: where it may write, what it runs, and for how long.

Owns nothing but the values; `environment` makes what they point to.
"""

from pathlib import Path

from msgspec import Struct


class Unavailable(Exception):
    """Something that a part needs can't be had here. The text says what, and why, for a reader of the table."""


class Setting(Struct, frozen=True):
    """What each part is handed.

    `folder` is an empty directory on a real disk for this part alone. `generator` is the load generator's binary. `python`
    is the interpreter of the benchmark's own environment, with the peers in it. `debian` is where Debian packages were
    unpacked. `seconds` is how long each rate is measured, after `warmup_seconds` that don't count. `quick` asks for
    smaller sizes, to see that all parts work.
    """

    folder: Path
    generator: Path
    python: Path
    debian: Path
    seconds: float = 2.0
    warmup_seconds: float = 0.5
    quick: bool = False
