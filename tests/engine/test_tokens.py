"""What is a token's is of no use to another one: fences, leases, sessions, nonces, and its own questions."""

from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
from msgspec import Raw

from dhp_protocol.errors import DHPError, Forbidden, LeaseLost
from dhp_protocol.messages import (
    Activity,
    AnyRequest,
    ApprovalDecide,
    ApprovalRequest,
    Cancel,
    CheckCapability,
    Checkpoint,
    Claim,
    Complete,
    Dispatch,
    EffectBegin,
    EffectDone,
    Export,
    Fail,
    Goodbye,
    Heartbeat,
    Hello,
    History,
    Import,
    LeaseRef,
    Release,
    Resume,
    Spend,
    Suspend,
    WorkError,
)
from dhp_protocol.replies import NothingToClaim
from dhpd.engine.roles import Caller
from tests.support.engine_world import TTL_MS, World, memory

WORKER = ("worker", "dispatcher", "approver")
WITH_FENCE: dict[str, Callable[[str, int], Any]] = {
    "checkpoint": lambda h, f: Checkpoint(handoff=h, fence=f, state=Raw(b"1")),
    "complete": lambda h, f: Complete(handoff=h, fence=f, result=Raw(b"1")),
    "fail": lambda h, f: Fail(handoff=h, fence=f, error=WorkError("E")),
    "release": lambda h, f: Release(handoff=h, fence=f),
    "suspend": lambda h, f: Suspend(handoff=h, fence=f),
    "spend": lambda h, f: Spend(handoff=h, fence=f, steps=1),
    "activity": lambda h, f: Activity(handoff=h, fence=f, digest="d"),
    "effect_begin": lambda h, f: EffectBegin(handoff=h, fence=f, step="s"),
    "effect_done": lambda h, f: EffectDone(handoff=h, fence=f, step="s", result=Raw(b"1")),
    "approval_request": lambda h, f: ApprovalRequest(
        handoff=h, fence=f, action="a", details=Raw(b"{}"), timeout_ms=1_000
    ),
    "check_capability": lambda h, f: CheckCapability(handoff=h, fence=f, domain="net", resource="x"),
}


