"""A client of the checks': requests by their members, replies by their ids, events apart.

Owns asking, and that an answer which wasn't expected is `Unlike`. Sends what it is told to, right or wrong.
"""

import json
from collections.abc import Callable, Iterator
from itertools import count
from types import TracebackType
from typing import Any

from .judging import JSON, Members, Unlike, holds, shown
from .wire import Line, Wire, framed

RequestId = int | str
LONG_TTL_MS = 120_000


class Peer:
    """One connection. `kind` is that of the handoffs it asks for unless told otherwise; their keys are all different."""

    def __init__(self, wire: Wire, kind: str, keys: Iterator[int], *, counted: bool) -> None:
        self.wire = wire
        self.kind = kind
        self.counted = counted
        self.events: list[Members] = []
        self._keys = keys
        self._replies: dict[RequestId, Line] = {}
        self._ids = count(1)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.wire.close()

    # --- requests ----------------------------------------------------------------------------------------------------

    def send(self, op: str, **members: JSON) -> int:
        """Sends a request and gives its id; the answer is had with `reply`."""
        request_id = next(self._ids)
        self.send_body({"op": op, "id": request_id, **members})
        return request_id

    def send_body(self, body: JSON) -> None:
        """Sends a body: bytes or text as they are, anything else as JSON."""
        if not isinstance(body, str | bytes):
            body = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        self.wire.send(framed(body.encode() if isinstance(body, str) else body, counted=self.counted))

    def line(self, request_id: RequestId) -> Line:
        """The whole reply to that request, good or not; what else comes is kept."""
        while request_id not in self._replies:
            line = self.next_line(f"an answer with the id {json.dumps(request_id)}")
            if "event" in line.value:
                self.events.append(line.value)
            elif isinstance(came := line.value.get("id"), int | str) and not isinstance(came, bool):
                self._replies[came] = line
            else:
                raise Unlike(f"an answer with the id {json.dumps(request_id)}", line.text)
        line = self._replies.pop(request_id)
        if line.counted != self.counted:
            raise Unlike("the reply in the form of its request", line.text)
        return line

    def next_line(self, expected: str = "a frame") -> Line:
        """The next frame that comes, whatever it is."""
        line = self.wire.receive()
        if line is None:
            raise Unlike(expected, "the daemon ended the connection")
        return line

    def reply(self, request_id: RequestId) -> Members:
        """As `line`, its body."""
        return self.line(request_id).value

    def granted(self, request_id: RequestId, asked: str = "the request") -> Members:
        """The reply to that request, which must be ok."""
        reply = self.reply(request_id)
        if reply["ok"] is not True:
            raise Unlike(f"{asked} to be answered with ok", shown(reply))
        return reply

    def denied(self, request_id: RequestId, code: str, asked: str = "the request") -> Members:
        """The error in the reply to that request, which must have this code."""
        reply = self.reply(request_id)
        if reply["ok"] is not False or reply["error"]["code"] != code:
            raise Unlike(f"{asked} to be refused as {code}", shown(reply))
        return _sound(reply["error"])

    def call(self, op: str, **members: JSON) -> Members:
        """Asks, and gives the reply, which must be ok."""
        return self.granted(self.send(op, **members), f"{op} {shown(members)}")

    def refused(self, code: str, op: str, **members: JSON) -> Members:
        """Asks, and gives the details of the error, which must have this code."""
        error = self.denied(self.send(op, **members), code, f"{op} {shown(members)}")
        return Members(error.get("details", {}))

    def refused_body(self, code: str, body: JSON, *, request_id: RequestId | None) -> Members:
        """Sends a body, and gives the details of the error, which must have this code, under this id (None: without)."""
        self.send_body(body)
        line = self.next_line()
        came = line.value
        holds(came["ok"] is False and came["error"]["code"] == code, f"{shown(body)} to be refused as {code}", came)
        expected = f"that answer {'without id' if request_id is None else f'under the id {json.dumps(request_id)}'}"
        is_so = "id" not in came if request_id is None else came.get("id") == request_id
        holds(is_so, expected, came)
        holds(line.counted == self.counted, "the answer in the form of the last good frame", line.text)
        return Members(_sound(came["error"]).get("details", {}))

    def lost(self, why: str, op: str, **members: JSON) -> Members:
        """Asks for a write that must be `lease_lost` for this reason."""
        details = self.refused("lease_lost", op, **members)
        holds(details["why"] == why, f"{op} to be lease_lost with why {why}", details)
        return details

    def pings(self) -> None:
        """The connection goes on, and what had been sent to it before is here."""
        self.call("ping")

    # --- events ------------------------------------------------------------------------------------------------------

    def event(self, name: str, is_meant: Callable[[Members], bool] = lambda event: True) -> Members:
        """The next such event; others are left for later."""
        while True:
            for index, event in enumerate(self.events):
                if event["event"] == name and is_meant(event):
                    return self.events.pop(index)
            line = self.next_line(f"the event {name}")
            if "event" in line.value:
                self.events.append(line.value)
            elif "id" in line.value:
                self._replies[line.value["id"]] = line

    # --- handoffs ----------------------------------------------------------------------------------------------------

    def intent(self, **members: JSON) -> dict[str, JSON]:
        """The members of a dispatch that nobody has asked for before."""
        return {"kind": self.kind, "inputs": {}, "key": f"{next(self._keys)}", **members}

    def dispatch(self, **members: JSON) -> str:
        """Asks for new work, and gives its id."""
        reply = self.call("dispatch", **self.intent(**members))
        holds(reply["created"] is True, "a new intent to be a new handoff (created true)", reply)
        handoff: str = reply["handoff"]
        return handoff

    def claim(self, handoff: str, **members: JSON) -> int:
        """Claims it, and gives the fence."""
        asked = {"worker": "conform", "ttl_ms": LONG_TTL_MS, **members}
        reply = self.call("claim", handoff=handoff, **asked)
        holds(reply["handoff"] == handoff, f"the claim to be granted {handoff}", reply)
        fence: int = reply["fence"]
        return fence

    def held(self, *, claim: dict[str, JSON] | None = None, **members: JSON) -> "Held":
        """New work that this peer holds, with a long lease unless `claim` says otherwise."""
        handoff = self.dispatch(**members)
        return Held(self, handoff, self.claim(handoff, **(claim or {})))

    def status(self, handoff: str) -> Members:
        return self.call("status", handoff=handoff)

    def pages(self, op: str, name: str, **members: JSON) -> list[Members]:
        """All items of all pages."""
        items: list[Members] = []
        after: JSON = None
        while True:
            page = self.call(op, **members, **({} if after is None else {"after": after}))
            items += page[name]
            after = page["next"]
            if after is None:
                return items

    def history(self, handoff: str) -> list[Members]:
        return self.pages("history", "records", handoff=handoff)


