"""SIGHUP: the token file and the certificates are read again.

Owns that each is taken over whole or stays as it was, that this is over when the service manager is told so, and what is said
of it. Does not own what is wrong with a file (`dhpd.token_file`, `certificates`).
"""

import asyncio
from collections.abc import Callable

from dhpd.systemd.manager import Manager

from .certificates import Certificates
from .clock import monotonic_us
from .tokens import Tokens


class Reloading:
    def __init__(
        self, manager: Manager, tokens: Tokens | None, certificates: Certificates | None, described: Callable[[], str]
    ) -> None:
        """`described` tells how the daemon is."""
        self._manager = manager
        self._described = described
        self._tokens = tokens
        self._certificates = certificates
        self._task: asyncio.Task[None] | None = None
        self._serving = False
        self._again = False
        self.refused: list[str] = []
        """What couldn't be used the last time, a sentence each."""

    def serves(self) -> None:
        """From now on there is somebody to serve, and a start to have told of."""
        self._serving = True
        if self._again:
            self.ask()

    def ask(self) -> None:
        """Begins, or once more when what is under way is done: a file may have changed since it was read."""
        self._again = True
        if self._serving and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._again:
            self._again = False
            self._manager.reloading(monotonic_us())
            refused = []
            if self._tokens is not None:
                refused.append(await self._tokens.reload())
            if self._certificates is not None:
                refused.append(await asyncio.to_thread(self._certificates.reload))
            self.refused = [sentence for sentence in refused if sentence is not None]
            self._manager.ready(" ".join([*self.refused, self._described()]))
