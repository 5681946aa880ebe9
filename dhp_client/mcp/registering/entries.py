"""The entry of `dhp mcp` in an agent's configuration: text in, text out.

Owns what is entered, and that nothing but this changes. Pure. Raises `NotChanged` where the text isn't what the agent would read.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from . import json_text, toml_text
from .agents import Agent, Format
from .refusals import NotChanged

NAME = "dhp"
"""What the server is called in every configuration."""
MODULE = "dhp_client.cli"
"""What Python is told to run where there is no `dhp` to be found."""


class Command(Struct, frozen=True):
    """What an agent starts: a program by its whole path, and its arguments."""

    program: str
    arguments: Sequence[str]


def entry(agent: Agent, command: Command) -> dict[str, Any]:
    """The entry's members, in the agent's form."""
    return {**agent.further, "command": command.program, "args": list(command.arguments)}


def entered(agent: Agent, text: str, command: Command) -> str:
    """The text with the entry; the same text where it stands there already. What else a person wrote into the entry stays."""
    members = entry(agent, command)
    if agent.format is Format.TOML:
        _check_ours(_tables(text, agent).get(NAME))
        return toml_text.with_table(text, agent.group, NAME, members)
    before = _json(text)
    _check_ours(_servers(before, agent).get(NAME))
    there = _servers(before, agent).get(NAME)
    changed = text
    if isinstance(there, dict):
        for name, value in members.items():
            changed = json_text.with_value(changed, (agent.group, NAME, name), value)
    else:
        changed = json_text.with_value(text, (agent.group, NAME), members)
    wanted = {**members} if not isinstance(there, dict) else {**there, **members}
    return _checked(changed, {**before, agent.group: {**_servers(before, agent), NAME: wanted}})


def removed(agent: Agent, text: str) -> str:
    """The text without the entry; the same text where it has none."""
    if agent.format is Format.TOML:
        _check_ours(_tables(text, agent).get(NAME))
        return toml_text.without_table(text, agent.group, NAME)
    before = _json(text)
    servers = _servers(before, agent)
    if NAME not in servers:
        return text
    _check_ours(servers[NAME])
    left = {name: server for name, server in servers.items() if name != NAME}
    return _checked(json_text.without(text, (agent.group, NAME)), {**before, agent.group: left})


def is_entered(agent: Agent, text: str) -> bool:
    """Whether it has an entry of this name."""
    if agent.format is Format.TOML:
        return NAME in _tables(text, agent)
    return NAME in _servers(_json(text), agent)


def snippet(agent: Agent, command: Command) -> str:
    """What a person may paste, where the file is left as it is."""
    if agent.format is Format.TOML:
        return toml_text.with_table("", agent.group, NAME, entry(agent, command))
    return json.dumps({agent.group: {NAME: entry(agent, command)}}, indent=2, ensure_ascii=False) + "\n"


def _check_ours(found: Any) -> None:
    """Raises where another server is called so: its entry is its own, and half of it would be left in ours."""
    if not isinstance(found, Mapping):
        return
    program, arguments = found.get("command"), found.get("args")
    if program is not None:
        runs = arguments if isinstance(arguments, list) else []
        ours = isinstance(program, str) and (os.path.basename(program) == NAME or MODULE in runs)
    else:
        ours = not any(name.lower().endswith("url") for name in found)
    if not ours:
        raise NotChanged(f"another server is entered there as {NAME}: take it out, or give it another name")


def _tables(text: str, agent: Agent) -> Mapping[str, Any]:
    found = toml_text.read(text).get(agent.group)
    return found if isinstance(found, dict) else {}


def _json(text: str) -> dict[str, Any]:
    found = json_text.read(text)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise NotChanged("it holds no JSON object")
    return found


def _servers(found: dict[str, Any], agent: Agent) -> dict[str, Any]:
    servers = found.get(agent.group, {})
    if not isinstance(servers, dict):
        raise NotChanged(f"its {agent.group} is no object")
    return servers


def _checked(changed: str, wanted: dict[str, Any]) -> str:
    if json_text.read(changed) != wanted:
        raise NotChanged("it is written in a way of its own")
    return changed
