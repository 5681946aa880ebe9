"""`dhp mcp register` changes one entry of an agent's configuration, and nothing else: not a blank, and no file that isn't what it looks."""

import json
import os
import shlex
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhp_client.cli.main import exit_code
from dhp_client.cli.registering import this_program
from dhp_client.mcp.registering import files, json_text, toml_text
from dhp_client.mcp.registering.agents import AGENTS, Format, Machine, file_of
from dhp_client.mcp.registering.entries import Command, entered, is_entered, removed, snippet
from dhp_client.mcp.registering.refusals import NotChanged

from ..pages.blocks import block

AGENT = {agent.name: agent for agent in AGENTS}
COMMAND = Command("/opt/dhp bin/dhp", ["mcp", "--connect", '/home/a"b/.dhp'])
PROGRAM = {"command": COMMAND.program, "args": COMMAND.arguments}


def test_every_agent_gets_its_own_form() -> None:
    shown = {agent.name: snippet(agent, COMMAND) for agent in AGENTS}
    for name in ("claude-desktop", "cursor", "gemini", "windsurf"):
        assert json.loads(shown[name]) == {"mcpServers": {"dhp": PROGRAM}}
    assert json.loads(shown["claude-code"]) == {"mcpServers": {"dhp": {"type": "stdio", **PROGRAM}}}
    assert json.loads(shown["vscode"]) == {"servers": {"dhp": {"type": "stdio", **PROGRAM}}}
    assert json.loads(shown["zed"]) == {"context_servers": {"dhp": {"source": "custom", **PROGRAM}}}
    assert tomllib.loads(shown["codex"]) == {"mcp_servers": {"dhp": PROGRAM}}


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_a_file_that_is_not_there_or_blank_is_made(agent: Any) -> None:
    for before in ("", "\n"):
        made = entered(agent, before, COMMAND)
        assert made.strip() == snippet(agent, COMMAND).strip()
        assert is_entered(agent, made)
        assert entered(agent, made, COMMAND) == made, "again it stays as it is"
        assert not is_entered(agent, removed(agent, made))


def test_where_each_file_is() -> None:
    home = Path("/home/a")
    places = {agent.name: file_of(agent, Machine(home), None) for agent in AGENTS}
    assert places["claude-desktop"] == home / ".config/Claude/claude_desktop_config.json"
    assert places["codex"] == home / ".codex/config.toml"
    moved = Machine(home, {"CODEX_HOME": "/c", "CLAUDE_CONFIG_DIR": "/d", "XDG_CONFIG_HOME": "/x"})
    assert file_of(AGENT["codex"], moved, None) == Path("/c/config.toml")
    assert file_of(AGENT["claude-code"], moved, None) == Path("/d/.claude.json")
    assert file_of(AGENT["vscode"], moved, None) == Path("/x/Code/User/mcp.json")
    mac = Machine(home, mac=True)
    assert file_of(AGENT["vscode"], mac, None) == home / "Library/Application Support/Code/User/mcp.json"
    assert file_of(AGENT["claude-code"], moved, Path("/p")) == Path("/p/.mcp.json")
    assert file_of(AGENT["windsurf"], moved, Path("/p")) is None


COMMENTED = """\
// My settings, with a trailing comma.
{
\t"theme": "dark", /* of course */
\t"mcpServers": {
\t\t// The files.
\t\t"files": { "command": "npx", "args": ["-y", "files"], },
\t},
}
"""


def test_what_else_is_in_a_file_stays_byte_for_byte() -> None:
    agent = AGENT["gemini"]
    for before in (
        COMMENTED,
        COMMENTED.replace("\n", "\r\n"),
        "\ufeff" + COMMENTED,
        '{"a":1,"mcpServers":{"files":{"command":"x"}}}',
        '{\n    "mcpServers": {\n        "é": {}\n    },\n    "big": 1e400, "precise": 0.10\n}\n',
        '{\n  "mcpServers": {\n    "x": {}\n  }\n}',
    ):
        after = entered(agent, before, COMMAND)
        assert after != before
        assert json_text.read(after)["mcpServers"]["dhp"] == PROGRAM
        assert entered(agent, after, COMMAND) == after
        assert removed(agent, after) == before, "and taken out again it is what it was"
    assert entered(agent, COMMENTED, COMMAND).startswith(
        '// My settings, with a trailing comma.\n{\n\t"theme": "dark", /* of course */\n\t"mcpServers": {\n\t\t"dhp": {\n\t\t\t"command"'
    )


