"""A person's word: asked for through the agent's host, brought in by a session of its own, never the agent's own."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.types import ElicitRequestParams, ElicitResult

import dhp_client
from dhp_client.persons import approver_beside
from dhpd.token_file import add_token
from tests.support.daemon_process import DaemonProcess

from .conftest import ERAS, Agent, Serving, server_of


class Person:
    """Answers the host's forms, and remembers what they were shown."""

    def __init__(self, action: str, **content: Any) -> None:
        self.shown: list[str] = []
        self._answer = ElicitResult(action=action, content=content or None)  # type: ignore[arg-type]

    async def __call__(self, context: Any, params: ElicitRequestParams) -> ElicitResult:
        self.shown.append(params.message)
        return self._answer


async def asked(agent: Agent, kind: str, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Work, and an approval that it asks for."""
    await agent.call("dispatch", kind=kind, inputs={}, key=secrets.token_hex(4))
    work = await agent.claim(kinds=[kind])
    details = more.pop("details", {"usd": 5, "to": "Ada"})
    return work, await agent.call("approval_request", handle=work["handle"], action="pay", details=details, **more)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_yes_goes_in_by_a_session_of_its_own(
    agent_of: Serving, daemon: DaemonProcess, kind: str, mode: str
) -> None:
    person = Person("accept", approve=True, note="this once")
    approver = approver_beside(daemon.address, name="Grace")
    async with agent_of(mode, approver=approver, elicitation_callback=person) as agent:
        work, question = await asked(agent, kind)
        assert (question["decision"], question["waiting"]) == (None, True)
        assert question["approval"] in question["decide_with"]
        refused = await agent.refused("effect_begin", handle=work["handle"], step="pay", approval=question["approval"])
        assert refused.startswith("wrong_state")
        decided = await agent.call("approval_wait", approval=question["approval"], handle=work["handle"])
        assert (decided["decision"], decided["by"], decided["note"]) == ("approved", "Grace", "this once")
        assert decided["decide_with"] is None
        (shown,) = person.shown
        assert 'action: pay\ndetails: {"to":"Ada","usd":5}' in shown
        assert (await agent.call("approval_wait", approval=question["approval"])) == decided
        assert len(person.shown) == 1
        begun = await agent.call("effect_begin", handle=work["handle"], step="pay", approval=question["approval"])
        assert begun["state"] == "new"


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(
    ("person", "decision"),
    [
        (Person("accept", approve=False, note="too dear"), "denied"),
        (Person("decline"), "denied"),
        (Person("cancel"), None),
    ],
    ids=["no", "declined", "put off"],
)
async def test_a_no_is_a_no_and_a_form_that_is_put_off_is_neither(
    agent_of: Serving, daemon: DaemonProcess, kind: str, mode: str, person: Person, decision: str | None
) -> None:
    approver = approver_beside(daemon.address)
    async with agent_of(mode, approver=approver, elicitation_callback=person) as agent:
        _, question = await asked(agent, kind)
        decided = await agent.call("approval_wait", approval=question["approval"], wait_ms=10)
        assert (decided["decision"], decided["waiting"]) == (decision, decision is None)
        assert (decided["decide_with"] is None) == (decision is not None)
        (listed,) = (await agent.call("approvals", handoff=question["approval"][:64]))["approvals"]
        assert (listed["decision"], listed["action"]) == (decision, "pay")


async def test_where_no_form_can_be_shown_a_person_decides_on_a_terminal(
    agent_of: Serving, daemon: DaemonProcess, other: dhp_client.Client, kind: str
) -> None:
    person = Person("accept", approve=True)
    approver = approver_beside(daemon.address)
    long = {"text": "x" * 5_000}
    # A host without forms, a server with nothing to decide with, and more than a form shows.
    for settings, details in (
        ({"approver": approver}, None),
        ({"approver": None, "elicitation_callback": person}, None),
        ({"approver": approver, "elicitation_callback": person}, long),
    ):
        async with agent_of(**settings) as agent:
            work, question = await asked(agent, kind, details=details)
            waiting = await agent.call("approval_wait", approval=question["approval"], wait_ms=10)
            assert waiting["waiting"]
            assert waiting["decide_with"].startswith(f"dhp approve {question['approval']} --connect {daemon.address} ")
            await other.approve(question["approval"])
            assert (await agent.call("approval_wait", approval=question["approval"]))["decision"] == "approved"
            await agent.call("complete", handle=work["handle"])
    assert not person.shown


async def test_an_answer_that_this_server_may_not_bring_in_is_told_with_what_may(
    agent_of: Serving, daemon: DaemonProcess, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    approver = approver_beside(daemon.address)
    assert approver is not None

    async def refuse(approval: str, note: str | None) -> None:
        raise dhp_client.Forbidden("Whoever asked for an approval can't decide it.", role="approver")

    monkeypatch.setattr(approver, "approve", refuse)
    async with agent_of(approver=approver, elicitation_callback=Person("accept", approve=True)) as agent:
        _, question = await asked(agent, kind)
        told = await agent.refused("approval_wait", approval=question["approval"])
        assert told.startswith("forbidden: The person has answered")
        assert f"dhp approve {question['approval']}" in told


async def test_a_form_that_cannot_be_made_is_told_like_any_refusal(agent_of: Serving) -> None:
    nowhere = "tcp://127.0.0.1:9"
    settings = {"address": nowhere, "approver": approver_beside(nowhere), "elicitation_callback": Person("cancel")}
    async with agent_of(**settings) as agent:
        assert (await agent.refused("approval_wait", approval="a")).startswith("not_connected")


async def test_what_a_worker_asks_cannot_pass_for_anything_else(
    agent_of: Serving, daemon: DaemonProcess, kind: str
) -> None:
    person = Person("cancel")
    approver = approver_beside(daemon.address)
    async with agent_of(approver=approver, elicitation_callback=person) as agent:
        _, question = await asked(agent, kind, details={"a": "b\n\naction: nothing\u202e"})
        await agent.call("approval_wait", approval=question["approval"])
    (shown,) = person.shown
    assert shown.count("\naction: ") == 1
    assert "\u202e" not in shown


class Guarded:
    """A daemon with tokens, each in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tokens = folder / "tokens.toml"
        for name, roles in (("worker", ["worker", "dispatcher", "approver"]), ("boss", ["approver"])):
            (folder / name).write_text(add_token(tokens, name, roles))  # type: ignore[arg-type]
        self.process = DaemonProcess(folder / "data", arguments=("--tokens", str(tokens)))


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    with made.process:
        yield made


async def test_an_agent_cannot_approve_itself_and_an_answer_outlives_the_server(guarded: Guarded, kind: str) -> None:
    address, folder = guarded.process.address, guarded.folder
    tokens = {"token_file": folder / "worker"}
    approver = approver_beside(address, approver_token_file=folder / "boss", **tokens)
    assert approver_beside(address, **tokens) is None
    async with Client(
        server_of(address, approver=approver, **tokens), mode="auto", elicitation_callback=Person("cancel")
    ) as client:  # type: ignore[arg-type]
        agent = Agent(client)
        work, question = await asked(agent, kind)
        # Its token has the role, and still it can't: it asked.
        async with dhp_client.connect(address, token_file=folder / "worker") as same_token:
            with pytest.raises(dhp_client.Forbidden):
                await same_token.approve(question["approval"])
        arguments = {"approval": question["approval"]}
        begun = await client.session.call_tool("approval_wait", arguments, allow_input_required=True)
        (key,) = begun.input_requests
        state = begun.request_state
        dearer = await agent.call("approval_request", handle=work["handle"], action="pay", details={"usd": 5_000})
    # Another server, after a restart, to which the host brings the person's answer.
    async with Client(
        server_of(address, approver=approver, **tokens), mode="auto", elicitation_callback=Person("cancel")
    ) as client:  # type: ignore[arg-type]
        answer = ElicitResult(action="accept", content={"approve": True})
        # A yes to one thing is none to another.
        with pytest.raises(MCPError, match="requestState"):
            await client.session.call_tool(
                "approval_wait", {"approval": dearer["approval"]}, input_responses={key: answer}, request_state=state
            )
        decided = await client.session.call_tool(
            "approval_wait", arguments, input_responses={key: answer}, request_state=state
        )
        assert decided.structured_content["decision"] == "approved"
        assert decided.structured_content["by"] == "boss"
        (again,) = (await Agent(client).call("recover", handoff=work["handoff"]))["work"]
        begun = await Agent(client).call("effect_begin", handle=again["handle"], step="pay", **arguments)
        assert begun["state"] == "new"
