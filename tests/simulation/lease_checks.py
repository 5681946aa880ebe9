"""How long a lease may live, judged from outside: it is renewed while it lives, and nothing keeps it longer.

Owns what mustn't keep a lease: a renewal that comes too late, a session that is gone for good, and one restart after another;
and that nothing ends it before its time while it runs on a restart's extension. That no other ends too early is `clock_checks`'.
"""

from typing import Any

import msgspec

from .clock_checks import PROMPT_MS, STOOD_MS, ClockChecks
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
        self._asked_ms: dict[tuple[str, int], int] = {}
        self._runs_until_ms: dict[tuple[str, int], int] = {}
        self._claims_again: set[tuple[str, str]] = set()

    def gone(self, session: str) -> None:
        """The last connection of a client that has died has ended."""
        self._gone_ms[session] = self.world.now_ms

    def arrives(self, body: bytes, lease_ms: int, behind_ms: int, *, available: bool) -> None:
        """A request is about to be carried out: whatever lives of the leases that it names is renewed.

        The lease clock is `behind_ms` behind: a tick is late, though not so late that it was held up, or at work.

        While the store is away (not `available`), nothing but a heartbeat renews.
        """
        request = self.requests[_decode(body).id]
        self.behind_ms[request["id"]] = max(behind_ms, self.behind_ms.get(request["id"], 0))
        if request["op"] in ("claim", "recover"):  # Whoever holds by that nonce already has it renewed.
            self._claims_again.add((request["worker"], request["nonce"]))
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

    def granted(self, request: dict[str, Any], handoff: str, fence: int, lease_ms: int) -> None:
        """A hold is told to its holder, under whose lease it is from now on."""
        self._touched[handoff, fence] = (self._life, lease_ms)
        self._asked_ms[handoff, fence] = self.sent_ms[request["id"]]

    def renewed(self, request: dict[str, Any], handoff: str) -> None:
        """A heartbeat is answered: this one lives on."""
        over = (request["id"], handoff) in self._over
        require(not over, f"a lease was renewed after its deadline: {request}")

    def extensions_found(self, extensions: dict[str, Any]) -> None:
        """A daemon starts, and leases are on disk that a start before it has prolonged."""
        self._life += 1
        self._claims_again.clear()
        self._runs_until_ms = {
            (story.handoff, story.fence): self.world.now_ms + self._left_ms(story, extensions.get(story.handoff))
            for story in self.stories.values()
            if story.status == "running"
        }
        for extension in extensions.values():
            key = (extension.handoff, extension.fence)
            self._extended.setdefault(key, (extension.until_ms, self.world.now_ms))

    def _left_ms(self, story: Story, extension: Any) -> int:
        """How long a lease runs on after this start, whoever comes and goes meanwhile."""
        ttl_ms = self.world.ttl_ms
        if extension is None or extension.fence != story.fence:
            return ttl_ms
        return int(min(ttl_ms, extension.until_ms - self.world.wall_ms))

    def check_ends(self, story: Story, position: int, record: dict[str, Any]) -> None:
        """A lease has ended: not later than it had to, and not before its extension."""
        if record["type"] != "orphaned" or record["why"] != "expired":
            return
        key = (story.handoff, story.fence)
        now_ms = self.world.now_ms
        touched = self._touched.get(key, (0, 0))[0] == self._life or story.claimed_by in self._claims_again
        early_ms = self._runs_until_ms.get(key, 0) - self._moment_of(position, record)
        require(touched or early_ms <= STOOD_MS, f"a lease ended {early_ms} ms before its extension did")
        gone_ms = None if story.detached else self._gone_ms.get(story.session)
        renewed_ms = max(self._asked_ms.get(key, 0), self.renewals.get(key, (0, 0, ""))[0])
        if gone_ms is not None and max(self.held_up_ms, self.restarted_ms) < gone_ms and self.restarted_ms < renewed_ms:
            late_ms = now_ms - gone_ms - LONGEST_GRACE_MS
            require(
                late_ms <= PROMPT_MS, f"a lease lived {late_ms} ms longer than the grace of a session that was gone"
            )
        until_ms, found_ms = self._extended.pop(key, (0, 0))
        if until_ms and self.held_up_ms < found_ms and now_ms > self.restarted_ms + PROMPT_MS:
            late_ms = self.world.wall_ms - until_ms
            require(late_ms <= PROMPT_MS, f"restarts have kept a lease {late_ms} ms longer than the first one did")
