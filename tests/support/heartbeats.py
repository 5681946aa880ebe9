"""A live worker's heartbeats, from a thread, over connections that come back after any loss."""

import threading
import time
from types import TracebackType

from .wire_client import WireClient


class Heartbeats:
    """Renews `leases` (handoff, fence) every `every_ms`, reconnecting for as long as it takes."""

    def __init__(
        self, address: str, leases: list[tuple[str, int]], *, every_ms: int, session: str | None = None
    ) -> None:
        self.lost: set[str] = set()
        self._address = address
        self._leases = [{"handoff": handoff, "fence": fence} for handoff, fence in leases]
        self._every_ms = every_ms
        self._session = session
        self._stopping = threading.Event()
        self._renewed = threading.Condition()
        self._renewals = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Heartbeats":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def await_renewal(self) -> None:
        """Returns once a heartbeat that was sent after this call has been answered."""
        with self._renewed:
            # The one under way may have been sent before.
            wanted = self._renewals + 2
            assert self._renewed.wait_for(lambda: self._renewals >= wanted, timeout=20), "no renewal came"

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with WireClient(self._address) as client:
                    if self._session is not None:
                        client.call("hello", session=self._session)
                    while not self._stopping.is_set():
                        self._beat(client)
                        self._stopping.wait(self._every_ms / 1000)
            except (OSError, EOFError, AssertionError):
                time.sleep(0.01)

    def _beat(self, client: WireClient) -> None:
        reply = client.call("heartbeat", leases=self._leases)
        self.lost.update(reply["lost"])
        with self._renewed:
            self._renewals += 1
            self._renewed.notify_all()
