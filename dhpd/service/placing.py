"""Where the service's files go, and whether its user can run the program where it lies.

Owns the places: of a machine's administrator, of a package, of one user.
"""

import os
import stat
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from dhpd import __version__

from .systemctl import UNKNOWN_VERSION, runtime_folder, version_here
from .units import Plan, word

HIDDEN = ("/home", "/root", "/run/user")
"""What `ProtectHome=yes` hides."""
SYSTEM_SOCKET = "unix:/run/dhpd/dhpd.sock"
USER_SOCKET = "unix:%t/dhpd/dhpd.sock"
"""`%t` is what systemd calls a user's $XDG_RUNTIME_DIR."""


def plan_for(
    *,
    for_user: bool,
    listen: Sequence[str] = (),
    command: str | None = None,
    with_socket: bool = True,
    packaged: bool = False,
) -> Plan:
    """For the machine, or for whoever runs this. `packaged`: in the places that belong to packages, whose program is /usr/bin/dhpd."""
    if for_user:
        config_home = _folder("XDG_CONFIG_HOME", ".config")
        socket = USER_SOCKET if with_socket else USER_SOCKET.replace("%t", str(runtime_folder()))
        return Plan(
            command=command or _command_here(),
            units=config_home / "systemd/user",
            sysusers=None,
            config=config_home / "dhpd/dhpd.toml",
            data=_folder("XDG_DATA_HOME", ".local/share") / "dhpd",
            listen=listen or [socket],
            with_socket=with_socket,
            systemd_version=version_here(),
            version=__version__,
        )
    vendor = PurePosixPath("/usr/lib" if packaged else "/etc")
    return Plan(
        command=command or ("/usr/bin/dhpd" if packaged else _command_here()),
        units=vendor / "systemd/system",
        sysusers=vendor / "sysusers.d/dhpd.conf",
        config=PurePosixPath("/etc/dhpd/dhpd.toml"),
        data=PurePosixPath("/var/lib/dhpd"),
        listen=listen or [SYSTEM_SOCKET],
        with_socket=with_socket,
        systemd_version=UNKNOWN_VERSION if packaged else version_here(),  # A package comes to any.
        version=__version__,
    )


def _folder(variable: str, otherwise: str) -> PurePosixPath:
    given = os.environ.get(variable, "")
    return PurePosixPath(given if given.startswith("/") else Path.home() / otherwise)


def _command_here() -> str:
    """The program that is running, in a way that outlives this shell."""
    script = Path(sysconfig.get_path("scripts")) / "dhpd"
    return word(str(script)) if script.exists() else f"{word(sys.executable)} -P -m dhpd"


def unreachable() -> Path | None:
    """What of this program another user can't get at, a home directory most often; None: nothing."""
    package = Path(__file__).parent
    for needed in (Path(sys.executable), Path(sys.executable).resolve(), Path(sys.base_prefix), package.resolve()):
        if str(needed).startswith(tuple(f"{hidden}/" for hidden in HIDDEN)):
            return needed
        if any(not folder.stat().st_mode & stat.S_IXOTH for folder in needed.parents):
            return needed
    return None
