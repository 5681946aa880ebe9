"""What one task may cost, and the process that does it."""

from typing import NamedTuple


class Bounds(NamedTuple):
    """Passed to the process when it is started."""

    steps: int = 4_000_000
    """Of judging a result; one to two seconds. The same on every machine, so that a verdict is too."""
    cpu_s: float = 4.0
    wall_s: float = 30.0
    memory_bytes: int = 512 * 1024 * 1024
    slice_s: float = 0.0
    """Of processor time, after which a task is left unfinished and the process goes on (0: never)."""

    def quick(self, slice_s: float) -> "Bounds":
        """Those of a process that leaves whatever takes longer than a slice; what can't be left ends it soon after."""
        return self._replace(slice_s=slice_s, cpu_s=min(self.cpu_s, 5 * slice_s))


class Unfinished(Exception):
    """A task took more than a slice of processor time, and was left."""


class BeyondBounds(Exception):
    """A task was ended because it took more processor time, or more time, than one may."""


class Gone(Exception):
    """The process ended for a reason that need not lie in what it was asked."""
