"""How long a lease may live, judged from outside: it is renewed while it lives, and nothing keeps it longer.

Owns what mustn't keep a lease: a renewal that comes too late, a session that is gone for good, and one restart after another.
That none ends too early is `clock_checks`'.
"""

from typing import Any

import msgspec

from .clock_checks import PROMPT_MS, ClockChecks
from .stories import Story
from .violations import require
from .world import World

LONGEST_GRACE_MS = 1_500
"""Of a lease of 3 s, whose session was connected from another machine."""


class _Numbered(msgspec.Struct):
    id: str


_decode = msgspec.json.Decoder(_Numbered).decode


class LeaseChecks(ClockChecks):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._life = 0
        self._touched: dict[tuple[str, int], tuple[int, int]] = {}
        self._over: set[tuple[str, str]] = set()
        self._gone_ms: dict[str, int] = {}
        self._extended: dict[tuple[str, int], tuple[int, int]] = {}

    def gone(self, session: str) -> None:
        """The last connection of a client that has died has ended."""
        self._gone_ms[session] = self.world.now_ms

    def arrives(self, body: bytes, lease_ms: int, *, available: bool) -> None:
        """A request is about to be carried out: whatever lives of the leases that it names is renewed.

        While the store is away (not `available`), nothing but a heartbeat renews.
        """
        request = self.requests[_decode(body).id]
        for ref in request.get("leases", (request,)):
            if "fence" not in ref or not (available or request["op"] == "heartbeat"):
                continue
            key = (ref["handoff"], ref["fence"])
            life, touched_ms = self._touched.get(key, (0, 0))
            if request["op"] == "heartbeat":
                over = life == self._life and lease_ms >= touched_ms + request["_ttl_ms"]
                (self._over.add if over else self._over.discard)((request["id"], ref["handoff"]))
            self._touched[key] = (self._life, lease_ms)
            self._extended.pop(key, None)

    def granted(self, handoff: str, fence: int, lease_ms: int) -> None:
        """A hold is told to its holder, under whose lease it is from now on."""
        self._touched[handoff, fence] = (self._life, lease_ms)

    def renewed(self, request: dict[str, Any], handoff: str) -> None:
        """A heartbeat is answered: this one lives on."""
        over = (request["id"], handoff) in self._over
        require(not over, f"a lease was renewed after its deadline: {request}")

    def extensions_found(self, extensions: dict[str, Any]) -> None:
        """A daemon starts, and leases are on disk that a start before it has prolonged."""
        self._life += 1
        for extension in extensions.values():
            key = (extension.handoff, extension.fence)
            self._extended.setdefault(key, (extension.until_ms, self.world.now_ms))

    def check_ends(self, story: Story, record: dict[str, Any]) -> None:
        """A lease has ended: not later than it had to."""
        if record["type"] != "orphaned" or record["why"] != "expired":
            return
        now_ms = self.world.now_ms
        gone_ms = None if story.detached else self._gone_ms.get(story.session)
        if gone_ms is not None and max(self.held_up_ms, self.restarted_ms) < gone_ms:
            late_ms = now_ms - gone_ms - LONGEST_GRACE_MS
            require(
                late_ms <= PROMPT_MS, f"a lease lived {late_ms} ms longer than the grace of a session that was gone"
            )
        until_ms, found_ms = self._extended.pop((story.handoff, story.fence), (0, 0))
        if until_ms and self.held_up_ms < found_ms and now_ms > self.restarted_ms + PROMPT_MS:
            late_ms = self.world.wall_ms - until_ms
            require(late_ms <= PROMPT_MS, f"restarts have kept a lease {late_ms} ms longer than the first one did")
