"""Roles: who may ask for what, and whose fence it is.

Owns the table of operations and roles, and that a fence is of use only to the token, and the certificate, that it was given to.
Does not own tokens and certificates, nor how one is proved (`dhpd.server`). Pure.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Literal, get_args
from weakref import WeakValueDictionary

from msgspec import UNSET

from dhp_protocol.errors import Forbidden
from dhp_protocol.messages import AnyRequest, Request

from .facts import RUNNING, Handoff, Hold

Role = Literal["dispatcher", "worker", "approver", "reader", "admin"]

ROLES: tuple[Role, ...] = ("dispatcher", "worker", "approver", "reader", "admin")


class Caller:
    """Who speaks on a connection: its token's name (without tokens, its certificate's; None: neither is in use there), and what
    it may do at this moment. `worker` is the name that its certificate proves, and the only one it may work under; None: any.

    All connections of a token share one, or one for each certificate, so that a change of its roles takes effect at once, on what
    is still on its way too. One whose token is gone has no role left.
    """

    __slots__ = ("__weakref__", "_roles", "_workers", "may_ask", "token", "worker")

    def __init__(self, token: str | None, roles: Iterable[Role], *, worker: str | None = None) -> None:
        self.token = token
        self.worker = worker
        self._workers: WeakValueDictionary[str, Caller] = WeakValueDictionary()
        self.roles = frozenset(roles)

    @property
    def roles(self) -> frozenset[Role]:
        """What it is."""
        return self._roles

    @roles.setter
    def roles(self, roles: frozenset[Role]) -> None:
        self._roles = roles
        self.may_ask = _may_ask(roles)
        """The kinds of requests that it may ask for whatever their members are."""
        for caller in list(self._workers.values()):
            caller.roles = roles

    def as_worker(self, name: str) -> "Caller":
        """The same token in the hands of whoever has a certificate of that name; its roles are those of the token."""
        caller = self._workers.get(name)
        if caller is None:
            caller = self._workers[name] = Caller(self.token, self.roles, worker=name)
        return caller

    def __repr__(self) -> str:
        worker = "" if self.worker is None else f", worker={self.worker!r}"
        return f"Caller({self.token!r}, {self.told_roles()}{worker})"

    def told_roles(self) -> list[Role]:
        """The roles as `hello` tells them."""
        return [role for role in ROLES if role in self.roles]


_Allowed = frozenset[Role] | None  # None: anyone.


def _only(*roles: Role) -> frozenset[Role]:
    return frozenset((*roles, "admin"))


_ANYONE: _Allowed = None
_LOOKING = frozenset(ROLES)
_DISPATCHER = _only("dispatcher")
_WORKER = _only("worker")
_APPROVER = _only("approver")
_ADMIN = _only()

OPERATION_ROLES: dict[str, _Allowed] = {
    "hello": _ANYONE,
    "ping": _ANYONE,
    "goodbye": _ANYONE,
    "heartbeat": _ANYONE,  # Each lease in it is looked at by itself.
    "dispatch": _DISPATCHER,
    "cancel": _DISPATCHER,
    "redrive": _DISPATCHER,
    "budget_add": _DISPATCHER,
    "suspend": _DISPATCHER,
    "resume": _DISPATCHER,
    "ack": _DISPATCHER,
    "claim": _WORKER,
    "recover": _WORKER,
    "checkpoint": _WORKER,
    "complete": _WORKER,
    "fail": _WORKER,
    "release": _WORKER,
    "spend": _WORKER,
    "activity": _WORKER,
    "effect_begin": _WORKER,
    "effect_done": _WORKER,
    "approval_request": _WORKER,
    "check_capability": _WORKER,
    "approval_decide": _APPROVER,
    "status": _LOOKING,
    "last_checkpoint": _LOOKING,
    "checkpoints": _LOOKING,
    "history": _LOOKING,
    "result": _LOOKING,
    "list": _LOOKING,
    "effects": _LOOKING,
    "approval_wait": _LOOKING,
    "approvals": _LOOKING,
    "watch": _LOOKING,
    "unwatch": _LOOKING,
    "stats": _LOOKING,
    "health": _LOOKING,
    "export": _LOOKING,  # Of what is final: see `check_export`.
    "import": _ADMIN,
    "forget": _ADMIN,
    "drain": _ADMIN,
}
"""Which roles may ask for each operation."""

_UNLESS: dict[str, tuple[Callable[[Any], bool], frozenset[Role]]] = {
    "suspend": (lambda request: request.fence is not UNSET, _WORKER),
    "resume": (lambda request: bool(request.force), _ADMIN),
}
"""Where a request's members ask for more than its operation does: when, and which roles may then."""