def test_what_a_person_added_to_the_entry_stays() -> None:
    agent = AGENT["gemini"]
    before = '{"mcpServers": {"dhp": {"command": "/old/dhp", "trust": true /* yes */, "args": []}}}'
    after = entered(agent, before, COMMAND)
    assert json_text.read(after) == {"mcpServers": {"dhp": {**PROGRAM, "trust": True}}}
    assert "/* yes */" in after
    codex = AGENT["codex"]
    before = '[mcp_servers.dhp]\ncommand = "/old/dhp"\nargs = []\nstartup_timeout_sec = 60 # slow\n\n[mcp_servers.dhp.env]\nA = "1"\n\n[tui]\n'
    after = entered(codex, before, COMMAND)
    assert tomllib.loads(after)["mcp_servers"]["dhp"] == {**PROGRAM, "startup_timeout_sec": 60, "env": {"A": "1"}}
    assert after.endswith('startup_timeout_sec = 60 # slow\n\n[mcp_servers.dhp.env]\nA = "1"\n\n[tui]\n')
    assert removed(codex, after) == "[tui]\n"


def test_toml_keeps_what_else_it_holds() -> None:
    codex = AGENT["codex"]
    for before in (
        'model = "o"\n\n# Mine.\n[mcp_servers.files]\ncommand = "x"\n',
        'model = "o"\r\n',
        'text = """\n[mcp_servers.dhp]\n"""\n',
    ):
        after = entered(codex, before, COMMAND)
        assert after.startswith(before)
        assert tomllib.loads(after)["mcp_servers"]["dhp"] == PROGRAM
        assert entered(codex, after, COMMAND) == after
        assert "\n" not in after.replace("\r\n", "") if "\r\n" in before else "\r" not in after
    assert removed(codex, entered(codex, 'model = "o"\n', COMMAND)) == 'model = "o"\n'


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("cursor", "{", "no JSON: see line 1"),
        ("cursor", '{"a": 1\n"b": 2}', "no JSON: see line 2"),
        ("cursor", "[]", "no JSON object"),
        ("cursor", '{"mcpServers": []}', "is no object"),
        ("cursor", '{"mcpServers": {}, "mcpServers": {}}', "twice"),
        ("cursor", "[" * 500, "nested too deeply"),
        ("cursor", "{} {}", "no JSON"),
        ("codex", "a = ", "no TOML"),
        ("codex", 'mcp_servers = { files = { command = "x" } }', "a way of its own"),
        ("codex", 'mcp_servers.dhp.command = "/old/dhp"', "a way of its own"),
        ("codex", '[mcp_servers.dhp]\nargs = [\n"a",\n]\ncommand = "/old/dhp"\n', "a way of its own"),
        ("codex", "a = " + "9" * 5_000, "no TOML"),
        ("cursor", '{"a": ' + "9" * 5_000 + "}", "thousands of digits"),
        ("codex", "mcp_servers = 1", "is no table"),
        ("codex", "mcp_servers.dhp = 1", "is no table"),
    ],
)
def test_what_can_not_be_changed_without_a_risk_is_left(name: str, text: str, why: str) -> None:
    with pytest.raises(NotChanged, match=why):
        entered(AGENT[name], text, COMMAND)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cursor", '{"mcpServers": {"dhp": {"command": "dhp-mcp", "env": {"A": "theirs"}}}}'),
        ("cursor", '{"mcpServers": {"dhp": {"type": "http", "url": "http://127.0.0.1:8473/mcp"}}}'),
        ("windsurf", '{"mcpServers": {"dhp": {"serverUrl": "https://a.example/mcp"}}}'),
        ("zed", '{"context_servers": {"dhp": {"command": {"path": "dhp", "args": []}}}}'),
        ("codex", '[mcp_servers.dhp]\ncommand = "uvx"\nargs = ["dhp-mcp"]\n'),
        ("codex", '[mcp_servers.dhp]\nurl = "https://a.example/mcp"\n'),
    ],
)
def test_another_server_of_that_name_is_neither_changed_nor_taken_out(name: str, text: str) -> None:
    for change in (lambda: entered(AGENT[name], text, COMMAND), lambda: removed(AGENT[name], text)):
        with pytest.raises(NotChanged, match="another server"):
            change()
    assert is_entered(AGENT[name], text)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_an_entry_of_an_earlier_install_is_brought_up_to_date(agent: Any) -> None:
    for earlier in (Command("dhp", ["mcp"]), Command("/old/python", ["-P", "-m", "dhp_client.cli", "mcp"])):
        assert entered(agent, entered(agent, "", earlier), COMMAND) == entered(agent, "", COMMAND)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.sampled_from(["mcpServers", "a", "dhp", ""]), st.dictionaries(st.text(max_size=4), JSON, max_size=3)
    ),
    st.sampled_from([None, 0, 2, "\t"]),
    st.booleans(),
)
def test_any_json_keeps_everything_but_the_entry(
    found: dict[str, Any], indent: int | str | None, ascii_only: bool
) -> None:
    before = json.dumps(found, indent=indent, ensure_ascii=ascii_only)
    after = entered(AGENT["cursor"], before, COMMAND)
    servers = found.get("mcpServers", {})
    there = servers.get("dhp")
    wanted = {**there, **PROGRAM} if isinstance(there, dict) else PROGRAM
    assert json.loads(after) == {**found, "mcpServers": {**servers, "dhp": wanted}}
    if "dhp" not in servers and "mcpServers" in found:
        assert json.loads(removed(AGENT["cursor"], after)) == found


