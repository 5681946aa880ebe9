"""Those who are hurt: the daemon, the workers, and the network between them.

Owns their processes, and what each fault does to them. When, and to whom, is the plan's.
"""

import asyncio
import signal
from pathlib import Path

from ..processes import Child, ChildFailed, Children
from .books import FAULTS, WORKERS, Fault, Writer
from .network import Line
from .plan import KILL_DAEMON, KILL_WORKER, PAUSE_DAEMON, PAUSE_WORKER, Act
from .telling import Telling

SOMEONE_WITHIN_S = 2.0
LOOK_EVERY_S = 0.05

_TOWARDS = {
    "cut": "the network of {whom} is cut for {seconds}",
    "hold requests": "what {whom} sends is held back for {seconds}",
    "hold answers": "what is sent to {whom} is held back for {seconds}",
    "one byte at a time": "the network of {whom} passes one byte at a time for {seconds}",
    "delay": "the network of {whom} is slow for {seconds}",
}


class Stage:
    """The daemon is started first, then the workers. `do` carries out one fault and returns when it is over."""

    def __init__(self, children: Children, folder: Path, socket: Path, workers: int, telling: Telling) -> None:
        self.address = f"unix:{socket}"
        self._children = children
        self._folder = folder
        self._telling = telling
        self._faults = Writer(folder / FAULTS)
        self._lines = [Line(str(socket)) for _ in range(workers)]
        self._crew: list[Child] = []
        self._started = [0] * workers
        self._stopped: set[Child] = set()
        self._daemon: Child | None = None
        self._one_at_a_time = asyncio.Lock()
        """For what is done to the daemon."""

    async def start_daemon(self) -> int:
        """On the data that is there; its pid."""
        self._daemon, _ = await self._children.start_daemon(self._folder / "store", self.address)
        return self._daemon.pid

    async def start_workers(self) -> None:
        for line in self._lines:
            await line.open()
        self._crew = [self._new_worker(number) for number in range(len(self._lines))]

    async def do(self, act: Act) -> None:
        if act.kind == KILL_WORKER:
            await self._kill_worker(act)
        elif act.kind == PAUSE_WORKER:
            await self._pause_worker(act)
        elif act.kind == KILL_DAEMON:
            await self._kill_daemon()
        elif act.kind == PAUSE_DAEMON:
            await self._pause_daemon(act)
        else:
            await self._hurt_network(act)

    async def restart_daemon(self) -> None:
        """kill -9, and a start on the same data."""
        async with self._one_at_a_time:
            assert self._daemon is not None
            _check_alive(self._daemon)
            self._daemon.send(signal.SIGKILL)
            await self._daemon.ended()
            await self.start_daemon()

    def check_workers(self) -> None:
        """Raises `ChildFailed` if one of them has ended by itself."""
        for worker in self._crew:
            _check_alive(worker)

    async def dismiss_workers(self) -> None:
        """They go in order, and come to no harm any more."""
        crew, self._crew = self._crew, []
        for worker in crew:
            await worker.stop()

    async def close(self) -> None:
        """The workers go, and the network; the daemon stays."""
        await self.dismiss_workers()
        for line in self._lines:
            line.close()
        self._faults.close()

    def _new_worker(self, number: int) -> Child:
        self._started[number] += 1
        name = f"worker-{number + 1}.{self._started[number]}"
        book = self._folder / WORKERS / f"{name}.jsonl"
        return self._children.start(name, "dhp_client.chaos.worker", self._lines[number].address, name, str(book))

    async def _kill_worker(self, act: Act) -> None:
        number, killed = await self._someone(act)
        killed.send(signal.SIGKILL)
        self._crew[number] = self._new_worker(number)
        self._note(KILL_WORKER, killed.name, f"kill -9 of {killed.name} (process {killed.pid})")

    async def _someone(self, act: Act) -> tuple[int, Child]:
        """The first from there on that is at work, soon: one that is still starting has nothing to lose.

        Raises `ChildFailed` where it has ended by itself.
        """
        crew = len(self._crew)
        numbers = [(act.worker + offset) % crew for offset in range(crew)]
        until_s = self._telling.seconds + SOMEONE_WITHIN_S
        while not any(map(self._at_work, self._crew)) and self._telling.seconds < until_s:
            await asyncio.sleep(LOOK_EVERY_S)
        number = next((number for number in numbers if self._at_work(self._crew[number])), act.worker)
        _check_alive(self._crew[number])
        return number, self._crew[number]

    def _at_work(self, worker: Child) -> bool:
        """One that is stopped isn't: it is to wake up."""
        return worker.has_said("claimed") and worker not in self._stopped

    async def _kill_daemon(self) -> None:
        assert self._daemon is not None
        before = self._daemon.pid
        await self.restart_daemon()
        text = f"kill -9 of the daemon (process {before}), started again as {self._daemon.pid}"
        self._note(KILL_DAEMON, "daemon", text)

    async def _pause_worker(self, act: Act) -> None:
        _, worker = await self._someone(act)
        text = f"{worker.name} is stopped for {_seconds(act)}, longer than its lease"
        await self._paused(worker, act, PAUSE_WORKER, worker.name, text)

    async def _pause_daemon(self, act: Act) -> None:
        async with self._one_at_a_time:
            assert self._daemon is not None
            text = f"the daemon is stopped for {_seconds(act)}"
            await self._paused(self._daemon, act, PAUSE_DAEMON, "daemon", text)

    async def _paused(self, child: Child, act: Act, kind: str, whom: str, text: str) -> None:
        child.send(signal.SIGSTOP)
        self._stopped.add(child)
        self._note(kind, whom, text, act.lasts_ms)
        try:
            await asyncio.sleep(act.lasts_ms / 1000)
        finally:
            child.send(signal.SIGCONT)
            self._stopped.discard(child)

    async def _hurt_network(self, act: Act) -> None:
        line, whom = self._lines[act.worker], f"worker-{act.worker + 1}"
        line.hurt(act.kind)
        self._note(act.kind, whom, _TOWARDS[act.kind].format(whom=whom, seconds=_seconds(act)), act.lasts_ms)
        try:
            await asyncio.sleep(act.lasts_ms / 1000)
        finally:
            line.heal(act.kind, releases=act.releases)

    def _note(self, kind: str, whom: str, text: str, lasts_ms: float = 0.0) -> None:
        self._faults.write(Fault(kind=kind, whom=whom, lasted_ms=lasts_ms), synced=False)
        self._telling.at_moment(text)


def _check_alive(child: Child) -> None:
    if not child.alive:
        raise ChildFailed(f"{child.name} has ended by itself: see {child.error_log}.")


def _seconds(act: Act) -> str:
    return f"{act.lasts_ms / 1000:.1f} s"
