"""The processes that hold handoffs: started, waited for, and killed.

Owns their lives. What they do is in `holder`, what is measured is their users'.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]


class Holder:
    """`with Holder(address, handoffs) as holder:` holds them all from then on, and is gone afterwards."""

    def __init__(self, address: str, handoffs: Sequence[str], *, ttl_ms: int = 0, manner: str = "idle") -> None:
        command = [sys.executable, "-m", "bench.reliability.holder", address, str(ttl_ms), manner, *handoffs]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> "Holder":
        self.await_held()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def await_held(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == "held\n", f"a holder said {line!r}"

    def kill(self) -> None:
        """kill -9; returns once the signal is on its way."""
        self._process.kill()

    def lost(self) -> list[str]:
        """The handoffs that it was told to have lost; kills it and waits for its end."""
        self.kill()
        said, _ = self._process.communicate()
        return [line.split()[1] for line in said.splitlines() if line.startswith("lost ")]
