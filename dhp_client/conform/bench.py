"""What one check has at hand: connections to the daemon, kinds of its own, and the clean-up behind it.

Owns opening connections with the tokens that were given, and removing what a check made. Does not own checks.
"""

import contextlib
import secrets
import threading
from collections.abc import Callable
from itertools import count
from typing import NoReturn

import msgspec
from msgspec import Struct

from dhp_protocol.limits import Limits

from ..addresses import SocketAddress
from ..clock import monotonic_ms
from .judging import JSON, Members, NotChecked, Unlike, holds
from .peer import Peer
from .wire import ANSWER_WITHIN_MS, Notes, Wire

OWN_KINDS = "dhp-conform"
TRIES = 6
TOO_SLOW = "this machine was too slow"
USUAL_LEASE = {
    "ttl_ms": 6_000,
    "heartbeat_ms": 2_000,
    "min_ttl_ms": 500,
    "max_ttl_ms": 3_600_000,
    "disconnect_grace_ms": 250,
}


class Target(Struct, frozen=True, kw_only=True):
    """The daemon that is asked, and who asks."""

    address: SocketAddress
    token: str | None = None
    approver_token: str | None = None
    answer_within_ms: float = ANSWER_WITHIN_MS


class Terms(Struct, frozen=True, kw_only=True):
    """What the daemon told in `hello`, and whether it wants a token."""

    hello: Members
    wants_token: bool

    durability: str = "power loss"

    @property
    def are_usual(self) -> bool:
        """Whether the daemon is set up as SPEC.md tells the defaults, and the caller may do everything."""
        usual = msgspec.to_builtins(Limits())
        return (
            all(self.limits.get(name) == value for name, value in usual.items())
            and all(self.lease.get(name) == value for name, value in USUAL_LEASE.items())
            and self.roles == ["admin"]
            and self.durability == "power loss"
        )

    @property
    def roles(self) -> list[str]:
        roles: list[str] = self.hello["roles"]
        return roles

    @property
    def limits(self) -> Members:
        limits: Members = self.hello["limits"]
        return limits

    @property
    def lease(self) -> Members:
        lease: Members = self.hello["lease"]
        return lease


