"""The skill says what the tools really are, and its commands do what it says."""

import json
import re
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dhp_client.cli import registering
from dhp_client.cli.main import exit_code
from dhp_client.mcp import answers
from dhp_client.mcp.tools import tools
from tests.support.daemon_process import DaemonProcess

TOOLS = {tool.name: tool for tool in tools()}


@pytest.fixture(scope="module")
def text() -> str:
    shown = CliRunner().invoke(registering.skill, [])
    assert shown.exit_code == 0
    return shown.output


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_it_has_the_front_matter_by_which_agents_find_it(text: str) -> None:
    _, front, _ = text.split("---\n", 2)
    facts = dict(line.split(": ", 1) for line in front.splitlines())
    assert facts.keys() == {"name", "description"}
    assert not re.search(r": | #|^[\"'\[{>|*&!%@`]", facts["description"]), "YAML takes it for more than text"
    assert facts["name"] == registering.SKILL
    assert 0 < len(facts["description"]) <= 1024


def test_every_call_in_it_is_one_that_the_server_takes(text: str) -> None:
    called = [line.partition(" ") for block in blocks(text, "tools") for line in block.splitlines()]
    for name, _, arguments in called:
        TOOLS[name].fn_metadata.arg_model.model_validate(json.loads(arguments))
    assert {name for name, _, _ in called} >= {"dispatch", "claim", "checkpoint", "complete", "recover"}


def test_every_word_in_it_that_looks_like_the_servers_is_the_servers(text: str) -> None:
    arguments = {name for tool in TOOLS.values() for name in tool.parameters["properties"]}
    members = {
        name
        for model in vars(answers).values()
        if isinstance(model, type) and issubclass(model, answers.Answer)
        for name in model.model_fields
    }
    words = {"new", "done", "in_doubt", "completed", "dead", "cancelled", "lease_lost", "result_invalid", "dhp", "dhpd"}
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    said = {word for code in re.findall(r"`([^`]+)`", prose) for word in [code.partition(":")[0].partition(" ")[0]]}
    assert said <= TOOLS.keys() | arguments | members | words


def test_its_commands_do_the_work_that_they_ask_for(
    text: str,
    daemon: DaemonProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DHP_CONNECT", daemon.address)
    monkeypatch.chdir(tmp_path)
    (program,), (commands,) = blocks(text, "sh"), blocks(text, "console")
    (tmp_path / "steps.sh").write_text(program)
    outputs = []
    for line in commands.splitlines():
        name, *arguments = shlex.split(line)
        code = exit_code(arguments)
        written = capfd.readouterr()
        assert (name, code) == ("dhp", 0), written.err
        outputs.append(written.out)
    assert "completed" in outputs[2]


def test_it_is_put_where_agents_look_for_it_and_again_does_nothing(text: str, tmp_path: Path) -> None:
    for _ in range(2):
        put = CliRunner().invoke(registering.skill, ["--into", str(tmp_path)])
        assert (put.exit_code, put.output) == (0, f"{tmp_path}/dhp/SKILL.md\n")
    (file,) = (tmp_path / "dhp").iterdir()
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (text, 0o644)
    file.write_text("mine")
    CliRunner().invoke(registering.skill, ["--into", str(tmp_path)])
    assert {one.name: one.read_text() for one in (tmp_path / "dhp").iterdir()} == {
        "SKILL.md": text,
        "SKILL.md.before-dhp": "mine",
    }


def test_a_link_is_no_place_for_it(tmp_path: Path) -> None:
    (tmp_path / "dhp").mkdir()
    target: Any = tmp_path / "elsewhere"
    target.write_text("important")
    (tmp_path / "dhp" / "SKILL.md").symlink_to(target)
    put = CliRunner().invoke(registering.skill, ["--into", str(tmp_path)], standalone_mode=False)
    assert "is left as it is: it is a link" in str(put.exception)
    assert target.read_text() == "important"
