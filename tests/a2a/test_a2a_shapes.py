"""What is translated, either way, without a daemon: inputs, results, the card, answers; and the tables that docs/a2a.md prints."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from a2a.types import (
    AgentCard,
    AgentSkill,
    InternalError,
    InvalidParamsError,
    Message,
    Part,
    SendMessageRequest,
    TaskState,
)
from google.protobuf.json_format import MessageToDict

import dhp_client
from dhp_client.a2a.answering import Answer, answer_in
from dhp_client.a2a.bounds import MAX_PARTS, check_required_fields, holds_more_values
from dhp_client.a2a.cards import BadCard, card_in, kinds_of, served_card
from dhp_client.a2a.errors import OF_DHP, a2a_error, refusals
from dhp_client.a2a.parts import inputs_of, metadata_of, part_of
from dhp_client.a2a.sending import context_meant, key_of
from dhp_client.a2a.states import FINAL, OF_RECORD, OF_STATUS
from dhp_client.a2a.tasks import sentence
from dhpd.engine import records
from dhpd.engine.facts import Status

from .bridging import message

PAGE = (Path(__file__).parents[2] / "docs" / "a2a.md").read_text()


@pytest.mark.parametrize(
    ("parts", "inputs"),
    [
        ([{"a": 1, "b": [True, None, "x"]}], {"a": 1, "b": [True, None, "x"]}),
        (["one", "two"], {"text": "one\ntwo"}),
        ([{"a": 1}, "how"], {"a": 1, "text": "how"}),
        ([[1, 2]], {"data": [[1, 2]]}),
        ([{"a": 1}, {"b": 2}], {"data": [{"a": 1}, {"b": 2}]}),
        ([Part(raw=b"\x00\xff", filename="x.bin", media_type="a/b")], {"files": [{"name": "x.bin", "media_type": "a/b", "base64": "AP8="}]}),
        ([Part(url="https://x/y")], {"files": [{"url": "https://x/y"}]}),
        ([""], {"text": ""}),
        ([{}], {}),
    ],
)  # fmt: skip
def test_parts_are_inputs(parts: list[Any], inputs: dict[str, Any]) -> None:
    assert inputs_of(message(*parts).parts) == inputs


@pytest.mark.parametrize("parts", [[{"text": 1}, "x"], [{"files": 1}, Part(url="u")], []])
def test_parts_that_would_hide_each_other_and_none_are_refused(parts: list[Any]) -> None:
    with pytest.raises(InvalidParamsError):
        inputs_of(message(*parts).parts)


def nested(depth: int) -> Any:
    return [] if depth == 0 else [nested(depth - 1)]


MANY = [[0] * 99] * 500


@pytest.mark.parametrize("value", [{"a": [1.5, None, True, "ä"]}, [], 0, None, 2**53 - 1, MANY[1:]])
def test_a_value_is_data_where_data_can_hold_it(value: Any) -> None:
    assert MessageToDict(part_of(value).data) == value


@pytest.mark.parametrize("value", [2**53, {"a": [2**70]}, float("inf"), "\ud800", {"\ud800": 1}, nested(200), MANY])
def test_a_value_that_data_cannot_hold_exactly_is_json_text(value: Any) -> None:
    part = part_of(value)
    assert (json.loads(part.text), part.media_type) == (value, "application/json")
    told = MessageToDict(metadata_of({"state": value, "seq": 3}))["dhp"]
    assert (json.loads(told["state"]), told["seq"]) == (value, 3)


def test_text_is_text() -> None:
    assert part_of("plip").text == "plip"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[1,2,3]", 4),
        ('{"a":{"b":[]},"c":1e999}', 4),
        ('["' + "[{,}]" * 100 + '"]', 2),
        ("{}", 1),
    ],
)
def test_values_are_counted_and_what_is_written_in_a_text_is_not(text: str, values: int) -> None:
    assert holds_more_values(text.encode(), values - 1)
    assert not holds_more_values(text.encode(), values)


@pytest.mark.parametrize("text", [b"[1,2,3", b"[" * 100_000, b"\xff[1,2,3]", b"[1,2,3," + b"9" * 5_000 + b"]"])
def test_what_the_sdk_cannot_read_is_left_to_it(text: bytes) -> None:
    assert not holds_more_values(text, 2)


def test_what_a_request_lacks_is_told_whatever_else_it_holds() -> None:
    whole = SendMessageRequest(message=message({"n": [1, 2]}, "x", metadata={"a": {"b": 1}}), metadata={"c": 1})
    check_required_fields(whole)
    assert whole.message.parts[0].HasField("data"), "and nothing is taken from it"
    whole.message.message_id = ""
    for lacking in (whole, SendMessageRequest(), SendMessageRequest(metadata={"c": 1})):
        with pytest.raises(InvalidParamsError, match="Validation failed"):
            check_required_fields(lacking)
    with pytest.raises(InvalidParamsError, match="put more into one of them"):
        check_required_fields(SendMessageRequest(message=message(*["x"] * (MAX_PARTS + 1))))


def test_a_message_whose_names_are_too_long_is_told_how_long_they_may_be() -> None:
    fits = message("x", message_id="m" * 100, context_id="c" * 143)
    assert len(key_of(fits)) == 256
    with pytest.raises(InvalidParamsError, match="contextId and messageId may have 243 characters together"):
        key_of(message("x", message_id="m" * 101, context_id="c" * 143))


def test_the_same_message_has_the_same_key_and_context_and_another_one_has_not() -> None:
    one, same = (Message(message_id="m") for _ in range(2))
    other, elsewhere = Message(message_id="n"), Message(message_id="m", context_id="c")
    assert key_of(one) == key_of(same)
    assert len({key_of(each) for each in (one, other, elsewhere)}) == 3
    assert key_of(Message(message_id='b","c', context_id="a")) != key_of(Message(message_id="c", context_id='a","b'))
    assert context_meant(one) == context_meant(same) != context_meant(other)
    assert context_meant(elsewhere) == "c"


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("approve 12ab34cd", Answer(question="12ab34cd", approves=True)),
        ("  DENY 12AB, too dear\nfor us ", Answer(question="12ab", approves=False, note="too dear\nfor us")),
        ({"approval": "i", "decision": "deny", "note": "n"}, Answer(question="i", approves=False, note="n")),
        ({"approval": "i", "decision": "approve", "note": None}, Answer(question="i", approves=True)),
    ],
)
def test_an_answer_is_read(said: Any, answer: Answer) -> None:
    assert answer_in(message(said)) == answer


@pytest.mark.parametrize("said", ["approve", "approved 12ab", "approve it", "don't approve 12ab", "", [1]])
def test_what_is_no_answer_is_none(said: Any) -> None:
    with pytest.raises(InvalidParamsError):
        answer_in(message(said))


def test_a_card_says_where_it_is_and_what_it_can_do_whatever_its_file_says(tmp_path: Path) -> None:
    written = {
        "name": "Printer",
        "url": "https://old.example",
        "capabilities": {"pushNotifications": True},
        "skills": [{"id": "print", "name": "Print", "description": "Prints.", "tags": ["paper"]}],
    }
    (tmp_path / "card.json").write_text(json.dumps(written))
    card = card_in(str(tmp_path / "card.json"))
    kinds = kinds_of(card, ["bind", "print"])
    assert kinds == ("print", "bind")
    shown = served_card(card, kinds, "https://new.example/x", wants_token=True)
    assert (shown.name, [skill.id for skill in shown.skills]) == ("Printer", ["print", "bind"])
    assert shown.skills[0].description == "Prints."
    assert {interface.url for interface in shown.supported_interfaces} == {"https://new.example/x/"}
    assert (shown.capabilities.streaming, shown.capabilities.push_notifications) == (True, False)
    assert shown.security_schemes["bearer"].http_auth_security_scheme.scheme == "bearer"
    assert not served_card(card, kinds, "http://h:1", wants_token=False).security_requirements


def test_a_card_that_is_none_is_told(tmp_path: Path) -> None:
    file = tmp_path / "card.json"
    for text, why in (
        (None, "can't be read"),
        ("{", "is no agent card"),
        ('{"skills": 1}', "is no agent card"),
        ("ä", "card"),
    ):
        if text is not None:
            file.write_text(text, "latin-1")
        with pytest.raises(BadCard, match=why):
            card_in(str(file))
    with pytest.raises(BadCard, match="nothing to serve"):
        kinds_of(AgentCard(), [])
    with pytest.raises(BadCard, match="'a b' is no kind"):
        kinds_of(AgentCard(skills=[AgentSkill(id="a b")]), [])


def test_a_mistake_of_our_own_is_noted_and_told_without_detail(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InternalError, match=r"^This server has failed; its log tells more\.$"), refusals():
        raise KeyError("secret")
    assert "secret" in caplog.text


# The tables, and the page that prints them.


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head; of each the words in backquotes, or else its text."""
    section = re.split(r"^#+ ", PAGE.split(f"# {heading}\n", 1)[1], flags=re.MULTILINE)[0]
    lines = [line.strip("| ") for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def short(state: TaskState) -> str:
    return TaskState.Name(state).removeprefix("TASK_STATE_")


def test_every_status_of_a_handoff_is_a_state_and_the_page_says_which() -> None:
    assert set(OF_STATUS) == set(Status.__args__)  # type: ignore[attr-defined]
    found = {status: quoted(its)[0] for statuses, its in rows("States") for status in quoted(statuses)}
    assert found == {status: short(its) for status, its in OF_STATUS.items()}


def test_every_record_is_told_or_left_out_and_the_page_says_so() -> None:
    every = {record.__struct_config__.tag for record in records.Record.__subclasses__()}
    assert set(OF_RECORD) < every
    found = {record: quoted(its)[0] for told, its, _ in rows("What a stream tells") for record in quoted(told)}
    assert found == {record: short(its) for record, its in OF_RECORD.items()}
    assert {state for state in OF_RECORD.values() if state in FINAL} == set(FINAL)


def test_every_refusal_has_its_error_and_the_page_says_which() -> None:
    found = {
        code: quoted(its)[0] for codes, its in rows("Errors") for code in quoted(codes) if "_" in code or code.islower()
    }
    assert found == {ours.code: its.__name__ for ours, its in OF_DHP.items()}  # type: ignore[attr-defined]
    assert isinstance(a2a_error(dhp_client.Overloaded("full", after_ms=5)), InternalError)
    assert a2a_error(dhp_client.Overloaded("full", after_ms=5)).data == {
        "code": "overloaded",
        "retry": "later",
        "after_ms": 5,
    }


def test_a_sentence_names_no_worker() -> None:
    record = {"worker": "host-17", "why": "expired", "type": "orphaned"}
    assert sentence(record) == "Its worker was lost: another one goes on from the last checkpoint."
    assert sentence({**record, "why": "stalled"}).startswith("Its worker stalled")
    assert sentence({"type": "released", "worker": "w", "reason": "draining"}) == "Its worker handed it back: draining"
    assert sentence({"type": "suspended", "wake_at": "T"}) == "It was put aside until T."
    refused = {"type": "result_refused", "path": "", "rule": "type", "left": 2}
    assert sentence(refused) == "A result didn't meet the schema at / (type); tries left: 2."
