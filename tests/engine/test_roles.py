"""Who may ask for what: the table of operations and roles, and the requests that ask for more than their operation."""

from typing import Any, get_args

import msgspec
import pytest

from dhp_protocol.decoding import OPS
from dhp_protocol.errors import Forbidden
from dhp_protocol.messages import AnyRequest, Drain, Ping, Resume, Suspend
from dhpd.engine.roles import ADMIN, OPERATION_ROLES, ROLES, Caller, check_role

HANDOFF = "0" * 64
LOOKING = {
    "status",
    "last_checkpoint",
    "checkpoints",
    "history",
    "result",
    "list",
    "effects",
    "approval_wait",
    "approvals",
    "watch",
    "unwatch",
    "stats",
    "health",
    "export",
}
ANYONE = {"hello", "ping", "goodbye", "heartbeat"}
MAY: dict[str, set[str]] = {
    "dispatcher": {"dispatch", "cancel", "redrive", "budget_add", "suspend", "resume", "ack"},
    "worker": {
        "claim",
        "recover",
        "checkpoint",
        "complete",
        "fail",
        "release",
        "spend",
        "activity",
        "effect_begin",
        "effect_done",
        "approval_request",
        "check_capability",
    },
    "approver": {"approval_decide"},
    "reader": set(),
    "admin": set(OPS),
}
"""What each role may do beside looking, as SPEC.md has it."""


def allowed(request: Any, *roles: Any) -> bool:
    try:
        check_role(request, Caller("t", roles))
    except Forbidden:
        return False
    return True


def test_every_operation_has_its_roles() -> None:
    assert set(OPS) <= set(OPERATION_ROLES)


@pytest.mark.parametrize("op", sorted(OPS))
def test_an_operation_is_for_its_roles_and_for_no_other(op: str) -> None:
    request = plain(op)
    for role in ROLES:
        assert allowed(request, role) == (op in ANYONE | LOOKING | MAY[role]), (op, role)


def test_a_refusal_tells_which_roles_would_do() -> None:
    with pytest.raises(Forbidden) as refused:
        check_role(plain("claim"), Caller("t", ["reader", "approver"]))
    assert refused.value.details == {"role": "worker", "roles": ["worker", "admin"]}


def test_roles_add_up() -> None:
    assert allowed(plain("claim"), "reader", "worker")
    assert allowed(plain("dispatch"), "worker", "dispatcher")
    assert not allowed(plain("approval_decide"), "worker", "dispatcher", "reader")


def test_suspend_with_a_fence_is_a_workers_and_without_one_a_dispatchers() -> None:
    assert allowed(Suspend(handoff=HANDOFF, fence=1), "worker")
    assert not allowed(Suspend(handoff=HANDOFF, fence=1), "dispatcher")
    assert allowed(Suspend(handoff=HANDOFF), "dispatcher")
    assert not allowed(Suspend(handoff=HANDOFF), "worker")


def test_a_forced_resume_is_an_admins() -> None:
    assert allowed(Resume(handoff=HANDOFF), "dispatcher")
    assert not allowed(Resume(handoff=HANDOFF, force=True), "dispatcher")
    assert allowed(Resume(handoff=HANDOFF, force=True), "admin")


def test_whoever_has_no_role_left_may_say_that_it_is_there_and_no_more() -> None:
    nobody = Caller("revoked", ())
    check_role(Ping(), nobody)
    for op in sorted(OPS - ANYONE):
        with pytest.raises(Forbidden):
            check_role(plain(op), nobody)


def test_a_caller_shows_its_name_and_roles() -> None:
    assert repr(Caller("ada", ("worker", "dispatcher"))) == "Caller('ada', ['dispatcher', 'worker'])"
    check_role(Drain(), ADMIN)


def plain(op: str) -> Any:
    """A request without what is optional; only its operation counts here."""
    kind = next(kind for kind in get_args(AnyRequest) if kind.__struct_config__.tag == op)
    given = {field.name: None for field in msgspec.structs.fields(kind) if field.required}
    return kind(**given)