class Bench:
    """Everything for one check. `run` is text of this run alone; kinds that are made with it are nobody else's."""

    def __init__(
        self, target: Target, terms: Terms, *, drains: bool = False, answered: frozenset[str] | None = None
    ) -> None:
        self.target = target
        self.terms = terms
        self.drains = drains
        """Whether the daemon may be drained."""
        self.answered = answered
        """The errors that were answered to all checks before; None: not all were carried out."""
        self.notes = Notes()
        self.run = secrets.token_hex(6)
        self.kind = f"{OWN_KINDS}-{self.run}"
        self._keys = count(1)
        self._opened: list[Wire] = []

    @property
    def min_ttl_ms(self) -> int:
        """The shortest lease that the daemon gives, which checks that wait for an end ask for."""
        ttl: int = self.terms.lease["min_ttl_ms"]
        return ttl

    def wire(self, *, token: str | None = None) -> Wire:
        """A new connection; where a token is wanted, it has said hello, in the bare form."""
        wire = Wire(self.target.address, self.notes, answer_within_ms=self.target.answer_within_ms)
        self._opened.append(wire)
        token = token or self.target.token
        if self.terms.wants_token and token is not None:
            say_hello(wire, token)
        return wire

    def peer(self, *, counted: bool = True, session: str | None = None, token: str | None = None) -> Peer:
        """A new connection; it says hello where a session is named."""
        peer = Peer(self.wire(token=token), self.kind, self._keys, counted=counted)
        if session is not None:
            peer.call("hello", session=session)
        return peer

    def stranger(self) -> Peer:
        """A new connection that says nothing by itself, a token neither."""
        wire = Wire(self.target.address, self.notes, answer_within_ms=self.target.answer_within_ms)
        self._opened.append(wire)
        return Peer(wire, self.kind, self._keys, counted=True)

    def session(self, name: str = "s") -> str:
        """A session's name of this check's own."""
        return f"{self.kind}-{name}"

    def approver(self) -> Peer:
        """A connection that may decide what another one asked."""
        return self.peer(token=self.approver_token())

    def approver_token(self) -> str | None:
        """The token of who decides; None where none is wanted."""
        if self.terms.wants_token and self.target.approver_token is None:
            raise NotChecked("with tokens nobody decides on what they asked for: give --approver-token-file")
        return self.target.approver_token

    def roles_lacking(self) -> str | None:
        """Which role a refusal to this check named that the token doesn't have; None: it was refused nothing for that."""
        if "admin" in self.terms.roles:
            return None
        return next((role for role in sorted(self.notes.roles) if role not in self.terms.roles), None)

    def skip(self, why: str) -> NoReturn:
        """The check can't be carried out at this daemon."""
        raise NotChecked(why)

    def without_hello(self) -> None:
        """The check is about a connection that hasn't said hello."""
        if self.terms.wants_token:
            raise NotChecked("the daemon wants a token, so every connection says hello")

    def given_back_ms(self, peer: Peer) -> int:
        """How much time the daemon has lost, and given back to the leases."""
        offset: int = peer.call("health")["clock_offset_ms"]
        return offset

    def attempts(self, attempt: Callable[[], bool]) -> None:
        """Carries out what depends on nobody having been slow, until it was so (True) once."""
        for _ in range(TRIES):
            if attempt():
                return
        raise NotChecked(f"{TOO_SLOW} for it, {TRIES} times")

    def clean_up(self) -> list[str]:
        """Ends every connection, and what this check made; the ids of what couldn't be removed."""
        for wire in self._opened:
            with contextlib.suppress(OSError):
                wire.close()
        made = list(dict.fromkeys(reversed(self.notes.made)))  # Children are younger than their parents.
        if not made:
            return []
        try:
            with self.peer() as peer:
                return [handoff for handoff in made if not _removed(peer, handoff)]
        except (OSError, Unlike, NotChecked):
            return made


def _removed(peer: Peer, handoff: str) -> bool:
    """Ends one handoff and has it forgotten; whether it is gone."""
    peer.reply(peer.send("cancel", handoff=handoff, children=True))
    reply = peer.reply(peer.send("forget", handoff=handoff))
    return reply["ok"] is True or reply["error"]["code"] == "not_found"


def say_hello(wire: Wire, token: str | None, **members: JSON) -> Members:
    """Says hello in the bare form, and gives the reply, which must be ok."""
    peer = Peer(wire, "", count(), counted=False)
    return peer.call("hello", **({} if token is None else {"token": token}), **members)


def learn_terms(target: Target) -> Terms:
    """Asks the daemon for its terms; `Unlike` where it doesn't tell them."""
    with Wire(target.address, answer_within_ms=target.answer_within_ms) as wire:
        first = Peer(wire, "", count(), counted=False)
        came = first.reply(first.send("ping"))
        error = came.get("error")
        wants_token = isinstance(error, dict) and error.get("code") == "unauthenticated"
        if wants_token and target.token is None:
            raise NotChecked("the daemon wants a token: give --token-file or $DHP_TOKEN")
        hello = say_hello(wire, target.token)
        if (worker := hello.get("worker")) is not None:
            raise NotChecked(
                f"it knows this client by its certificate as the worker {worker!r}, while the points claim under names of their own: "
                "ask at an address where it asks for no certificates, its unix socket for one"
            )
        durability = first.call("health")["durability"]
    holds(hello["protocol"] == "dhp/1", "a daemon that speaks dhp/1", hello["protocol"])
    holds(isinstance(hello["roles"], list), "hello to tell the roles in a list", hello["roles"])
    return Terms(hello=hello, wants_token=wants_token, durability=durability)


def rest(ms: float) -> None:
    """Lets time go by."""
    threading.Event().wait(max(ms, 0) / 1000)


def rest_until(moment_ms: float) -> None:
    """Lets time go by up to a moment on the monotonic clock."""
    while (left_ms := moment_ms - monotonic_ms()) > 0:
        rest(left_ms)