@lru_cache
def _may_ask(roles: frozenset[Role]) -> frozenset[type[Request]]:
    """The kinds of requests for which these roles do, whatever their members are."""
    return frozenset(
        kind
        for kind in get_args(AnyRequest)
        if (op := str(kind.__struct_config__.tag)) not in _UNLESS
        and ((allowed := OPERATION_ROLES[op]) is None or roles & allowed)
    )


ADMIN = Caller(None, ("admin",))
"""Whoever speaks where no token is required."""


def check_role(request: Request, caller: Caller) -> None:
    """Raises `Forbidden` unless the caller has a role that may ask for this."""
    if type(request) in caller.may_ask:
        return
    op = str(request.__struct_config__.tag)
    allowed = OPERATION_ROLES[op]
    if op in _UNLESS:
        asks_for_more, instead = _UNLESS[op]
        allowed = instead if asks_for_more(request) else allowed
    if allowed is not None and caller.roles.isdisjoint(allowed):
        raise _forbidden(op, allowed)


def check_export(handoff: Handoff, caller: Caller) -> None:
    """Raises `Forbidden` where an export would take live work away from this daemon, and the caller may not do that."""
    if not handoff.final and caller.roles.isdisjoint(_ADMIN):
        raise _forbidden("export of what isn't final", _ADMIN)


def check_parent(parent: Handoff, caller: Caller) -> None:
    """Raises `Forbidden` unless the caller may spend what `parent` has, which a child does: its budget isn't any dispatcher's."""
    holder = parent.hold.token if parent.hold is not None and parent.status == RUNNING else None
    entitled = sorted({token for token in (parent.token, holder) if token is not None})
    if caller.token not in entitled and caller.roles.isdisjoint(_ADMIN):
        sentence = (
            "A child spends its parent's budget: let whoever holds or dispatched the parent dispatch it, or an admin."
        )
        raise Forbidden(sentence, role="admin", roles=["admin"], handoff=parent.id, tokens=entitled)


def check_fence_owner(handoff: Handoff, fence: int, caller: Caller) -> None:
    """Raises `Forbidden` where the fence is the newest hold's, and that hold is another token's, or another certificate's.

    Any other fence is void, whoever sends it.
    """
    hold = handoff.hold
    if hold is None or hold.fence != fence:
        return
    if hold.token != caller.token or not _is_same_worker(hold, caller):
        whose = "token" if _is_same_worker(hold, caller) else "certificate"
        raise Forbidden(f"This fence was given to another {whose}: claim the handoff to work on it.", role="worker")


def check_worker(worker: str, caller: Caller) -> None:
    """Raises `Forbidden` where a claim names another worker than the caller's certificate does."""
    if caller.worker is not None and worker != caller.worker:
        sentence = (
            f"Your certificate is {caller.worker}'s: claim as that worker, or use the certificate of the other one."
        )
        raise Forbidden(sentence, role="worker", worker=caller.worker)


def may_hold(handoff: Handoff, caller: Caller) -> bool:
    """Whether the caller may keep the present hold's lease alive: it is its token's, and that is a worker's."""
    hold = handoff.hold
    if hold is None or hold.token != caller.token or not _is_same_worker(hold, caller):
        return False
    return not caller.roles.isdisjoint(_WORKER)


def _is_same_worker(hold: Hold, caller: Caller) -> bool:
    return caller.worker is None or hold.worker == caller.worker


def may_claim(caller: Caller) -> bool:
    """Whether the caller may be granted work."""
    return not caller.roles.isdisjoint(_WORKER)


def not_a_worker() -> Forbidden:
    """What a claim is told that waited until its token was a worker's no more."""
    return _forbidden("claim", _WORKER)


def _forbidden(what: str, allowed: frozenset[Role]) -> Forbidden:
    wanted = [role for role in ROLES if role in allowed]
    sentence = f"{what} needs the role {' or '.join(wanted)}, which this token doesn't have: use another one."
    return Forbidden(sentence, role=wanted[0], roles=wanted)
