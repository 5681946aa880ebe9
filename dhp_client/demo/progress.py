"""How far the work is: a bar on a terminal, plain lines elsewhere.

Owns what is written about progress. Does not own where the facts come from.
"""

from typing import TextIO

_BAR_CHARS = 30
_LINE_EVERY_PAGES = 10


class Progress:
    """Shows `done` of `total` on `out`; `say` puts a line of its own above the bar."""

    def __init__(self, total: int, out: TextIO) -> None:
        self._total = total
        self._out = out
        self._bar = out.isatty()
        self._done = 0
        self._worker = ""
        self._drawn = False

    def say(self, line: str) -> None:
        self._wipe()
        print(line, file=self._out, flush=True)
        if self._worker:
            self._draw()

    def reached(self, done: int, worker: str) -> None:
        """So many are done, the last one by `worker`."""
        self._done, self._worker = done, worker
        if self._bar:
            self._draw()
        elif done % _LINE_EVERY_PAGES == 0 or done == self._total:
            print(self._text(), file=self._out, flush=True)

    def end(self) -> None:
        """Nothing more will be shown; the bar stays as it is."""
        if self._drawn:
            print(file=self._out, flush=True)
            self._drawn = False
        self._worker = ""

    def _draw(self) -> None:
        if not self._bar:
            return
        filled = _BAR_CHARS * self._done // max(self._total, 1)
        self._wipe()
        print(
            f"  [{'#' * filled}{'.' * (_BAR_CHARS - filled)}] {self._text().strip()}",
            end="",
            file=self._out,
            flush=True,
        )
        self._drawn = True

    def _wipe(self) -> None:
        if self._drawn:
            print("\r\x1b[K", end="", file=self._out)
            self._drawn = False

    def _text(self) -> str:
        return f"  {self._done:>{len(str(self._total))}} of {self._total} pages  {self._worker}"