class Guarded(World):
    """`ada` and `bob` are connections of two tokens, each in a session named as the token is."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.tokens = {name: Caller(name, WORKER) for name in ("ada", "bob")}
        self.ada = self.of("ada", "ada")
        self.bob = self.of("bob", "bob")

    def of(self, token: str, session: str | None = None) -> int:
        return self.connect(session, caller=self.tokens[token])


@pytest.fixture
def world() -> Guarded:
    return Guarded()


def refused(world: Guarded, request: Any, on: int) -> DHPError:
    with pytest.raises(DHPError) as caught:
        world.run(request, on=on)
    return caught.value


def child_of(parent: str, number: int = 0) -> Dispatch:
    return Dispatch(kind="child", inputs=Raw(b'{"n":%d}' % number), parent=parent)


def test_a_child_is_dispatched_by_who_dispatched_or_holds_the_parent_or_by_an_admin(world: Guarded) -> None:
    parent = world.dispatch(on=world.ada)
    error = refused(world, child_of(parent), world.bob)
    assert isinstance(error, Forbidden)
    assert error.details == {"role": "admin", "roles": ["admin"], "handoff": parent, "tokens": ["ada"]}
    assert world.run(child_of(parent, 1), on=world.ada).created
    assert world.run(child_of(parent, 2)).created, "an admin's"
    fence = world.claim(parent, on=world.bob)
    assert world.run(child_of(parent, 3), on=world.bob).created
    assert world.run(child_of(parent, 4), on=world.ada).created
    world.run(Release(handoff=parent, fence=fence), on=world.bob)
    assert refused(world, child_of(parent, 5), world.bob).code == "forbidden"
    assert not world.run(child_of(parent, 3), on=world.bob).created, "which is there already"
    assert world.status(parent).steps == 0


def test_whose_the_parent_is_is_known_after_a_restart_and_once_it_has_left_memory(world: Guarded) -> None:
    parent = world.dispatch(on=world.ada)
    world.advance(2_000)
    world.restart()
    bob, ada = world.of("bob"), world.of("ada")
    assert refused(world, child_of(parent), bob).code == "forbidden"
    assert world.run(child_of(parent), on=ada).created
    assert [record.get("token") for record in world.run(History(handoff=parent)).records] == ["ada"]


def test_a_parent_from_elsewhere_takes_children_from_who_holds_it_or_an_admin(world: Guarded) -> None:
    source = Guarded()
    parent = source.dispatch(on=source.ada)
    world.run(Import(records=source.run(Export(handoff=parent)).records))
    world.run(Resume(handoff=parent))
    assert refused(world, child_of(parent), world.ada).details["tokens"] == []
    assert world.run(child_of(parent, 1)).created
    world.claim(parent, on=world.ada)
    assert world.run(child_of(parent, 2), on=world.ada).created


def test_a_stranger_to_a_parent_that_has_ended_is_told_that_it_is_one(world: Guarded) -> None:
    parent = world.dispatch(on=world.ada)
    world.run(Cancel(handoff=parent), on=world.ada)
    assert refused(world, child_of(parent), world.bob).code == "forbidden"
    assert refused(world, child_of(parent), world.ada).code == "wrong_state"


@pytest.mark.parametrize("restarted", [False, True], ids=["", "after a restart"])
@pytest.mark.parametrize("detached", [False, True], ids=["", "detached"])
def test_whoever_gave_an_approval_does_not_carry_the_action_out(
    world: Guarded, restarted: bool, detached: bool
) -> None:
    handoff = world.dispatch(on=world.ada)
    fence = world.claim(handoff, on=world.ada)
    ask = ApprovalRequest(handoff=handoff, fence=fence, action="pay", details=Raw(b"{}"), timeout_ms=60_000)
    approval = world.run(ask, on=world.ada).approval
    world.run(Suspend(handoff=handoff, fence=fence, approval=approval), on=world.ada)
    world.run(ApprovalDecide(approval=approval, decision="approve"), on=world.of("bob", "another"))
    if restarted:
        world.advance(2_000)
        world.restart()
        world.ada, world.bob = world.of("ada", "ada"), world.of("bob", "bob")
    fence = world.claim(handoff, on=world.bob, detached=detached)
    before = world.facts(handoff)
    begin = EffectBegin(handoff=handoff, fence=fence, step="pay", approval=approval)
    error = refused(world, begin, world.bob)
    assert (error.code, error.details) == ("forbidden", {"role": "worker", "approval": approval})
    assert world.facts(handoff) is before
    world.run(Release(handoff=handoff, fence=fence), on=world.bob)
    fence = world.claim(handoff, on=world.ada)
    assert (
        world.run(EffectBegin(handoff=handoff, fence=fence, step="pay", approval=approval), on=world.ada).state == "new"
    )
    world.run(Release(handoff=handoff, fence=fence), on=world.ada)
    fence = world.claim(handoff, on=world.bob)
    again = EffectBegin(handoff=handoff, fence=fence, step="pay", approval=approval)
    assert refused(world, again, world.bob).code == "forbidden", "nor goes on with it"
    assert all("session" not in record for record in world.run(History(handoff=handoff)).records)


def test_no_operation_with_a_fence_is_left_out() -> None:
    kinds = {kind.__struct_config__.tag for kind in get_args(AnyRequest) if "fence" in kind.__struct_fields__}
    assert kinds == set(WITH_FENCE)


@pytest.mark.parametrize("op", WITH_FENCE)
def test_a_fence_is_of_no_use_to_another_token(world: Guarded, op: str) -> None:
    handoff = world.dispatch()
    fence = world.claim(handoff, on=world.ada)
    before = memory(world.engine)
    request = WITH_FENCE[op](handoff, fence)
    assert isinstance(refused(world, request, world.bob), Forbidden)
    assert isinstance(refused(world, request, world.home), Forbidden), "nor to an admin without a token"
    assert memory(world.engine) == before


@pytest.mark.parametrize("op", WITH_FENCE)
def test_a_fence_may_be_used_by_every_connection_of_its_token(world: Guarded, op: str) -> None:
    handoff = world.dispatch()
    fence = world.claim(handoff, on=world.ada)
    if op == "effect_done":
        world.run(EffectBegin(handoff=handoff, fence=fence, step="s"), on=world.ada)
    world.run(WITH_FENCE[op](handoff, fence), on=world.of("ada"))


@pytest.mark.parametrize("op", ["complete", "release", "fail", "suspend"])
def test_what_ended_a_hold_is_repeated_for_its_own_token_alone(world: Guarded, op: str) -> None:
    handoff = world.dispatch()
    fence = world.claim(handoff, on=world.ada)
    request = WITH_FENCE[op](handoff, fence)
    world.run(request, on=world.ada)
    assert isinstance(refused(world, request, world.bob), Forbidden)
    assert world.run(request, on=world.ada).duplicate


def test_a_void_fence_is_void_for_everybody(world: Guarded) -> None:
    handoff = world.dispatch()
    fence = world.claim(handoff, on=world.ada)
    for void in (fence - 1, fence + 1):
        error = refused(world, Checkpoint(handoff=handoff, fence=void, state=Raw(b"1")), world.bob)
        assert isinstance(error, LeaseLost)


def test_a_fence_that_somebody_claimed_without_a_token_is_of_no_use_with_one(world: Guarded) -> None:
    handoff, fence = world.held()
    assert isinstance(refused(world, Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1")), world.ada), Forbidden)


def test_a_fence_keeps_its_token_over_a_restart(world: Guarded) -> None:
    handoff = world.dispatch()
    fence = world.claim(handoff, on=world.ada)
    world.restart()
    request = Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1"))
    assert isinstance(refused(world, request, world.of("bob", "bob")), Forbidden)
    world.run(request, on=world.of("ada", "ada"))


def test_a_heartbeat_renews_nothing_of_another_token(world: Guarded) -> None:
    handoff, own = world.dispatch(), world.dispatch()
    fence = world.claim(handoff, on=world.ada)
    own_fence = world.claim(own, on=world.bob)
    world.jump(1_000)
    before_ms = world.deadline_ms(handoff)
    beat = Heartbeat(leases=[LeaseRef(handoff, fence), LeaseRef(own, own_fence)])
    answer = world.run(beat, on=world.bob)
    assert (answer.renewed, answer.lost) == ([own], [handoff])
    assert world.deadline_ms(handoff) == before_ms
    assert world.run(beat, on=world.ada).renewed == [handoff]


def test_a_token_that_is_a_worker_no_more_keeps_no_lease_alive(world: Guarded) -> None:
    handoff = world.dispatch()
    fence = world.claim(handoff, on=world.ada)
    world.tokens["ada"].roles = frozenset(("reader",))
    answer = world.run(Heartbeat(leases=[LeaseRef(handoff, fence)]), on=world.ada)
    assert (answer.renewed, answer.lost) == ([], [handoff])
    world.advance(TTL_MS)
    assert world.facts(handoff).status == "orphaned"


def test_a_session_is_joined_by_its_own_token_alone(world: Guarded) -> None:
    for thief in (world.of("bob"), world.connect()):
        assert isinstance(refused(world, Hello(session="ada"), thief), Forbidden)
    assert world.run(Hello(session="ada"), on=world.of("ada")).session == "ada"


def test_a_refused_hello_changes_nothing(world: Guarded) -> None:
    handoff = world.dispatch()
    world.claim(handoff, on=world.bob)
    assert isinstance(refused(world, Hello(session="ada"), world.bob), Forbidden)
    world.run(Goodbye(), on=world.bob)
    assert world.facts(handoff).status == "pending", "the goodbye was of bob's own session"


def test_a_lease_whose_session_is_gone_is_not_restored_by_another_token(world: Guarded) -> None:
    handoff = world.dispatch()
    world.claim(handoff, on=world.ada)
    world.disconnect(world.ada)
    assert isinstance(refused(world, Hello(session="ada"), world.of("bob")), Forbidden)
    world.advance(250)
    assert world.facts(handoff).status == "orphaned"


def test_a_session_that_has_a_lease_is_its_tokens_after_a_restart_too(world: Guarded) -> None:
    world.claim(world.dispatch(), on=world.ada)
    world.restart()
    assert isinstance(refused(world, Hello(session="ada"), world.of("bob")), Forbidden)
    assert world.run(Hello(session="ada"), on=world.of("ada")).session == "ada"


def test_hello_tells_the_roles(world: Guarded) -> None:
    assert world.run(Hello(), on=world.ada).roles == ["dispatcher", "worker", "approver"]
    assert world.run(Hello(), on=world.home).roles == ["admin"]


def test_a_lease_is_not_had_by_another_tokens_worker_and_nonce(world: Guarded) -> None:
    handoff, other = world.dispatch(), world.dispatch()
    claim = Claim(worker="w", kinds=["work"], nonce="n")
    assert world.run(claim, on=world.ada).handoff == handoff
    assert world.run(claim, on=world.bob).handoff == other
    assert world.run(claim, on=world.ada).handoff == handoff


def test_an_ended_lease_tells_another_tokens_nonce_nothing(world: Guarded) -> None:
    handoff = world.dispatch()
    claim = Claim(worker="w", handoff=handoff, nonce="n")
    fence = world.run(claim, on=world.ada).fence
    world.run(Release(handoff=handoff, fence=fence), on=world.ada)
    assert isinstance(refused(world, claim, world.ada), LeaseLost)
    world.restart()
    ada, bob = world.of("ada"), world.of("bob")
    assert isinstance(refused(world, claim, ada), LeaseLost)
    assert world.run(claim, on=bob).handoff == handoff


def test_a_place_in_the_line_is_not_had_by_another_tokens_worker_and_nonce(world: Guarded) -> None:
    claim = Claim(worker="w", kinds=["work"], nonce="n", wait_ms=10_000)
    first = world.send(claim, on=world.ada)
    second = world.send(claim, on=world.bob)
    assert not first.answered
    handoff = world.dispatch()
    assert (first.result().handoff, second.answered) == (handoff, False)
    third = world.send(claim, on=world.of("bob"))
    world.commit()
    assert isinstance(second.result(), NothingToClaim), "its own token's takes it"
    other = world.dispatch()
    assert third.result().handoff == other


def test_a_waiting_claim_is_refused_when_its_token_is_a_worker_no_more(world: Guarded) -> None:
    first = world.send(Claim(worker="w", kinds=["work"], wait_ms=10_000), on=world.ada)
    second = world.send(Claim(worker="w", kinds=["work"], wait_ms=10_000), on=world.bob)
    world.tokens["ada"].roles = frozenset(("reader",))
    world.engine.roles_changed()
    handoff = world.dispatch()
    with pytest.raises(Forbidden):
        first.result()
    assert second.result().handoff == handoff


def test_a_grant_that_was_undone_does_not_come_back_to_a_worker_no_more(world: Guarded) -> None:
    call = world.send(Claim(worker="w", kinds=["work"], wait_ms=10_000), on=world.ada)
    handoff = world.dispatch(delay_ms=5)
    world.jump(5)
    world.tick()
    assert world.facts(handoff).status == "running"
    world.tokens["ada"].roles = frozenset()
    world.fail_commit()
    world.commit()
    with pytest.raises(Forbidden):
        call.result()
    assert world.facts(handoff).status == "pending"


def test_what_its_token_may_not_do_any_more_is_refused_when_its_turn_comes(world: Guarded) -> None:
    handoff = world.dispatch()
    fence = world.claim(handoff, on=world.ada)
    world.tokens["ada"].roles = frozenset()
    assert isinstance(refused(world, Complete(handoff=handoff, fence=fence, result=Raw(b"1")), world.ada), Forbidden)


# --- approvals -------------------------------------------------------------------------------------------------------


def asked(world: Guarded, on: int, *, caller: str = "") -> tuple[str, int, str]:
    handoff = world.dispatch()
    fence = world.claim(handoff, on=on)
    return handoff, fence, ask(world, handoff, fence, on)


def ask(world: Guarded, handoff: str, fence: int, on: int) -> str:
    request = ApprovalRequest(handoff=handoff, fence=fence, action="pay", details=Raw(b"{}"), timeout_ms=60_000)
    approval: str = world.run(request, on=on).approval
    return approval


def approve(approval: str) -> ApprovalDecide:
    return ApprovalDecide(approval=approval, decision="approve")


def test_the_deciders_token_is_told(world: Guarded) -> None:
    _, _, approval = asked(world, world.ada)
    assert world.run(approve(approval), on=world.bob).by == "bob"


def test_without_a_token_the_client_that_decided_is_told(world: Guarded) -> None:
    _, _, approval = asked(world, world.ada)
    person = world.connect()
    world.run(Hello(client="grace's desk"), on=person)
    assert world.run(approve(approval), on=person).by == "grace's desk"


def test_no_connection_of_the_askers_token_decides(world: Guarded) -> None:
    handoff, fence, approval = asked(world, world.ada)
    world.run(Release(handoff=handoff, fence=fence), on=world.ada)
    world.run(Goodbye(), on=world.ada)
    world.disconnect(world.ada)
    assert isinstance(refused(world, approve(approval), world.of("ada", "another session")), Forbidden)
    world.restart()
    assert isinstance(refused(world, approve(approval), world.of("ada", "after the restart")), Forbidden)
    world.run(approve(approval), on=world.of("bob"))


def test_a_standby_that_asked_the_same_does_not_decide_either(world: Guarded) -> None:
    handoff, fence, approval = asked(world, world.ada)
    world.run(Release(handoff=handoff, fence=fence), on=world.ada)
    fence = world.claim(handoff, on=world.bob)
    assert ask(world, handoff, fence, world.bob) == approval
    world.run(Release(handoff=handoff, fence=fence), on=world.bob)
    assert isinstance(refused(world, approve(approval), world.of("bob", "new")), Forbidden)


def test_whose_token_holds_the_work_does_not_decide(world: Guarded) -> None:
    handoff, fence, approval = asked(world, world.ada)
    world.run(Release(handoff=handoff, fence=fence), on=world.ada)
    fence = world.claim(handoff, on=world.bob, detached=True)
    assert isinstance(refused(world, approve(approval), world.of("bob", "new")), Forbidden)


def test_a_connection_that_asked_before_its_hello_does_not_decide_after_it(world: Guarded) -> None:
    connection = world.connect()
    handoff, fence, approval = asked(world, connection)
    world.run(Release(handoff=handoff, fence=fence), on=connection)
    world.run(Hello(session="named"), on=connection)
    assert isinstance(refused(world, approve(approval), connection), Forbidden)
    assert isinstance(refused(world, approve(approval), world.connect("named")), Forbidden)
    world.run(Hello(session="yet another"), on=connection)
    assert isinstance(refused(world, approve(approval), connection), Forbidden)
    world.run(approve(approval), on=world.connect("somebody else's"))


def test_a_detached_claim_hides_nobody(world: Guarded) -> None:
    connection = world.connect()
    handoff = world.dispatch()
    fence = world.claim(handoff, on=connection, detached=True)
    approval = ask(world, handoff, fence, connection)
    assert isinstance(refused(world, approve(approval), connection), Forbidden)


def test_a_decision_needs_somebody_who_is_there(world: Guarded) -> None:
    connection = world.connect()
    handoff, fence, approval = asked(world, connection)
    world.run(Release(handoff=handoff, fence=fence), on=connection)
    world.disconnect(connection)
    assert isinstance(refused(world, approve(approval), connection), Forbidden)


# --- what is shown ---------------------------------------------------------------------------------------------------


def test_a_hello_shows_neither_its_token_nor_its_session() -> None:
    hello = Hello(client="c", session="the-session", token="the-secret")
    for shown in (repr(hello), str(hello), f"{hello}", str(hello.__rich_repr__()), repr([hello])):
        assert "the-se" not in shown
    assert msgspec.json.decode(msgspec.json.encode(hello), type=Hello).token == "the-secret"