# --- the files ------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home in which nothing is installed."""
    made = tmp_path / "home"
    made.mkdir()
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "DHP_CONNECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return made


Run = Any


@pytest.fixture
def register(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `dhp mcp register`; its exit code, and what it wrote."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = exit_code(["mcp", "register", *arguments])
        written = capsys.readouterr()
        return code, written.out, written.err

    return run


def told(out: str) -> dict[str, Any]:
    return {facts["agent"]: facts for facts in map(json.loads, out.splitlines())}


def test_what_is_found_is_entered_once_and_taken_out_again(home: Path, register: Run) -> None:
    (home / ".cursor").mkdir()
    (home / ".codex").mkdir()
    settings = home / ".codex" / "config.toml"
    settings.write_text('model = "o"\n')
    settings.chmod(0o640)
    code, out, err = register("--json")
    assert (code, err) == (0, "")
    assert {name: facts["outcome"] for name, facts in told(out).items()} == {
        "Cursor": "entered",
        "Codex CLI": "entered",
    }
    entry = json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]["dhp"]
    assert os.path.isabs(entry["command"])
    assert entry["args"][-3:] == ["mcp", "--connect", f"{home}/.dhp"]
    assert stat.S_IMODE(settings.stat().st_mode) == 0o640
    assert stat.S_IMODE((home / ".cursor/mcp.json").stat().st_mode) == 0o600
    backup = Path(told(out)["Codex CLI"]["backup"])
    assert (backup.read_text(), stat.S_IMODE(backup.stat().st_mode)) == ('model = "o"\n', 0o640)
    again = settings.read_text()
    assert {facts["outcome"] for facts in told(register("--json")[1]).values()} == {"unchanged"}
    assert settings.read_text() == again
    code, out, _ = register("codex", "--remove")
    assert (code, settings.read_text()) == (0, 'model = "o"\n')
    assert out.startswith(f"Codex CLI: removed, {settings} (what it was: ")
    assert sorted(os.listdir(home / ".codex")) == ["config.toml", "config.toml.before-dhp"]


def test_looking_changes_nothing(home: Path, register: Run) -> None:
    (home / ".gemini").mkdir()
    assert register("--list")[1].splitlines()[4].split()[:4] == ["gemini", "found", "not", "entered"]
    code, out, _ = register("--print")
    assert code == 0
    assert out.startswith(f"Gemini CLI: {home}/.gemini/settings.json would get\n{{\n")
    assert list((home / ".gemini").iterdir()) == []


def test_an_agent_is_also_found_by_its_program(home: Path, register: Run, tmp_path: Path) -> None:
    assert register()[0] == 1, "nobody is here"
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert told(register("--list", "--json")[1])["claude-code"]["found"]
    assert exit_code(shlex.split(block("docs/mcp.md", "One line to register", "sh"))[1:]) == 0
    assert json.loads((home / ".claude.json").read_text())["mcpServers"]["dhp"]["type"] == "stdio"


def test_a_projects_file_is_for_all_who_share_it(home: Path, register: Run, tmp_path: Path) -> None:
    code, _, _ = register("claude-code", "--project", str(tmp_path))
    file = tmp_path / ".mcp.json"
    assert (code, stat.S_IMODE(file.stat().st_mode)) == (0, 0o644)
    assert json.loads(file.read_text())["mcpServers"]["dhp"]["args"][-1] == "mcp"
    assert register("windsurf", "--project", str(tmp_path))[0] == 2


