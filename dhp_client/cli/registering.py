"""`dhp mcp register` and `dhp mcp skill`: having agents start `dhp mcp`, and telling them how to work with it.

Owns the options, which agents are meant, and what is told. How configurations are changed is `dhp_client.mcp.registering`'s.
"""

import importlib.resources
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from ..addresses import DEFAULT_DIRECTORY, ENVIRONMENT_VARIABLE, parse_addresses
from ..mcp.registering import files
from ..mcp.registering.agents import AGENTS, Agent, Machine, file_of, traces_of
from ..mcp.registering.entries import MODULE, Command, entered, is_entered, removed, snippet
from ..mcp.registering.refusals import NotChanged
from .printing import json_line
from .settings import FAILED, OK, Settings, SettingsCommand, warn, with_json, with_settings

SKILL = "dhp"
SKILL_FILE = "SKILL.md"

_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one agent's configuration.

    `outcome`: `entered`, `removed`, `unchanged` (it was so already), `left` (a person has to do it: `reason`, `snippet`), or `shown`.
    """

    agent: str
    file: str
    outcome: str
    backup: str | None = None
    reason: str | None = None
    snippet: str | None = None


@click.command("register", cls=SettingsCommand)
@click.argument("agents", metavar="[AGENT]...", nargs=-1, type=click.Choice([agent.name for agent in AGENTS]))
@click.option("--list", "listing", is_flag=True, help="Show which agents are found here, and change nothing.")
@click.option("--print", "printing", is_flag=True, help="Show what would be entered where, and change nothing.")
@click.option("--remove", "removing", is_flag=True, help="Take the entry out again.")
@click.option("--project", type=_FOLDER, help="Enter it for this project alone, in the file that its agents share.")
@click.option("--approver-token-file", metavar="FILE", help="As `dhp mcp` takes it.")
@with_settings
def register(
    agents: tuple[str, ...],
    listing: bool,
    printing: bool,
    removing: bool,
    project: Path | None,
    approver_token_file: str | None,
) -> int:
    """Have agents on this machine start `dhp mcp`.

    Enters it into the configuration of each AGENT, or of all that are found here; what else stands there stays as it is, and a copy of
    what it was is kept beside it. --connect and the credentials' files are entered with it; without --connect it is
    ~/.dhp, so that all agents of one person share their work (with --project: what `dhp mcp` finds by itself).
    """
    settings = click.get_current_context().ensure_object(Settings)
    machine = Machine(Path.home(), os.environ, sys.platform == "darwin")
    known = [agent for agent in AGENTS if project is None or agent.of_project is not None]
    if listing:
        _list(settings, machine, known, project)
        return OK
    named = [agent for agent in known if agent.name in agents]
    if len(named) < len(agents):
        raise click.UsageError("That agent has no configuration of a project's own: leave --project out.")
    meant = named or [agent for agent in known if _is_found(agent, machine, project)]
    if not meant:
        warn("no agent was found here: name one, such as `dhp mcp register claude-code`.")
        return FAILED
    command = _command(settings, project, approver_token_file)
    told = [_one(agent, machine, project, command, printing=printing, removing=removing) for agent in meant]
    for one in told:
        settings.show(one, _lines(one))
    if any(one.outcome == "entered" for one in told) and not settings.as_json:
        warn("an agent that runs sees it once it is started again.")
    return FAILED if any(one.outcome == "left" for one in told) else OK


@click.command("skill")
@click.option("--into", type=_FOLDER, help=f"Put it there instead, as {SKILL}/{SKILL_FILE}: ~/.claude/skills, say.")
@with_json
def skill(into: Path | None) -> int:
    """Write the skill that teaches an agent to hand work off.

    An agent reads it when it has long work to do; `dhp mcp register` gives it the tools that it speaks of.
    """
    text = (importlib.resources.files("dhp_client.mcp.skill") / SKILL_FILE).read_text("utf-8")
    settings = click.get_current_context().ensure_object(Settings)
    if into is None:
        click.echo(json_line({"skill": text}) + "\n" if settings.as_json else text, nl=False)
        return OK
    file = into / SKILL / SKILL_FILE
    try:
        found = files.read(file, new_mode=0o644)
        if found.text != text:
            files.replace(file, found, text)
    except NotChanged as why:
        raise click.ClickException(f"{file} is left as it is: {why}.") from None
    settings.show({"file": str(file)}, [str(file)])
    return OK


def _one(
    agent: Agent, machine: Machine, project: Path | None, command: Command, *, printing: bool, removing: bool
) -> Registered:
    file = file_of(agent, machine, project)
    assert file is not None, "such agents aren't asked for"
    wanted = snippet(agent, command)
    try:
        found = files.read(file, new_mode=0o600 if project is None else 0o644)
        changed = removed(agent, found.text) if removing else entered(agent, found.text, command)
        if changed == found.text:
            return Registered(agent=agent.title, file=str(file), outcome="unchanged")
        if printing:
            return Registered(agent=agent.title, file=str(file), outcome="shown", snippet=None if removing else wanted)
        backup = files.replace(file, found, changed)
    except NotChanged as why:
        paste = None if removing else wanted
        return Registered(agent=agent.title, file=str(file), outcome="left", reason=str(why), snippet=paste)
    outcome = "removed" if removing else "entered"
    return Registered(
        agent=agent.title, file=str(file), outcome=outcome, backup=None if backup is None else str(backup)
    )


def _lines(one: Registered) -> Iterator[str]:
    match one.outcome:
        case "unchanged":
            yield f"{one.agent}: {one.file} stays as it is."
        case "shown":
            yield f"{one.agent}: {one.file} would {'lose its entry.' if one.snippet is None else 'get'}"
        case "left":
            paste = "" if one.snippet is None else " Enter this yourself:"
            yield f"{one.agent}: {one.file} is left as it is: {one.reason}.{paste}"
        case _:
            kept = "" if one.backup is None else f" (what it was: {one.backup})"
            yield f"{one.agent}: {one.outcome}, {one.file}{kept}"
    yield from ("" if one.snippet is None else one.snippet).splitlines()


def _list(settings: Settings, machine: Machine, known: list[Agent], project: Path | None) -> None:
    for agent in known:
        file = file_of(agent, machine, project)
        assert file is not None, "such agents aren't asked for"
        found = _is_found(agent, machine, project)
        there: bool | None
        try:
            there = is_entered(agent, files.read(file).text)
        except NotChanged:
            there = None
        facts: dict[str, Any] = {"agent": agent.name, "found": found, "entered": there, "file": str(file)}
        stands = {True: "entered", False: "not entered", None: "unreadable"}[there]
        settings.show(facts, [f"{agent.name:<15} {'found' if found else 'not found':<10} {stands:<12} {file}"])


def _is_found(agent: Agent, machine: Machine, project: Path | None) -> bool:
    """Whether it is in use: its program is there, or its settings; of a project, the folder or the file that it looks for."""
    if project is not None:
        file = file_of(agent, machine, project)
        return file is not None and (file.exists() or (file.parent != project and file.parent.is_dir()))
    return any(trace.exists() for trace in traces_of(agent, machine)) or any(map(shutil.which, agent.programs))


def _command(settings: Settings, project: Path | None, approver_token_file: str | None) -> Command:
    """This very program, wherever an agent stands and whatever its search path is."""
    connect = settings.connect or os.environ.get(ENVIRONMENT_VARIABLE)
    if connect is None and project is None:
        connect = str(Path.home() / DEFAULT_DIRECTORY)
    arguments = ["mcp"]
    if connect is not None:
        (address,) = parse_addresses(connect, trust=settings.trust())
        arguments += ["--connect", str(address)]
    given = {
        "--token-file": settings.token_file,
        "--ca-file": settings.ca_file,
        "--cert-file": settings.cert_file,
        "--key-file": settings.key_file,
        "--approver-token-file": approver_token_file,
    }
    for option, file in given.items():
        if file is not None:
            arguments += [option, os.path.abspath(file)]
    for option, name in (("--server-name", settings.server_name), ("--name", settings.name)):
        if name is not None:
            arguments += [option, name]
    program, first = this_program(sys.argv[0], sys.executable)
    return Command(program, [*first, *arguments])


def this_program(called: str, python: str) -> tuple[str, list[str]]:
    """The whole path of the `dhp` that runs, and the arguments that have to come first.

    A link to it is taken as it is: it outlives an upgrade of where it leads.
    """
    beside = os.path.join(os.path.dirname(python), "dhp")
    by_name = shutil.which(called) if os.path.basename(called) == "dhp" else None
    for candidate in (by_name, beside):
        if candidate is not None and os.access(candidate, os.X_OK):
            return os.path.abspath(candidate), []
    return python, ["-P", "-m", MODULE]
