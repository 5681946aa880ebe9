"""Child processes of `dhp demo` and `dhp chaos`: started in sessions of their own, heard line by line, ended whatever happens.

Owns their lives and their output, and a `dhpd` among them. Does not know what they are for.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

_ENDS_WITHIN_S = 5.0

Event = dict[str, Any]


class ChildFailed(Exception):
    """A child process ended before it said what was waited for; says where its output is."""


class Child:
    """A running process, and every line that it has said so far.

    A line that is a JSON object with `event` is that event; another one is `{"event": "said", "line": …}`.
    A thread listens rather than a transport of the loop, which would kill a process that is to live on.
    """

    def __init__(self, name: str, process: subprocess.Popen[bytes], error_log: Path) -> None:
        self.name = name
        self.events: list[Event] = []
        self._process = process
        self.error_log = error_log
        self._loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[None]] = []
        self._exit_code: int | None = None
        threading.Thread(target=self._listen, name=f"listening to {name}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether nobody has heard of its end yet."""
        return self._exit_code is None

    def has_said(self, event: str) -> bool:
        """Whether there was an event of that name."""
        return any(said["event"] == event for said in self.events)

    async def wait_for(self, event: str) -> Event:
        """The first event of that name; raises `ChildFailed` if the process ends without having said it."""
        while True:
            found = next((said for said in self.events if said["event"] == event), None)
            if found is not None:
                return found
            if self._exit_code is not None:
                ending = _ending(self._exit_code)
                raise ChildFailed(f"{self.name} ended ({ending}) before it was {event}: see {self.error_log}.")
            await self._news()

    async def ended(self) -> int:
        """Waits until the process is gone and all it said is in `events`; its exit code, negative for a signal."""
        while self._exit_code is None:
            await self._news()
        return self._exit_code

    def send(self, number: signal.Signals) -> None:
        """Sends a signal; nothing happens if the process is gone."""
        self._process.send_signal(number)

    async def end_by_input(self) -> None:
        """Closes its standard input, and waits for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self.ended()

    async def stop(self) -> None:
        """Ends it by SIGTERM; by SIGKILL after five seconds."""
        self.send(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.ended(), _ENDS_WITHIN_S)
        except TimeoutError:
            self.send(signal.SIGKILL)
            await self.ended()

    async def _news(self) -> None:
        news = self._loop.create_future()
        self._waiting.append(news)
        try:
            await news
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(news)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody wants to hear of it any more.
            for line in self._process.stdout:
                self._loop.call_soon_threadsafe(self._heard, line)
            self._loop.call_soon_threadsafe(self._gone, self._process.wait())

    def _heard(self, line: bytes) -> None:
        self.events.append(_event_of(line.decode(errors="replace").strip()))
        self._wake()

    def _gone(self, exit_code: int) -> None:
        self._exit_code = exit_code
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for news in waiting:
            if not news.done():
                news.set_result(None)


class Children:
    """Starts `python -m …` processes; at the end of the block all but those let go are ended, the latest first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[Child] = []

    def start(self, name: str, module: str, *arguments: str) -> Child:
        """Starts `module`; what it writes to standard error goes to NAME.log in the folder.

        A daemon among them is private: what `DHPD_*` says to others isn't said to it.
        """
        error_log = self._folder / f"{name}.log"
        with error_log.open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd="/",  # `-m` looks for modules there first, and the user's own folder may hold anything.
                env={name: value for name, value in os.environ.items() if not name.startswith("DHPD_")},
                start_new_session=True,  # Ctrl-C is for whoever starts them, who then ends them in order.
            )
        child = Child(name, process, error_log)
        self._running.append(child)
        return child

    async def start_daemon(self, data: Path, *listen: str) -> tuple[Child, Sequence[str]]:
        """A `dhpd` on the directory `data`, ready, and its addresses as the client takes them. Raises `ChildFailed`."""
        child = self.start(
            "dhpd", "dhpd", "--data", str(data), *(word for place in listen for word in ("--listen", place))
        )
        line = (await child.wait_for("said"))["line"]
        words = line.split()
        if words[:2] != ["dhpd", "ready"]:
            raise ChildFailed(f"dhpd said {line!r} instead of its address: see {self._folder / 'dhpd.log'}.")
        return child, words[2:]

    def let_go(self, child: Child) -> None:
        """The child outlives the block."""
        self._running.remove(child)

    async def __aenter__(self) -> "Children":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for child in reversed(self._running):
                if child.alive:
                    await child.stop()
        finally:  # A second Ctrl-C ends the waiting, but leaves nobody behind.
            for child in self._running:
                child.send(signal.SIGKILL)


def _event_of(line: str) -> Event:
    with contextlib.suppress(ValueError):
        said = json.loads(line)
        if isinstance(said, dict) and isinstance(said.get("event"), str):
            return said
    return {"event": "said", "line": line}


def _ending(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
