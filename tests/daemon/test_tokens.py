"""Tokens over real sockets: what a stranger may do, what each role may do, and what a changed file means at once."""

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dhpd.engine.roles import ROLES, Role
from dhpd.token_file import add_token
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient, frame

from .conftest import assert_no_mistake

PATIENT_MS = 20_000
"""For tests that are not about the time in which a hello must come."""


class Guarded:
    """A daemon with a token file, on TCP and on a unix socket."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "tokens.toml"
        self.secrets: dict[str, str] = {}
        for role in ROLES:
            self.add(role, role)
        self.add("ada", "worker", "dispatcher", "approver")
        self.add("bob", "worker", "dispatcher", "approver")
        self.process = DaemonProcess(
            folder / "data",
            listen=("127.0.0.1:0", f"unix:{folder}/dhpd.sock"),
            arguments=("--tokens", str(self.file)),
            env={"DHPD_HELLO_WITHIN_MS": str(PATIENT_MS)},
        )
        self._opened: list[WireClient] = []

    def add(self, name: str, *roles: Role) -> str:
        self.secrets[name] = add_token(self.file, name, roles)
        return self.secrets[name]

    def stranger(self, address: str | None = None) -> WireClient:
        """A connection that has said nothing."""
        client = WireClient(address or self.process.tcp)
        self._opened.append(client)
        return client

    def of(self, name: str, session: str | None = None) -> WireClient:
        """A connection that has said hello with the token of that name."""
        client = self.stranger()
        client.call("hello", token=self.secrets[name], **({} if session is None else {"session": session}))
        return client

    def rewrite(self, change: Callable[[str], str]) -> None:
        """Puts another file in the place of the token file."""
        draft = self.file.with_suffix(".new")
        draft.write_text(change(self.file.read_text()))
        draft.replace(self.file)

    def without(self, name: str) -> None:
        """The token is taken out of the file."""

        def change(text: str) -> str:
            tables = text.split("[[token]]")
            return "[[token]]".join(table for table in tables if f'name = "{name}"' not in table)

        self.rewrite(change)

    def with_roles(self, name: str, *roles: str) -> None:
        """The token has these roles from now on."""

        def change(text: str) -> str:
            tables = text.split("[[token]]")
            return "[[token]]".join(
                _with_roles(table, roles) if f'name = "{name}"' in table else table for table in tables
            )

        self.rewrite(change)

    def hang_up_signal(self) -> None:
        os.kill(self.process.pid, signal.SIGHUP)

    def close(self) -> None:
        for client in self._opened:
            client.close()
        self.process.close()


def _with_roles(table: str, roles: tuple[str, ...]) -> str:
    lines = [line for line in table.strip().splitlines() if not line.startswith("roles")]
    return "\n" + "\n".join([*lines, f"roles = {json.dumps(roles)}"]) + "\n\n"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    made.process.start()
    yield made
    made.close()
    assert_no_mistake(made.process)
    for secret in made.secrets.values():
        assert secret not in made.process.stderr


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One whose file nobody changes."""
    made = Guarded(tmp_path_factory.mktemp("shared"))
    made.process.start()
    yield made
    made.close()
    assert_no_mistake(made.process)


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon that gives strangers a moment only."""
    add_token(tmp_path / "tokens.toml", "ada", ["worker"])
    arguments = ("--tokens", str(tmp_path / "tokens.toml"))
    with DaemonProcess(tmp_path / "data", arguments=arguments, env={"DHPD_HELLO_WITHIN_MS": "50"}) as running:
        yield running
    assert_no_mistake(running)


# --- strangers -------------------------------------------------------------------------------------------------------


def test_before_its_hello_a_connection_may_say_nothing_else(guarded: Guarded) -> None:
    stranger = guarded.stranger()
    for op, members in (
        ("ping", {}),
        ("dispatch", {"kind": "work", "inputs": {}}),
        ("list", {}),
        ("watch", {}),
        ("stats", {}),
        ("health", {}),
        ("goodbye", {}),
        ("claim", {"worker": "w", "kinds": ["work"], "wait_ms": 60_000}),
    ):
        assert stranger.refused(op, **members).code == "unauthenticated", op
    stranger.call("hello", token=guarded.secrets["ada"])
    stranger.call("ping")
    assert guarded.of("reader").call("list")["handoffs"] == []


def test_what_comes_behind_a_good_hello_in_the_same_packet_is_carried_out(guarded: Guarded) -> None:
    stranger = guarded.stranger()
    hello, first = stranger.framed("hello", token=guarded.secrets["ada"])
    dispatch, second = stranger.framed("dispatch", kind="work", inputs={"text": "x" * 100_000})
    stranger.send_bytes(first + second)
    assert stranger.result(hello)["roles"] == ["dispatcher", "worker", "approver"]
    assert stranger.result(dispatch)["created"]


def test_before_its_hello_a_connection_has_small_frames(guarded: Guarded) -> None:
    stranger = guarded.stranger()
    request_id, data = stranger.framed("dispatch", kind="work", inputs={"text": "x" * 65_536})
    stranger.send_bytes(data)
    refusal = stranger.receive()
    assert refusal["error"]["code"] == "frame_too_large"
    assert refusal["error"]["details"]["limit"] == 65_536
    stranger.call("hello", token=guarded.secrets["ada"])
    stranger.send_bytes(data)
    assert stranger.result(request_id)["created"]


def test_a_bare_line_without_end_is_bounded_before_the_hello(guarded: Guarded) -> None:
    stranger = guarded.stranger()
    stranger.send_bytes(b"{" + b" " * 70_000)
    messages = stranger.messages_until_closed()
    assert [message["error"]["code"] for message in messages] == ["frame_too_large"]


def test_three_refused_hellos_end_a_connection(guarded: Guarded) -> None:
    stranger = guarded.stranger()
    for _ in range(2):
        assert stranger.refused("hello", token="guess").code == "unauthenticated"
    last, refused_one = stranger.framed("hello")
    _, late = stranger.framed("hello", token=guarded.secrets["ada"])
    stranger.send_bytes(refused_one + late)
    messages = stranger.messages_until_closed()
    assert [(message["id"], message["error"]["code"]) for message in messages] == [(last, "unauthenticated")]


def test_two_refused_hellos_and_a_good_one_are_well(guarded: Guarded) -> None:
    stranger = guarded.stranger()
    for token in ("guess", "another"):
        stranger.refused("hello", token=token)
    stranger.call("hello", token=guarded.secrets["ada"])
    stranger.call("ping")


def test_whoever_says_no_hello_is_sent_away_without_a_word(impatient: DaemonProcess) -> None:
    with WireClient(impatient.tcp) as stranger:
        assert stranger.receive_until_closed() == b""


def test_other_requests_do_not_buy_time(impatient: DaemonProcess) -> None:
    with WireClient(impatient.tcp) as stranger, pytest.raises((EOFError, OSError)):
        ask_on_and_on(stranger)


def ask_on_and_on(stranger: WireClient) -> None:
    while True:
        assert stranger.refused("ping").code == "unauthenticated"


def test_whoever_has_said_hello_may_be_silent(tmp_path: Path) -> None:
    token = add_token(tmp_path / "tokens.toml", "ada", ["worker"])
    arguments = ("--tokens", str(tmp_path / "tokens.toml"))
    with (
        DaemonProcess(tmp_path / "data", arguments=arguments, env={"DHPD_HELLO_WITHIN_MS": "1000"}) as daemon,
        WireClient(daemon.tcp) as ada,
        WireClient(daemon.tcp) as stranger,
    ):
        ada.call("hello", token=token)
        assert stranger.receive_until_closed() == b""
        ada.call("ping")


@pytest.mark.parametrize("token", ["", 7, None, "x" * 1_025])
def test_a_token_that_is_none_is_refused_by_name(shared: Guarded, token: Any) -> None:
    refusal = shared.stranger().refused("hello", token=token)
    assert (refusal.code, refusal.details["member"]) == ("invalid_request", "token")
    assert not token or str(token) not in str(refusal.error)


def test_the_hash_of_a_token_is_no_token(guarded: Guarded) -> None:
    sha256 = guarded.file.read_text().split('sha256 = "')[1][:64]
    assert guarded.stranger().refused("hello", token=sha256).code == "unauthenticated"


def test_over_the_unix_socket_everyone_is_admin(guarded: Guarded) -> None:
    local = guarded.stranger(guarded.process.unix)
    local.dispatch()
    assert local.call("hello", token="whatever")["roles"] == ["admin"]
    local.call("drain")


def test_without_a_token_file_everyone_is_admin(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon, WireClient(daemon.tcp) as client:
        assert client.call("hello", token="whatever")["roles"] == ["admin"]
        client.call("drain")


# --- roles -----------------------------------------------------------------------------------------------------------

HANDOFF = "0" * 64
APPROVAL = f"{HANDOFF}-{'0' * 16}"
LOOKING = {
    "status": {"handoff": HANDOFF},
    "last_checkpoint": {"handoff": HANDOFF},
    "checkpoints": {"handoff": HANDOFF},
    "history": {"handoff": HANDOFF},
    "result": {"handoff": HANDOFF},
    "list": {},
    "effects": {"handoff": HANDOFF},
    "approval_wait": {"approval": APPROVAL},
    "approvals": {},
    "export": {"handoff": HANDOFF},
    "watch": {},
    "unwatch": {},
    "stats": {},
    "health": {},
    "ping": {},
    "heartbeat": {"leases": []},
    "hello": {},
}
HELD = {"handoff": HANDOFF, "fence": 1}
FOR: dict[str, dict[str, dict[str, Any]]] = {
    "dispatcher": {
        "dispatch": {"kind": "nothing", "inputs": {}, "parent": HANDOFF},
        "cancel": {"handoff": HANDOFF},
        "redrive": {"handoff": HANDOFF},
        "budget_add": {"handoff": HANDOFF, "add": {}},
        "suspend": {"handoff": HANDOFF},
        "resume": {"handoff": HANDOFF},
        "ack": {"handoff": HANDOFF},
    },
    "worker": {
        "claim": {"worker": "w", "handoff": HANDOFF},
        "recover": {"worker": "w", "handoff": HANDOFF},
        "checkpoint": {**HELD, "state": 1},
        "complete": {**HELD, "result": 1},
        "fail": {**HELD, "error": {"type": "E"}},
        "release": HELD,
        "suspend": HELD,
        "spend": HELD,
        "activity": {**HELD, "digest": "d"},
        "effect_begin": {**HELD, "step": "s"},
        "effect_done": {**HELD, "step": "s", "result": 1},
        "approval_request": {**HELD, "action": "a", "details": {}, "timeout_ms": 1},
        "check_capability": {**HELD, "domain": "d", "resource": "r"},
    },
    "approver": {"approval_decide": {"approval": APPROVAL, "decision": "deny"}},
    "admin": {
        "resume": {"handoff": HANDOFF, "force": True},
        "forget": {"handoff": HANDOFF},
        "import": {"records": [1]},
    },
}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_ask_for_what_is_its_own_and_look(shared: Guarded, role: Role) -> None:
    client = shared.of(role)
    for op, members in LOOKING.items():
        reply = client.reply(client.send(op, **members))
        assert reply["ok"] or reply["error"]["code"] == "not_found", (op, reply)
    for owner, requests in FOR.items():
        for op, members in requests.items():
            reply = client.reply(client.send(op, **members))
            code = None if reply["ok"] else reply["error"]["code"]
            if role in (owner, "admin"):
                assert code in (None, "not_found", "invalid_request"), (op, reply)
            else:
                assert code == "forbidden", (op, reply)
                assert reply["error"]["details"]["role"] == owner, op


def test_drain_is_an_admins(guarded: Guarded) -> None:
    for role in ROLES[:-1]:
        assert guarded.of(role).refused("drain").code == "forbidden"
    guarded.of("admin").call("drain")


def test_an_export_that_would_take_work_away_is_an_admins(shared: Guarded) -> None:
    ada = shared.of("ada")
    handoff = ada.dispatch(key="export")
    for role in ROLES[:-1]:
        assert shared.of(role).refused("export", handoff=handoff).details["role"] == "admin"
    assert ada.status(handoff)["status"] == "pending"
    ada.call("cancel", handoff=handoff)
    for role in ROLES:
        assert shared.of(role).call("export", handoff=handoff)["records"]


def test_a_refused_dispatch_does_not_hold_up_the_claims_behind_it(guarded: Guarded) -> None:
    guarded.of("ada").dispatch()
    worker = guarded.of("worker")
    dispatch = worker.send("dispatch", kind="work", inputs={"text": "x" * 100_000})
    claim = worker.send("claim", worker="w", kinds=["work"])
    assert worker.reply(dispatch)["error"]["code"] == "forbidden"
    assert worker.result(claim)["fence"] == 1


# --- what is another token's -----------------------------------------------------------------------------------------

WITH_FENCE = [(op, members) for op, members in FOR["worker"].items() if "fence" in members]


@pytest.mark.parametrize(("op", "members"), WITH_FENCE, ids=[op for op, _ in WITH_FENCE])
def test_a_fence_is_of_no_use_to_another_token(shared: Guarded, op: str, members: dict[str, Any]) -> None:
    ada = shared.of("ada")
    handoff = ada.dispatch(key=op)
    fence = ada.claim(handoff=handoff)["fence"]
    before = ada.history(handoff)
    refusal = shared.of("bob").refused(op, **{**members, "handoff": handoff, "fence": fence})
    assert refusal.code == "forbidden"
    assert ada.history(handoff) == before
    shared.of("ada").call("checkpoint", handoff=handoff, fence=fence, state=1)


def test_a_fence_is_another_tokens_after_kill_9_too(guarded: Guarded) -> None:
    ada = guarded.of("ada", "ada's")
    handoff = ada.dispatch()
    fence = ada.claim(handoff=handoff, ttl_ms=60_000)["fence"]
    guarded.process.restart()
    thief = guarded.stranger()
    assert thief.refused("hello", token=guarded.secrets["bob"], session="ada's").code == "forbidden"
    thief.call("hello", token=guarded.secrets["bob"])
    assert thief.refused("checkpoint", handoff=handoff, fence=fence, state=1).code == "forbidden"
    assert thief.call("heartbeat", leases=[{"handoff": handoff, "fence": fence}])["lost"] == [handoff]
    guarded.of("ada", "ada's").call("checkpoint", handoff=handoff, fence=fence, state=1)


def test_a_hello_refused_for_its_session_counts_as_refused(guarded: Guarded) -> None:
    guarded.of("ada", "ada's")
    thief = guarded.stranger()
    for _ in range(2):
        assert thief.refused("hello", token=guarded.secrets["bob"], session="ada's").code == "forbidden"
        assert thief.refused("ping").code == "unauthenticated"
    thief.send("hello", token=guarded.secrets["bob"], session="ada's")
    assert [message["error"]["code"] for message in thief.messages_until_closed()] == ["forbidden"]


def test_a_connection_is_one_tokens_for_good(guarded: Guarded) -> None:
    ada = guarded.of("ada")
    assert ada.refused("hello", token=guarded.secrets["bob"]).code == "forbidden"
    assert ada.refused("hello", token="guess").code == "unauthenticated"
    assert ada.call("hello", session="another")["roles"] == ["dispatcher", "worker", "approver"]
    assert ada.call("hello", token=guarded.secrets["ada"])["session"] != "another"


def test_a_lease_is_not_had_by_guessing_worker_and_nonce(guarded: Guarded) -> None:
    ada = guarded.of("ada")
    handoff = ada.dispatch()
    first = ada.call("claim", worker="w", handoff=handoff, nonce="n")
    bob = guarded.of("bob")
    assert bob.refused("claim", worker="w", handoff=handoff, nonce="n").code == "already_claimed"
    assert guarded.of("ada").call("claim", worker="w", handoff=handoff, nonce="n")["fence"] == first["fence"]


def test_the_askers_token_never_decides(guarded: Guarded) -> None:
    ada = guarded.of("ada")
    handoff = ada.dispatch()
    fence = ada.claim(handoff=handoff)["fence"]
    request = {"action": "pay", "details": {"usd": 5}, "timeout_ms": 60_000}
    approval = ada.call("approval_request", handoff=handoff, fence=fence, **request)["approval"]
    assert ada.refused("approval_decide", approval=approval, decision="approve").code == "forbidden"
    ada.call("suspend", handoff=handoff, fence=fence, approval=approval)
    ada.call("goodbye")
    ada.close()
    again = guarded.of("ada", "another session")
    assert again.refused("approval_decide", approval=approval, decision="approve").code == "forbidden"
    guarded.of("bob").call("approval_decide", approval=approval, decision="approve")
    assert again.call("approval_wait", approval=approval)["by"] == "bob"
    assert again.status(handoff)["status"] == "pending"


# --- a changed file --------------------------------------------------------------------------------------------------


def watching(guarded: Guarded) -> WireClient:
    """A connection that is there to see when a change of the file has been taken up: its own token goes with it."""
    guarded.add("canary", "reader")
    client = guarded.stranger()
    while True:
        reply = client.reply(client.send("hello", token=guarded.secrets["canary"]))
        if reply["ok"]:
            return client
        client.close()  # There is room for so many strangers only.
        client = guarded.stranger()


def test_a_token_that_was_added_is_taken_up_by_itself(guarded: Guarded) -> None:
    watching(guarded).call("ping")


def test_a_token_that_was_taken_out_ends_its_connections_by_itself(guarded: Guarded) -> None:
    ada, bob = guarded.of("ada"), guarded.of("bob")
    handoff = ada.dispatch()
    ada.claim(handoff=handoff, ttl_ms=60_000)
    bob.call("watch", handoff=handoff)
    guarded.without("ada")
    assert ada.messages_until_closed() == []
    assert bob.await_record("orphaned")["record"]["why"] == "expired"
    assert guarded.stranger().refused("hello", token=guarded.secrets["ada"]).code == "unauthenticated"


def test_a_hang_up_signal_has_the_file_read(guarded: Guarded) -> None:
    ada = guarded.of("ada")
    guarded.without("ada")
    guarded.hang_up_signal()
    assert ada.messages_until_closed() == []
    guarded.of("bob").call("ping")


def test_what_a_taken_out_token_waits_for_ends(guarded: Guarded) -> None:
    ada = guarded.of("ada")
    claim = ada.send("claim", worker="w", kinds=["work"], wait_ms=60_000)
    ada.call("watch")
    guarded.without("ada")
    guarded.hang_up_signal()
    messages = ada.messages_until_closed()
    assert [(message["id"], message["error"]["code"]) for message in messages] == [(claim, "forbidden")]


def test_a_token_with_another_secret_is_another_token(guarded: Guarded) -> None:
    ada = guarded.of("ada", "ada's")
    handoff = ada.dispatch()
    fence = ada.claim(handoff=handoff, ttl_ms=60_000, detached=True)["fence"]
    old = guarded.secrets["ada"]
    guarded.without("ada")
    guarded.add("ada", "worker")
    assert ada.messages_until_closed() == []
    guarded.hang_up_signal()
    watching(guarded)
    assert guarded.stranger().refused("hello", token=old).code == "unauthenticated"
    # But what the name has claimed is still its own.
    guarded.of("ada", "ada's").call("checkpoint", handoff=handoff, fence=fence, state=1)


def test_changed_roles_hold_at_once_on_an_open_connection(guarded: Guarded) -> None:
    ada = guarded.of("ada")
    handoff = ada.dispatch()
    fence = ada.claim(handoff=handoff)["fence"]
    claim = ada.send("claim", worker="w", kinds=["other"], wait_ms=60_000)
    guarded.with_roles("ada", "reader")
    assert ada.reply(claim)["error"]["code"] == "forbidden"
    assert ada.refused("checkpoint", handoff=handoff, fence=fence, state=1).code == "forbidden"
    assert ada.call("heartbeat", leases=[{"handoff": handoff, "fence": fence}])["lost"] == [handoff]
    assert ada.call("hello")["roles"] == ["reader"]
    assert ada.status(handoff)["status"] == "running"


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "[[token",
        '[[token]]\nname = "x"\n',
        "token = 5",
        '[[token]]\nname = "x"\nsha256 = "00"\nroles = ["admin"]\n',
    ],
)
def test_a_file_that_is_broken_leaves_the_tokens_as_they_were(guarded: Guarded, broken: str) -> None:
    ada = guarded.of("ada")
    kept = guarded.file.read_text()
    guarded.rewrite(lambda text: broken)
    guarded.hang_up_signal()
    while "stay in force" not in guarded.process.stderr:
        ada.call("ping")
    guarded.of("bob").call("ping")
    guarded.rewrite(lambda text: kept)
    watching(guarded).call("ping")
    ada.call("ping")


def test_a_file_that_is_gone_leaves_the_tokens_as_they_were(guarded: Guarded) -> None:
    ada = guarded.of("ada")
    guarded.file.unlink()
    while "stay in force" not in guarded.process.stderr:
        ada.call("ping")
    guarded.of("bob").call("ping")


def test_a_broken_file_is_told_once(guarded: Guarded) -> None:
    ada = guarded.of("ada")
    kept = guarded.file.read_text()
    guarded.rewrite(lambda text: "token = 5")
    while "stay in force" not in guarded.process.stderr:
        ada.call("ping")
    guarded.rewrite(lambda text: kept)
    watching(guarded)
    assert guarded.process.stderr.count("stay in force") == 1


# --- at the start ----------------------------------------------------------------------------------------------------


def test_no_secret_is_in_the_log_whatever_is_sent(guarded: Guarded) -> None:
    stranger = guarded.stranger()
    secret = guarded.secrets["ada"]
    stranger.send_bytes(frame({"op": "hello", "id": 1, "token": secret, "session": 5}))
    stranger.send_bytes(frame({"op": secret, "id": 2}))
    stranger.send_bytes(b'{"op":"hello","token":"' + secret.encode() + b"\n")
    answers = [stranger.receive() for _ in range(3)]
    assert [answer["error"]["code"] for answer in answers] == ["invalid_request", "unknown_op", "bad_json"]
    assert secret not in str(answers[0])
    assert secret not in str(answers[2])


# --- what takes two ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed", [False, True], ids=["", "after a kill"])
def test_an_approver_that_gets_the_work_does_not_carry_out_what_it_approved(guarded: Guarded, killed: bool) -> None:
    ada, bob = guarded.of("ada"), guarded.of("bob")
    handoff = ada.dispatch("pay")
    fence = ada.claim(handoff=handoff)["fence"]
    asked = {"action": "pay", "details": {"to": "x"}, "timeout_ms": 600_000}
    approval = ada.call("approval_request", handoff=handoff, fence=fence, **asked)["approval"]
    ada.call("suspend", handoff=handoff, fence=fence, approval=approval)
    waits = bob.send("claim", worker="w", handoff=handoff, wait_ms=20_000)
    assert guarded.of("bob").call("approval_decide", approval=approval, decision="approve")["by"] == "bob"
    fence = bob.result(waits)["fence"]
    if killed:
        guarded.process.restart()
        ada, bob = guarded.of("ada"), guarded.of("bob")
    begin = {"handoff": handoff, "step": "pay", "approval": approval}
    refusal = bob.refused("effect_begin", fence=fence, **begin)
    assert (refusal.code, refusal.details) == ("forbidden", {"role": "worker", "approval": approval})
    bob.call("release", handoff=handoff, fence=fence)
    fence = ada.claim(handoff=handoff)["fence"]
    assert ada.call("effect_begin", fence=fence, **begin)["state"] == "new"
    assert "session" not in json.dumps(ada.history(handoff))


def test_a_stranger_cannot_use_up_a_budget_through_a_child(guarded: Guarded) -> None:
    ada, bob, dispatcher, admin = (guarded.of(name) for name in ("ada", "bob", "dispatcher", "admin"))
    parent = dispatcher.dispatch("parent", budget={"max_steps": 10})
    fence = ada.claim(handoff=parent)["fence"]
    child = {"kind": "child", "inputs": {}, "parent": parent}
    refusal = bob.refused("dispatch", key="bob", **child)
    assert refusal.code == "forbidden"
    assert refusal.details == {
        "role": "admin",
        "roles": ["admin"],
        "handoff": parent,
        "tokens": ["ada", "dispatcher"],
    }
    for client, key in ((ada, "ada"), (dispatcher, "dispatcher"), (admin, "admin")):
        assert client.call("dispatch", key=key, **child)["created"]
    ada.call("release", handoff=parent, fence=fence)
    guarded.process.restart()
    assert guarded.of("ada").refused("dispatch", key="late", **child).details["tokens"] == ["dispatcher"]
    assert guarded.of("dispatcher").call("dispatch", key="late", **child)["created"]


def test_strangers_take_half_of_the_places_at_most(tmp_path: Path) -> None:
    token = add_token(tmp_path / "tokens.toml", "ada", ["reader"])
    env = {"DHPD_HELLO_WITHIN_MS": str(PATIENT_MS), "DHPD_MAX_CONNECTIONS": "6"}
    with (
        DaemonProcess(
            tmp_path / "data",
            listen=("127.0.0.1:0", f"unix:{tmp_path}/dhpd.sock"),
            arguments=("--tokens", str(tmp_path / "tokens.toml")),
            env=env,
        ) as daemon,
        contextlib.ExitStack() as stack,
    ):

        def come(address: str) -> WireClient:
            return stack.enter_context(WireClient(address))

        ada = come(daemon.tcp)
        ada.call("hello", token=token)
        strangers = [come(daemon.tcp) for _ in range(3)]
        for stranger in strangers:
            stranger.refused("ping")
        assert come(daemon.tcp).receive()["error"]["code"] == "overloaded"
        come(daemon.unix).pump()
        strangers[0].call("hello", token=token)  # Now a place is free for another stranger.
        assert come(daemon.tcp).refused("ping").code == "unauthenticated"
        assert come(daemon.tcp).receive()["error"]["code"] == "overloaded"
