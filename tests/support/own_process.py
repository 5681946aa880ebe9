"""A process that a test has started, and may kill, stop and let go on; each is over when the call returns."""

import os
import signal
import subprocess


class OwnProcess:
    """Base of what is a process: `_process`."""

    _process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """kill -9, and waits until it is gone."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """SIGSTOP, and waits until it has stopped."""
        stop(self._process)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGSTOP, and waits until the process has stopped."""
    process.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), f"it didn't stop but ended: {status}"
