"""A worker made of the real client, async or sync, in a process of its own: it does what a test tells it, and may be hurt.

Owns the process and the lines that test and worker exchange. `WorkerProcess` is the same for raw frames.
"""

import asyncio
import itertools
import json
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .own_process import OwnProcess

ROOT = Path(__file__).parents[2]
ANSWER_WITHIN_S = 30.0


class ClientWorker(OwnProcess):
    """`with ClientWorker(daemon.tcp, "sync") as worker:`; `worker.call("claim", kinds="work")` claims, and so on.

    `call` gives the outcome as JSON: what the call came to, or `{"error": NAME, "why": …}`. Besides the methods of a task there
    are "claim", "write" and "serve", see below. `wrapper` is a command that becomes the one that follows it.
    """

    def __init__(self, address: str, flavour: str = "async", *, wrapper: Sequence[str] = ()) -> None:
        command = [*wrapper, sys.executable, "-m", __name__, address, flavour]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        self._buffer = b""

    def __enter__(self) -> "ClientWorker":
        assert self.told() == "ready"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def tell(self, name: str, **arguments: Any) -> None:
        """Says what is to be done next; what it comes to is had with `told`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
        self._process.stdin.flush()

    def told(self) -> Any:
        """The next thing that the worker says."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                assert selector.select(ANSWER_WITHIN_S), "the worker says nothing"
                piece = os.read(self._process.stdout.fileno(), 65_536)
                assert piece, f"the worker has ended: {self._process.wait()}"
                self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def call(self, name: str, **arguments: Any) -> Any:
        """Has it done and gives what it came to."""
        self.tell(name, **arguments)
        return self.told()


class _Told:
    """What runs in the process: carries out one line after the other. `finish` waits for what the client returned."""

    def __init__(self, client: Any, finish: Callable[[Any], Any]) -> None:
        self._client = client
        self._finish = finish
        self._task: Any = None

    def obey(self) -> None:
        say("ready")
        for line in sys.stdin:
            name, arguments = json.loads(line)
            try:
                told = getattr(self, name, self._of_task(name))(**arguments)
            except Exception as error:
                told = {"error": type(error).__name__, "why": getattr(error, "details", {}).get("why", str(error))}
            say(told)

    def claim(self, **arguments: Any) -> Any:
        """Takes work, which the next lines are about: its id, fence and state, or null."""
        self._task = self._finish(self._client.claim(**arguments))
        if not self._task:
            return None
        return {"handoff": self._task.handoff, "fence": self._task.fence, "state": self._task.state}

    def write(self, times: int | None = None) -> Any:
        """Saves so many checkpoints, each with the writer's fence, one after the other; without `times` until one is refused."""
        number = 0
        for number in itertools.count(1) if times is None else range(1, times + 1):
            self._finish(self._task.checkpoint({"by": self._task.fence, "n": number}))
        return number

    def serve(self, kind: str, checkpoints: int) -> Any:
        """Works through all there is of `kind`, saying of each acknowledged checkpoint and result that it was."""
        while self.claim(kinds=kind, wait_ms=1_000) is not None:
            for number in range(checkpoints):
                saved = self._finish(self._task.checkpoint({"n": number}))
                say(["checkpoint", self._task.handoff, saved.seq, saved.sha256])
            self._finish(self._task.complete(self._task.inputs))
            say(["result", self._task.handoff, self._task.inputs])
        return "nothing left"

    def _of_task(self, name: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            reply = self._finish(getattr(self._task, name)(**arguments))
            return {member: getattr(reply, member) for member in reply.__struct_fields__}

        return call


def say(told: Any) -> None:
    print(json.dumps(told), flush=True)


def main(address: str, flavour: str) -> None:
    import dhp_client  # The test's process has no use for it.

    if flavour == "sync":
        with dhp_client.sync.connect(address) as client:
            _Told(client, lambda done: done).obey()
        return
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def finish(asked: Any) -> Any:
        async def ask() -> Any:
            return await asked

        return asyncio.run_coroutine_threadsafe(ask(), loop).result()

    _Told(finish(dhp_client.connect(address)), finish).obey()


if __name__ == "__main__":
    main(*sys.argv[1:])
