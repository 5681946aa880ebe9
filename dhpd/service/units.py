"""The files of the service: what stands in them, and where each goes.

Owns their text. Pure: what has to be known of the machine is an argument. Does not own writing them (`files`).
"""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from msgspec import Struct

SERVICE, SOCKET = "dhpd.service", "dhpd.socket"
USER = "dhpd"
NOTIFY_RELOAD_SINCE = 253
"""The version of systemd that waits for the end of a reload by itself."""
WATCHDOG_S = 60
"""A sync on a busy disk takes seconds, a network file system's change of server half a minute."""
BAD_SETTINGS = 2
"""The exit code of settings that can't be used: a new start is no help."""

_LISTEN = "ListenStream="


class Plan(Struct, frozen=True, kw_only=True):
    """What is to be installed.

    `listen` holds addresses as `--listen` takes them; `units` is the units' directory, `sysusers` the file that has a user made (None:
    it is the service of a user that is there), `config` the settings' file, `data` the store's directory. `with_socket`: systemd
    opens the addresses.
    """

    command: str
    units: PurePosixPath
    sysusers: PurePosixPath | None
    config: PurePosixPath
    data: PurePosixPath
    listen: Sequence[str]
    with_socket: bool
    systemd_version: int
    version: str

    @property
    def for_user(self) -> bool:
        """Whether it is a service of one user's own manager."""
        return self.sysusers is None


def files_of(plan: Plan) -> dict[PurePosixPath, str]:
    """The text of each file, but for the settings' (`settings_of`)."""
    files = {plan.units / SERVICE: _service(plan)}
    if plan.with_socket:
        files[plan.units / SOCKET] = _socket(plan)
    if plan.sysusers is not None:
        files[plan.sysusers] = f'u {USER} - "Durable Handoff Protocol daemon" {plan.data}\n'
    return files


def settings_of(plan: Plan) -> str:
    """The settings' file, which is written once and then belongs to whoever runs the daemon."""
    listen = "" if plan.with_socket else f"{listen_setting(plan.listen)}\n"
    systemctl = "systemctl --user" if plan.for_user else "systemctl"
    folder = plan.config.parent
    return f"""\
# Settings of the service: docs/operating.md names them all. After a change: {systemctl} restart dhpd
data = {json.dumps(str(plan.data))}
{listen}
# Who comes over TCP needs one of these, made by: dhpd token NAME --roles ROLES --tokens {folder}/tokens.toml
#tokens = "{folder}/tokens.toml"
# TCP speaks TLS then. The service's user must be able to read the key, and nobody else: chown root:dhpd, chmod 640.
#tls_cert = "{folder}/server.pem"
#tls_key = "{folder}/server.key"
"""


def listen_setting(addresses: Sequence[str]) -> str:
    """As it stands in the settings' file."""
    return f"listen = {json.dumps(list(addresses))}"


def place_of(address: str) -> str:
    """An address of `--listen` as a socket unit has it: a path, or NUMBER:PORT. Whether TLS is spoken there is up to the settings."""
    return address.removeprefix("unix:").removeprefix("tls://").removeprefix("tcp://")


def listened_on(socket_unit: str) -> list[str]:
    """The addresses that stand in a socket unit, as `--listen` takes them."""
    places = re.findall(rf"^{_LISTEN}(.+)$", socket_unit, re.MULTILINE)
    return [place if place[0].isdigit() or place[0] == "[" else f"unix:{place}" for place in places]


def word(text: str) -> str:
    """As one word of a unit's command."""
    return shlex.quote(text).replace("%", "%%").replace("$", "$$")


def _service(plan: Plan) -> str:
    reload = (
        ["Type=notify-reload"]
        if plan.systemd_version >= NOTIFY_RELOAD_SINCE
        else ["Type=notify", "ExecReload=kill -HUP $MAINPID"]
    )
    unit = ["Description=Durable Handoff Protocol daemon", "StartLimitIntervalSec=0"]
    if not plan.for_user:
        unit.append("After=network.target")
    if plan.with_socket:
        unit.append(f"Requires={SOCKET}")
    service = [
        *reload,
        "NotifyAccess=main",
        f"ExecStart={plan.command} --config {word(str(plan.config))}",
        "# It ends by itself where it was told to, or can't go on; settings that can't be used stay so.",
        "Restart=on-failure",
        "RestartSec=1s",
        f"RestartPreventExitStatus={BAD_SETTINGS}",
        f"WatchdogSec={WATCHDOG_S}s",
        "# The helper processes that judge schemas have bounds of their own: one that dies doesn't end the daemon.",
        "OOMPolicy=continue",
        "LimitNOFILE=65536",
        "TasksMax=256",
        "UMask=0077",
        *(_USER_BOUNDS if plan.for_user else [*_IDENTITY, *_USER_BOUNDS, *_SYSTEM_BOUNDS]),
    ]
    if not plan.with_socket:
        service.append("RuntimeDirectory=dhpd")
    install = [f"WantedBy={'default' if plan.for_user else 'multi-user'}.target"]
    if plan.with_socket:
        install.append(f"Also={SOCKET}")
    return _unit(Unit=unit, Service=service, Install=install)


def _socket(plan: Plan) -> str:
    listen = [f"{_LISTEN}{place_of(text)}" for text in plan.listen]
    owner = [] if plan.for_user else [f"SocketUser={USER}", f"SocketGroup={USER}"]
    mode = "0600" if plan.for_user else "0660"
    return _unit(
        Unit=["Description=Durable Handoff Protocol, where clients connect, also while dhpd starts again"],
        Socket=[
            *listen,
            "# Whoever may write the socket's file is an admin: the service's group.",
            f"SocketMode={mode}",
            *owner,
            "DirectoryMode=0755",
            "Backlog=1024",
            "# Settings that can't be used stay so, however many wait: after some starts in vain they are refused, until",
            "# `systemctl start dhpd`.",
            "TriggerLimitIntervalSec=10s",
            "TriggerLimitBurst=5",
            "RemoveOnStop=yes",
        ],
        Install=["WantedBy=sockets.target"],
    )


def _unit(**sections: Sequence[str]) -> str:
    return "\n\n".join("\n".join([f"[{name}]", *lines]) for name, lines in sections.items()) + "\n"


_IDENTITY = [
    f"User={USER}",
    f"Group={USER}",
    "StateDirectory=dhpd",
    "StateDirectoryMode=0700",
    "# Workers can be done without for a while, the store's owner can't.",
    "OOMScoreAdjust=-500",
]

_USER_BOUNDS = [
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "MemoryDenyWriteExecute=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "SystemCallErrorNumber=EPERM",
    "SystemCallFilter=@system-service",
    "SystemCallFilter=~@privileged @resources",
]
"""What a service may not do: all of it by filters, which any user may put on."""

_SYSTEM_BOUNDS = [
    "CapabilityBoundingSet=",
    "DevicePolicy=closed",
    "KeyringMode=private",
    "PrivateDevices=yes",
    "PrivateMounts=yes",
    "PrivateTmp=yes",
    "PrivateUsers=yes",
    "ProcSubset=pid",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHome=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectProc=invisible",
    "ProtectSystem=strict",
    "RemoveIPC=yes",
]
"""What it doesn't see or can't write; its own directory is all that is left."""
