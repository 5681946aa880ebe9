"""SPEC.md says what the code does: members and defaults, records, limits, errors, worked examples."""

import hashlib
import re
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from dhp_protocol.decoding import OPS
from dhp_protocol.errors import ERROR_BY_CODE
from dhp_protocol.intent import Intent, canonical_intent, handoff_id
from dhp_protocol.limits import Limits
from dhp_protocol.messages import AnyRequest, WorkError
from dhp_protocol.replies import AnyEvent, HealthReply, StatsReply, StatusReply
from dhpd.engine.budget import CAPS, Budget
from dhpd.engine.records import AnyRecord
from dhpd.engine.roles import OPERATION_ROLES, ROLES
from dhpd.engine.views import record_view

SPEC = (Path(__file__).parents[2] / "protocol" / "SPEC.md").read_text("utf-8")
REQUESTS = {cls.__struct_config__.tag: cls for cls in get_args(AnyRequest)}


def section(heading: str) -> str:
    """The text under one heading, up to the next one of its level or above."""
    level = heading.split(" ")[0]
    start = SPEC.index(f"\n{heading}") + 1
    end = re.compile(rf"^#{{2,{len(level)}}} ", re.MULTILINE).search(SPEC, start + len(heading))
    return SPEC[start : end.start() if end else None]


def rows(text: str) -> list[list[str]]:
    """The cells of the text's tables, without heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {number for number, line in enumerate(lines) if set(line) <= set("|- ")}
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for number, line in enumerate(lines)
        if number not in heads and number + 1 not in heads
    ]


def names(cell: str) -> list[str]:
    return re.findall(r"`([a-z_0-9]+)`", cell)


def test_every_operation_has_a_section_and_nothing_else_has() -> None:
    assert sorted(re.findall(r"^### `([a-z_]+)`$", SPEC, re.MULTILINE)) == sorted(OPS)


@pytest.mark.parametrize("op", sorted(OPS))
def test_an_operations_table_has_its_members_and_their_defaults(op: str) -> None:
    table = {names(row[0])[0]: row[2] for row in rows(section(f"### `{op}`")) if len(row) == 4}
    fields = {
        field.encode_name: field
        for field in msgspec.structs.fields(REQUESTS[op])
        if field.name not in ("id", "traceparent")
    }
    assert table.keys() == fields.keys()
    for name, field in fields.items():
        said = table[name].strip("`").replace(",", "")
        if field.required:
            assert said == "required", name
        elif field.default is msgspec.UNSET:
            # Absent members that mean a value are told by that value.
            assert said in ("absent", "{}", "6000"), name
        else:
            assert said == msgspec.json.encode(field.default).decode(), name


def test_every_member_of_a_status_is_told() -> None:
    told = [name for row in rows(section("### `status`")) if len(row) == 2 for name in names(row[0])]
    assert sorted(told) == sorted(StatusReply.__struct_fields__)


@pytest.mark.parametrize(("op", "reply"), [("stats", StatsReply), ("health", HealthReply)])
def test_every_member_of_a_report_is_told(op: str, reply: type[msgspec.Struct]) -> None:
    assert set(reply.__struct_fields__) <= set(names(section(f"### `{op}`")))


def test_the_limits_are_those_of_the_code() -> None:
    told = {names(row[0])[0]: int(row[1]) for row in rows(section("## 11 Limits"))}
    assert told == msgspec.to_builtins(Limits())


def test_the_errors_are_those_of_the_registry() -> None:
    told = [(names(row[0])[0], row[1]) for row in rows(section("## 12 Errors"))]
    assert told == [(code, cls.retry) for code, cls in ERROR_BY_CODE.items()]


def test_the_events_are_those_of_the_code() -> None:
    told = {names(row[0])[0]: set(names(row[1])) for row in rows(section("## 9 Events"))}
    assert told == {cls.__struct_config__.tag: set(cls.__struct_fields__) for cls in get_args(AnyEvent)}


def a_full(record: type[AnyRecord]) -> AnyRecord:
    """A record of this type that has every member it may have."""
    samples = {"error": WorkError(type="Timeout"), "budget": Budget(), "ancestors": ("p",), "labels": {"a": "b"}}
    members: dict[str, Any] = {field.name: samples.get(field.name, 1) for field in msgspec.structs.fields(record)}
    return record(**members)


@pytest.mark.parametrize("record", get_args(AnyRecord), ids=lambda record: str(record.__struct_config__.tag))
def test_every_member_of_a_record_is_told(record: type[AnyRecord]) -> None:
    told = {names(row[0])[0]: set(names(row[1])) for row in rows(section("## 8 Records"))}
    shown = record_view(1, a_full(record)).keys() - {"n", "position", "type", "at", "fence"}
    assert shown <= told[str(record.__struct_config__.tag)]


def test_the_caps_and_their_defaults_are_those_of_the_code() -> None:
    told = {names(row[0])[0]: row[2] for row in rows(section("### Budgets"))}
    defaults = {name: getattr(Budget(), "max_usd_nano" if name == "max_usd" else name) for name in CAPS}
    assert told == {name: "none" if default is None else str(default) for name, default in defaults.items()}


def test_the_roles_are_those_of_the_code() -> None:
    told = {names(row[0])[0]: set(names(row[1])) & OPS for row in rows(section("### Tokens and roles"))}
    assert list(told) == list(ROLES)
    told["worker"] |= {op for op, cls in REQUESTS.items() if "fence" in cls.__struct_fields__} - {"suspend"}
    for role in ("dispatcher", "worker", "approver"):
        assert told[role] == {op for op, allowed in OPERATION_ROLES.items() if allowed == {role, "admin"}}, role
    looking = section("### Tokens and roles").split("Every role may also look:")[1].split("is final")[0]
    assert set(names(looking)) == {op for op, allowed in OPERATION_ROLES.items() if allowed == set(ROLES)}


def test_the_worked_example_is_right() -> None:
    text = section("## 4 Identity")
    request, canonical, identity = re.findall(r"```\n(.*)\n```", text)
    intent = msgspec.json.decode(request.encode(), type=Intent)
    assert canonical_intent(intent) == canonical.encode()
    assert handoff_id(canonical.encode()) == identity
    assert f"these {len(canonical.encode())} bytes" in text


def test_the_transcripts_ids_and_hashes_are_real() -> None:
    text = section("## 14 Transcripts")
    requests = [line[2:].encode() for line in text.splitlines() if line.startswith('> {"op":"dispatch"')]
    ids = {handoff_id(canonical_intent(msgspec.json.decode(request, type=Intent))) for request in requests}
    states = {hashlib.sha256(state.encode()).hexdigest() for state in re.findall(r'"state":(\{.*?\})', text)}
    found = set(re.findall(r"[0-9a-f]{64}", text))
    assert ids <= found
    assert found <= ids | states


def test_the_vector_files_are_those_that_are_shipped() -> None:
    shipped = sorted(entry.name for entry in (files("dhp_protocol") / "vectors").iterdir())
    assert shipped == sorted(re.findall(r"`([a-z]+\.json)` \|", section("## 15 Conformance vectors")))


def test_links_lead_to_sections() -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", SPEC, re.MULTILINE)
    }
    links = re.findall(r"\]\(#([^)]*)\)", SPEC)
    assert links
    assert set(links) <= headings
