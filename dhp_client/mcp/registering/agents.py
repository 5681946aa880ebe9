"""The agents that take MCP servers: where each keeps them, and in which form.

Owns the table. Pure: the home directory and the environment are arguments. Does not look whether anything is there.
"""

import enum
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct


class Format(enum.Enum):
    """How a configuration is written. JSON may have comments: what can't read them won't find any."""

    JSON = "JSON"
    TOML = "TOML"


class Place(enum.Enum):
    """What a path in the table begins at."""

    HOME = "home"
    CONFIG = "config"
    """What the system keeps programs' settings in: `~/.config`, or `~/Library/Application Support`."""


class Agent(Struct, frozen=True, kw_only=True):
    """One agent. `group` is the object or table that holds the servers, `further` what an entry has besides command and arguments.

    `of_user` is the file for everything that the person does (`moved_by` names the variable that says where its folder is instead),
    `of_project` the one within a project (None: there is none). `traces`, below the same place as `of_user`, and `programs`, on the
    search path, tell that the agent is in use here.
    """

    name: str
    title: str
    group: str = "mcpServers"
    format: Format = Format.JSON
    further: dict[str, str] = {}
    place: Place = Place.HOME
    of_user: str
    moved_by: str | None = None
    of_project: str | None = None
    traces: tuple[str, ...]
    programs: tuple[str, ...] = ()


AGENTS = (
    Agent(
        name="claude-code",
        title="Claude Code",
        further={"type": "stdio"},
        of_user=".claude.json",
        moved_by="CLAUDE_CONFIG_DIR",
        of_project=".mcp.json",
        traces=(".claude.json", ".claude"),
        programs=("claude",),
    ),
    Agent(
        name="claude-desktop",
        title="Claude Desktop",
        place=Place.CONFIG,
        of_user="Claude/claude_desktop_config.json",
        traces=("Claude",),
    ),
    Agent(
        name="cursor",
        title="Cursor",
        of_user=".cursor/mcp.json",
        of_project=".cursor/mcp.json",
        traces=(".cursor",),
        programs=("cursor", "cursor-agent"),
    ),
    Agent(
        name="vscode",
        title="VS Code",
        group="servers",
        further={"type": "stdio"},
        place=Place.CONFIG,
        of_user="Code/User/mcp.json",
        of_project=".vscode/mcp.json",
        traces=("Code",),
        programs=("code",),
    ),
    Agent(
        name="gemini",
        title="Gemini CLI",
        of_user=".gemini/settings.json",
        of_project=".gemini/settings.json",
        traces=(".gemini",),
        programs=("gemini",),
    ),
    Agent(
        name="codex",
        title="Codex CLI",
        group="mcp_servers",
        format=Format.TOML,
        of_user=".codex/config.toml",
        moved_by="CODEX_HOME",
        of_project=".codex/config.toml",
        traces=(".codex",),
        programs=("codex",),
    ),
    Agent(
        name="windsurf",
        title="Windsurf",
        of_user=".codeium/windsurf/mcp_config.json",
        traces=(".codeium/windsurf",),
        programs=("windsurf",),
    ),
    Agent(
        name="zed",
        title="Zed",
        group="context_servers",
        further={"source": "custom"},
        of_user=".config/zed/settings.json",
        of_project=".zed/settings.json",
        traces=(".config/zed",),
        programs=("zed", "zeditor"),
    ),
)


class Machine(Struct, frozen=True):
    """Whose settings are meant: a person's home, the environment, and whether it is a Mac."""

    home: Path
    environment: Mapping[str, str] = {}
    mac: bool = False

    def base(self, place: Place) -> Path:
        """Where paths of that place begin."""
        if place is Place.HOME:
            return self.home
        if self.mac:
            return self.home / "Library" / "Application Support"
        return Path(self.environment.get("XDG_CONFIG_HOME") or self.home / ".config")


def file_of(agent: Agent, machine: Machine, project: Path | None) -> Path | None:
    """The file to enter it in: the person's, or the project's; None where the agent has none for projects."""
    if project is not None:
        return None if agent.of_project is None else project / agent.of_project
    moved_to = machine.environment.get(agent.moved_by) if agent.moved_by is not None else None
    if moved_to:
        return Path(moved_to) / Path(agent.of_user).name
    return machine.base(agent.place) / agent.of_user


def traces_of(agent: Agent, machine: Machine) -> list[Path]:
    """What is there where the agent is in use."""
    return [machine.base(agent.place) / trace for trace in agent.traces]