def test_where_the_daemon_is_and_who_asks_is_entered_but_no_secret(
    home: Path, register: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DHP_TOKEN", "secret")
    for arguments in (("--connect", "unix:./s", "--token-file", "t"), ("--approver-token-file", "a", "--name", "x")):
        code, out, _ = register("cursor", "--print", *arguments)
        assert code == 0
        assert "secret" not in out
        entry = json.loads(out.split("\n", 1)[1])["mcpServers"]["dhp"]["args"]
        where = ["--connect", f"unix:{tmp_path}/s"] if "--connect" in arguments else ["--connect", f"{home}/.dhp"]
        files_ = (
            ["--token-file", f"{tmp_path}/t"]
            if "--connect" in arguments
            else ["--approver-token-file", f"{tmp_path}/a", "--name", "x"]
        )
        assert entry[-5 - 2 * ("--name" in arguments) :] == ["mcp", *where, *files_]


def test_a_file_that_is_not_what_it_looks_is_left_and_what_to_do_is_told(
    home: Path, register: Run, tmp_path: Path
) -> None:
    (home / ".cursor").mkdir()
    file = home / ".cursor" / "mcp.json"
    target = tmp_path / "dotfiles.json"
    target.write_text("{}")

    def is_left(why: str) -> None:
        code, out, _ = register("cursor", "--json")
        facts = told(out)["Cursor"]
        assert (code, facts["outcome"]) == (1, "left")
        assert why in facts["reason"]
        assert json.loads(facts["snippet"])["mcpServers"]["dhp"]
        assert "Enter this yourself:" in register("cursor")[1]

    file.symlink_to(target)
    is_left(f"it is a link, to {target}")
    assert target.read_text() == "{}"
    target.unlink()
    is_left("it is a link, to")
    file.unlink()
    os.mkfifo(file)
    is_left("it is no plain file")
    file.unlink()
    file.write_bytes(b"\xff")
    is_left("it isn't UTF-8")
    file.write_text("{}")
    os.link(file, tmp_path / "other")
    is_left("it has another name too")
    file.unlink()
    file.write_text("{}")
    file.chmod(0o400)
    is_left("it is write-protected")
    file.unlink()
    file.write_text("{")
    is_left("it is no JSON")
    assert file.read_text() == "{"
    assert os.listdir(home / ".cursor") == ["mcp.json"], "nothing is left behind"


def test_a_change_by_somebody_else_in_between_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("{}")
    found = files.read(file)
    file.write_text('{"new": 1}')
    with pytest.raises(NotChanged, match="try again"):
        files.replace(file, found, "mine")
    assert file.read_text() == '{"new": 1}'
    missing = files.read(tmp_path / "y.json")
    (tmp_path / "y.json").write_text("theirs")
    with pytest.raises(NotChanged, match="try again"):
        files.replace(tmp_path / "y.json", missing, "mine")


def test_a_backup_goes_in_the_place_of_a_link_not_through_it(tmp_path: Path) -> None:
    file, important = tmp_path / "x.json", tmp_path / "important"
    file.write_text("{}")
    important.write_text("important")
    (tmp_path / "x.json.before-dhp").symlink_to(important)
    assert files.replace(file, files.read(file), "{ }") == tmp_path / "x.json.before-dhp"
    assert important.read_text() == "important"
    assert (tmp_path / "x.json.before-dhp").read_text() == "{}"


def test_the_program_is_found_without_a_search_path(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "python"
    assert this_program("/nowhere/dhp_client/cli/__main__.py", str(python)) == (
        str(python),
        ["-P", "-m", "dhp_client.cli"],
    )
    beside = tmp_path / "venv" / "dhp"
    beside.parent.mkdir()
    beside.write_text("")
    beside.chmod(0o755)
    assert this_program("pytest", str(python)) == (str(beside), [])
    linked = tmp_path / "dhp"
    linked.symlink_to(beside)
    assert this_program(str(linked), str(python)) == (str(linked), [])


def test_all_that_has_comments_can_be_read() -> None:
    assert json_text.read('/* a */ {"a": [1, // b\n 2,], "c": {},} // d') == {"a": [1, 2], "c": {}}
    assert json_text.with_value('{"a": {"b": 1}}', ("a", "b"), 2) == '{"a": {"b": 2}}'
    assert json_text.without('{"a": 1, "b": 2, "c": 3}', ("b",)) == '{"a": 1, "c": 3}'
    assert json_text.without('{"a": 1, "b": 2}', ("b",)) == '{"a": 1}'
    assert json_text.without('{"a": 1, // of a\n "b": 2}', ("b",)) == '{"a": 1 // of a\n }'
    assert json_text.without('{"a": 1}', ("a",)) == "{}"
    assert json_text.without('{"a": 1 /* x */}', ("a",)) == "{ /* x */}"
    assert toml_text.read("a = 1") == {"a": 1}
    assert {agent.format for agent in AGENTS} == set(Format)
