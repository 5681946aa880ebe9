"""A person sees what is asked, decides exactly that, and is told what it was."""

from types import SimpleNamespace
from typing import Any

import click
import pytest

import dhp_client
import dhp_client.sync
from dhp_client import Approval, ApprovalPage
from dhp_client.cli.finding import the_approval

from .conftest import Dhp


def ask(client: dhp_client.sync.Client, handoff: str, action: str, details: object) -> str:
    """Has a worker ask and put the work aside; gives the approval's id."""
    with client.claim(handoff, worker="asker", wait_ms=5_000) as task:
        task.approval(action, details, timeout_ms=600_000, park=True)
    (asked,) = client.approvals(handoff=handoff, status="open").approvals
    return asked.approval


def test_a_person_sees_what_is_asked_and_decides(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = dhp("dispatch", "cli.approve").out.strip()
    for action, command, decision in (("pay", "approve", "approved"), ("mail", "deny", "denied")):
        approval = ask(client, handoff, action, {"usd": 3})
        (asked,) = [line for line in dhp("approvals", "--json").json_lines if line["handoff"] == handoff]
        assert (asked["approval"], asked["action"], asked["details"]) == (approval, action, {"usd": 3})
        assert (asked["decision"], asked["kind"], asked["asked"]["worker"]) == (None, "cli.approve", "asker")
        shown = dhp("approvals", handoff[:12]).out
        assert (
            f'{approval}\n  {action} {{"usd":3}}\n  handoff {handoff[:12]}, kind cli.approve, asked by asker' in shown
        )
        assert f"open for another 10 min, until {asked['expires_at']}" in shown
        decided = dhp(command, approval, "--note", "well")
        assert (decided.code, decided.err) == (0, "")
        assert decided.out == f'{decision}: {action} {{"usd":3}}\n  handoff {handoff[:12]}, kind cli.approve\n'
        assert client.status(handoff).status == "pending"
    decisions = [line["decision"] for line in dhp("approvals", handoff, "--json").json_lines]
    assert decisions == ["approved", "denied"]
    assert ": well" in dhp("approvals", handoff, "--status", "denied").out


def test_the_decision_as_json_has_what_was_decided(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = dhp("dispatch", "cli.approve-json").out.strip()
    approval = ask(client, handoff, "pay", {"to": "Ada"})
    told = dhp("--name", "Grace", "approve", approval, "--json").json
    assert told.pop("at")
    assert told == {
        "approval": approval,
        "handoff": handoff,
        "kind": "cli.approve-json",
        "action": "pay",
        "details": {"to": "Ada"},
        "decision": "approved",
        "by": "Grace",
        "note": None,
        "before": False,
    }


def test_a_beginning_never_comes_to_mean_a_question_that_nobody_has_seen(
    dhp: Dhp, client: dhp_client.sync.Client
) -> None:
    handoff = dhp("dispatch", "cli.mallory").out.strip()
    seen = ask(client, handoff, "pay", {"to": "Ada"})
    short = f"{handoff[:8]}-{seen[65:69]}"
    assert dhp("approve", short).out.startswith('approved: pay {"to":"Ada"}')
    unseen = ask(client, handoff, "pay", {"to": "Mallory"})
    for beginning in (handoff[:8], handoff[:20], handoff, f"{handoff}-", unseen[:68]):
        assert dhp("approve", beginning).code == 2
    again = dhp("approve", short)
    assert (again.code, again.out.startswith('approved: pay {"to":"Ada"}')) == (0, True)
    unknown = dhp("approve", f"{handoff[:8]}-ffff0000ffff0000")
    assert (unknown.code, "No approval's id begins with" in unknown.err) == (1, True)
    (still_open,) = client.approvals(handoff=handoff, status="open").approvals
    assert still_open.approval == unseen


async def test_a_beginning_of_two_questions_means_neither_also_when_one_is_decided() -> None:
    def question(own: str, decision: str | None) -> Approval:
        facts: dict[str, Any] = dict.fromkeys(Approval.__struct_fields__)
        return Approval(**{**facts, "approval": f"{'a' * 64}-{own}", "decision": decision})

    async def approvals(**_: object) -> ApprovalPage:
        return ApprovalPage(
            approvals=[question("12345" + "0" * 11, "approved"), question("12346" + "0" * 11, None)], next=None
        )

    client: Any = SimpleNamespace(approvals=approvals)
    with pytest.raises(click.ClickException, match="2 approvals' ids begin with"):
        await the_approval(client, f"{'a' * 64}-1234")
    assert (await the_approval(client, f"{'a' * 64}-12345")).decision == "approved"


def test_a_decision_repeated_is_told_as_such(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = dhp("dispatch", "cli.again").out.strip()
    approval = ask(client, handoff, "pay", 3)
    assert dhp("approve", approval, "--name", "Ada", "--note", "as agreed").code == 0
    again = dhp("approve", approval, "--name", "Bob", "--note", "me too")
    assert (again.code, again.out.splitlines()[0]) == (0, "approved: pay 3")
    assert "it was approved before by Ada, at " in again.err
    assert "the note isn't kept" in again.err
    silent = dhp("approve", approval, "--json")
    assert (silent.json["by"], silent.json["note"], silent.json["before"]) == ("Ada", "as agreed", True)
    assert "isn't kept" not in silent.err
    other = dhp("deny", approval)
    assert (other.code, other.out) == (1, "")
    assert "by Ada" in other.err


def test_the_one_who_decides_is_named_after_the_user(
    dhp: Dhp, client: dhp_client.sync.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "ada")
    handoff = dhp("dispatch", "cli.user").out.strip()
    approval = ask(client, handoff, "pay", 3)
    assert dhp("deny", approval, "--json").json["by"] == "ada"
    assert "denied by ada" in dhp("approvals", handoff).out


def test_what_a_worker_writes_is_shown_and_never_obeyed(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = dhp("dispatch", "cli.escapes").out.strip()
    approval = ask(client, handoff, "pay \x1b[2K\rmail\u202e", {"to": "\x9bMallory"})
    for shown in (dhp("approvals", handoff), dhp("approve", approval)):
        assert 'pay \\u001b[2K\\rmail\\u202e {"to":"\\u009bMallory"}' in shown.out
    assert dhp("approvals", handoff, "--json").json["details"] == {"to": "\x9bMallory"}
