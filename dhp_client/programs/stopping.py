"""How `dhp run` is told to end: SIGTERM, SIGINT (Ctrl-C), SIGHUP; the second one doesn't wait.

Owns the signals, and being told. What ends in which order is `attempt`'s and `worker`'s.
"""

import asyncio
import signal

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stop:
    """Whether the end was asked for, and by which signal."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()
        self.number: signal.Signals | None = None

    def listen(self) -> None:
        """Takes the signals from now on; one that this process was started to ignore (`nohup`) stays ignored."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self.ask, number)

    def ask(self, number: signal.Signals) -> None:
        """There was a signal."""
        if self.asked.is_set():
            self.at_once.set()
            return
        self.number = number
        self.asked.set()
