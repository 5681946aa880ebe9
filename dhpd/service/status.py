"""How the service is: installed, running, where, and what the daemon itself says, through the protocol.

Owns what is looked at, in which order, and what to do next. Changes nothing.
"""

import json
import socket
from pathlib import Path
from typing import Any

from msgspec import Struct

from dhp_protocol.places import host_and_port
from dhpd.config import ConfigError, load_config

from . import files, units
from .systemctl import Systemctl, runtime_folder

HEALTHY, UNWELL, STOPPED, NOT_INSTALLED = 0, 1, 3, 4
ANSWER_WITHIN_S = 5.0
MAX_ANSWER_BYTES = 64 * 1024

_WANTED = (
    *("LoadState", "FragmentPath", "UnitFileState", "ActiveState", "SubState"),
    *("MainPID", "NRestarts", "StatusText", "Result", "ExecMainStatus"),
)
_ENDS = {
    "exit-code, 1": "the store, the directory or an address can't be used",
    "exit-code, 2": "a setting can't be used",
    "watchdog, 6": "it stood still, and the watchdog ended it",
}
_ASK = b'{"op":"health"}\n'


class Status(Struct, kw_only=True):
    """What was found. `code` is the command's exit code; `todo` a sentence, or nothing where all is well."""

    code: int = HEALTHY
    units: list[str] = []
    changed: list[str] = []
    enabled: str = ""
    state: str = ""
    pid: int = 0
    restarts: int = 0
    told: str = ""
    """The daemon's own words to systemd."""
    addresses: list[str] = []
    health: str = ""
    todo: str = ""

    def lines(self) -> list[str]:
        rows = [
            ("installed", ", ".join(self.units) or "no"),
            ("changed", ", ".join(self.changed)),
            ("state", self._state()),
            ("says", self.told),
            ("addresses", " ".join(self.addresses)),
            ("health", self.health),
            ("next", self.todo),
        ]
        return [f"{name:10} {text}" for name, text in rows if text]

    def _state(self) -> str:
        if not self.state:
            return ""
        details = [
            self.enabled,
            f"process {self.pid}" if self.pid else "",
            f"{self.restarts} restarts" if self.restarts else "",
        ]
        return ", ".join([self.state, *filter(None, details)])


def look(plan: units.Plan, systemctl: Systemctl) -> Status:
    """Looks; raises `SystemdError` where there is no systemd to ask."""
    mode = " --user" if plan.for_user else ""
    systemctl.check_runs()
    found = systemctl.show(units.SERVICE, *_WANTED)
    if found["LoadState"] == "not-found":
        return Status(code=NOT_INSTALLED, todo=f"`dhpd service install{mode}` installs it.")
    fragments = (found["FragmentPath"], systemctl.show(units.SOCKET, "FragmentPath")["FragmentPath"])
    there = [path for path in fragments if path]
    status = Status(
        units=there,
        changed=[path for path in there if not files.is_unchanged(Path(path))],
        enabled=found["UnitFileState"],
        state=f"{found['ActiveState']} ({found['SubState']})",
        pid=int(found["MainPID"] or 0),
        restarts=int(found["NRestarts"] or 0),
        told=found["StatusText"],
        addresses=_addresses(plan),
    )
    if found["ActiveState"] != "active":
        status.code = STOPPED
        failed = found["Result"] not in ("", "success")
        ended = f"{found['Result']}, {found['ExecMainStatus']}"
        why = f" It ended: {_ENDS.get(ended, ended)}." if failed else ""
        status.todo = (
            f"`systemctl{mode} start dhpd` starts it.{why} `journalctl{mode} --unit dhpd` tells why it doesn't run."
        )
        return status
    _ask_health(status, mode)
    return status


def _addresses(plan: units.Plan) -> list[str]:
    """As the daemon published them, or, where that isn't ours to read, as the units and the settings have them."""
    try:
        config = load_config(Path(plan.config), {}, {})
        data = Path(config.data)
        published = data / "dhpd.json"
        return list(json.loads(published.read_text())["addresses"])
    except (ConfigError, OSError, ValueError, KeyError, TypeError):
        pass
    try:
        text = Path(plan.units / units.SOCKET).read_text()
    except OSError:
        return []
    found = [address.replace("%t", str(runtime_folder())) for address in units.listened_on(text)]
    return [address if address.startswith("unix:") else f"tcp://{address}" for address in found]


def _ask_health(status: Status, mode: str) -> None:
    """The first address that anybody here may use; `mode` is what `journalctl` is told."""
    for address in sorted(status.addresses, key=lambda text: not text.startswith("unix:")):
        if address.startswith("tls://"):
            continue
        try:
            answer = _answer(address)
        except PermissionError:
            status.todo = f"You may not connect to {address}: join the group {units.USER}, or run this by sudo."
            status.code, status.health = UNWELL, "not asked"
            return
        except (OSError, ValueError) as error:
            status.code, status.health = UNWELL, f"{address} doesn't answer: {error}"
            status.todo = f"`journalctl{mode} --unit dhpd` tells what it does."
            return
        if answer.get("ok"):
            status.health = str(answer.get("status"))
            status.code = HEALTHY if status.health == "ok" else UNWELL
            connect = f"`export DHP_CONNECT={address}`, and `dhp list` shows its work."
            status.todo = (
                connect if status.code == HEALTHY else "docs/operating.md tells what that means, and what to do."
            )
        else:
            code = (answer.get("error") or {}).get("code")
            status.code, status.health = UNWELL, f"{address} refuses to tell: {code}"
            status.todo = f"`dhp --connect {address} --token-file FILE health` asks with a token."
        return
    status.code, status.health = UNWELL, "not asked: there is no address that needs no certificate"
    status.todo = "`dhp --connect ADDRESS health` asks it, with what $DHP_TLS_CA and $DHP_TOKEN_FILE name."


def _answer(address: str) -> dict[str, Any]:
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        place: Any = address.removeprefix("unix:")
    else:
        place = host_and_port(units.place_of(address))
        if place is None:
            raise ValueError(f"{address} is no address")
        sock = socket.socket(socket.AF_INET6 if ":" in place[0] else socket.AF_INET, socket.SOCK_STREAM)
    with sock:
        sock.settimeout(ANSWER_WITHIN_S)
        sock.connect(place)
        sock.sendall(_ASK)
        answer = b""
        while not answer.endswith(b"\n") and len(answer) < MAX_ANSWER_BYTES:
            piece = sock.recv(4096)
            if not piece:
                raise ConnectionError("it closed the connection")
            answer += piece
    found = json.loads(answer)
    return found if isinstance(found, dict) else {}
