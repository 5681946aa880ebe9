"""Putting the service on a machine, and taking it away again.

Owns the order of steps, and that the settings and the store outlive all of it. Does not own the files' text (`units`).
"""

import ipaddress
import os
import pwd
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from dhp_protocol.places import host_and_port
from dhpd.config import ConfigError, load_config

from . import files, units
from .placing import unreachable
from .systemctl import Systemctl, SystemdError, make_user, runtime_folder

TOKENS = "tokens.toml"
CONFIG_MODE, CONFIG_FOLDER_MODE = 0o640, 0o750


def check_addresses(plan: units.Plan, root: Path, asked: Sequence[str]) -> None:
    """Raises `ConfigError` where the daemon would refuse these addresses, with the settings that are there, or systemd would.

    `asked`: those of them that were asked for.
    """
    from dhpd.server.listeners import addresses_of

    texts = [text.replace("%t", str(runtime_folder())) for text in plan.listen]
    file = under(root, plan.config)
    there = os.path.exists(file)
    config = load_config(file if there else None, {}, {"listen": texts})
    addresses_of(config, Path(plan.data))
    if there and not plan.with_socket:
        before = load_config(file, {}, {}).listen
        if before is None or (asked and list(asked) != before):
            wanted = units.listen_setting(plan.listen)
            raise ConfigError(
                f"{file} is there already, and is kept: put `{wanted}` into it, and run this again without --listen."
            )
    for text in texts if plan.with_socket else []:
        if text.startswith("unix:"):
            if not text.startswith("unix:/"):
                raise ConfigError(f"{text}: systemd needs the whole path, as in {plan.listen[0]}.")
        elif not _is_number(text):
            raise ConfigError(f"{text}: systemd listens on numbers only, as in 127.0.0.1:8471; or add --no-socket.")


def with_addresses_kept(plan: units.Plan, root: Path) -> units.Plan:
    """The plan, with the addresses that systemd listens on as it is: a newer version isn't to move away from its clients."""
    file = under(root, plan.units / units.SOCKET)
    if not plan.with_socket or not file.exists() or not files.is_unchanged(file):
        return plan
    return replace(plan, listen=units.listened_on(file.read_text()))


def write(plan: units.Plan, root: Path, *, force: bool) -> Iterator[str]:
    """Writes what isn't there yet, a line for each file; raises `files.Changed`, before anything is written."""
    texts = {under(root, path): files.marked(text, plan.version) for path, text in units.files_of(plan).items()}
    written = files.write_all(texts, force=force)
    for path in texts:
        yield f"{'wrote' if path in written else 'unchanged':10} {path}"
    config = under(root, plan.config)
    if config.exists():
        yield f"{'kept':10} {config}"
        return
    private = not plan.for_user
    config.parent.mkdir(mode=CONFIG_FOLDER_MODE if private else 0o700, parents=True, exist_ok=True)
    files.put(config, units.settings_of(plan), CONFIG_MODE if private else 0o600)
    yield f"{'wrote':10} {config}"
    tokens = config.with_name(TOKENS)
    if private and not tokens.exists():
        files.put(tokens, "", CONFIG_MODE)  # `dhpd token` keeps whose it is, and who may read it.


def check_possible(plan: units.Plan, systemctl: Systemctl) -> None:
    """Raises `SystemdError` where this machine, or this user, can't have the service run."""
    systemctl.check_runs()
    if plan.for_user:
        return
    if os.geteuid() != 0:
        raise SystemdError("Only root can install it for the machine: run this by sudo, or add --user.")
    if (hidden := unreachable()) is not None:
        raise SystemdError(
            f"The service's user can't get at {hidden}. Install dhpd where everybody can: `python3 -m venv /opt/dhpd`, "
            "`/opt/dhpd/bin/pip install dhpd`, and then `/opt/dhpd/bin/dhpd service install`; or add --user."
        )


def start(plan: units.Plan, systemctl: Systemctl) -> None:
    """Has systemd take up the files, start the service now, or anew where it runs, and at every start of the machine."""
    if plan.sysusers is not None:
        make_user(Path(plan.sysusers))
        group = pwd.getpwnam(units.USER).pw_gid
        for path in (plan.config.parent, plan.config, plan.config.with_name(TOKENS)):
            if os.path.exists(path):
                os.chown(path, 0, group)
    before = systemctl.show(units.SOCKET, "Listen")
    systemctl.ask("daemon-reload")
    enabled = [units.SOCKET, units.SERVICE] if plan.with_socket else [units.SERVICE]
    systemctl.ask("enable", *enabled)
    if plan.with_socket:
        now = systemctl.show(units.SOCKET, "ActiveState", "Listen")
        if now.pop("ActiveState") != "active":
            systemctl.ask("stop", units.SERVICE)  # One that had opened the addresses itself.
        elif now != before:  # A socket that is open stays where it is.
            systemctl.ask("stop", units.SOCKET, units.SERVICE)
        systemctl.ask("start", units.SOCKET)
    systemctl.ask("restart", units.SERVICE)


def stop_and_remove(unit_files: Iterable[PurePosixPath], systemctl: Systemctl, *, force: bool) -> Iterator[str]:
    """Stops the service and removes its files, a line for each; raises `files.Changed`, before anything is done."""
    there = [Path(path) for path in unit_files if Path(path).exists()]
    files.refuse_changed(there, force=force, todo=files.REMOVE)
    names = [path.name for path in there if path.name in (units.SOCKET, units.SERVICE)]
    if names:
        systemctl.ask("disable", "--now", *names)
    for path in files.remove_all(there, force=True):
        yield f"{'removed':10} {path}"
    if names:
        systemctl.ask("daemon-reload")


def what_is_kept(plan: units.Plan) -> str:
    """Where the settings and the store are left, in a sentence or two."""
    config = Path(plan.config)
    try:
        data = load_config(config, {}, {}).data
    except ConfigError:
        data = str(plan.data)
    kept = [str(path) for path in (config.parent, Path(data)) if os.path.exists(path)]
    if not kept:
        return "Nothing of it is left."
    mode = " --user" if plan.for_user else ""
    return f"Kept: {' and '.join(kept)}. The store is in {data}: `dhpd service install{mode}` goes on with it. Delete it only if nobody needs that work."


def under(root: Path, path: PurePosixPath) -> Path:
    """The place of `path` in a file system that lies at `root`."""
    return root / path.relative_to("/")


def _is_number(address: str) -> bool:
    found = host_and_port(units.place_of(address))
    try:
        ipaddress.ip_address("" if found is None else found[0])
    except ValueError:
        return False
    return True