class Held:
    """A handoff under a fence: what a worker may say of it."""

    def __init__(self, peer: Peer, handoff: str, fence: int) -> None:
        self.peer = peer
        self.handoff = handoff
        self.fence = fence

    @property
    def ref(self) -> dict[str, Any]:
        return {"handoff": self.handoff, "fence": self.fence}

    def call(self, op: str, **members: JSON) -> Members:
        return self.peer.call(op, **{**self.ref, **members})

    def refused(self, code: str, op: str, **members: JSON) -> Members:
        return self.peer.refused(code, op, **{**self.ref, **members})

    def lost(self, why: str, op: str = "checkpoint", **members: JSON) -> Members:
        members = members or ({"state": "late"} if op == "checkpoint" else {})
        return self.peer.lost(why, op, **{**self.ref, **members})

    def checkpoint(self, state: JSON = None, **members: JSON) -> Members:
        return self.call("checkpoint", state=state, **members)

    def status(self) -> Members:
        return self.peer.status(self.handoff)


def _sound(error: Members) -> Members:
    """The error, which must have the members of every error."""
    is_told = isinstance(error["message"], str) and bool(error["message"])
    holds(is_told and error["retry"] in ("no", "now", "later"), "a message, and a retry of no, now or later", error)
    holds(isinstance(error.get("details", {}), dict), "details to be an object", error)
    return error
