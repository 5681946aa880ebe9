"""systemd as it is here: whether it runs, which version it has, and what is asked of it.

Owns running its commands. Does not own what they are for (`installing`, `status`).
"""

import os
import re
import shutil
import subprocess
from pathlib import Path, PurePosixPath

WITHIN_S = 300.0
"""A start that loads much takes its time, and systemd ends it where it takes too long."""
UNKNOWN_VERSION = 0
ELSEWHERE = (
    "In a container: the Dockerfile and compose.yaml of the project. Under another supervisor: run `dhpd --config FILE` in the "
    "foreground, have it started again when it ends with another code than 0 or 2, and stop it with SIGTERM."
)


class SystemdError(Exception):
    """There is no systemd, or it refuses; the message says what, and what to do."""


class Systemctl:
    """The system's manager, or one user's own."""

    def __init__(self, *, for_user: bool) -> None:
        self._command = ["systemctl", "--user"] if for_user else ["systemctl"]
        self._for_user = for_user

    def check_runs(self) -> None:
        """Raises `SystemdError` unless there is such a manager to ask."""
        if not self._place().is_dir() or shutil.which("systemctl") is None:
            whose = (
                "this user's systemd doesn't run"
                if self._for_user and Path("/run/systemd/system").is_dir()
                else "no systemd runs"
            )
            raise SystemdError(f"Here {whose}. {ELSEWHERE}")

    def _place(self) -> Path:
        if self._for_user:
            return Path(runtime_folder()) / "systemd"
        return Path("/run/systemd/system")

    def ask(self, *arguments: str) -> None:
        """Has it do something; raises `SystemdError` with what it says."""
        ended = self._run(*arguments)
        if ended.returncode:
            said = " ".join(ended.stderr.split()) or f"exit code {ended.returncode}"
            raise SystemdError(f"`{' '.join([*self._command, *arguments])}` failed: {said} {self._where_to_look()}")

    def _where_to_look(self) -> str:
        return f"`journalctl{' --user' if self._for_user else ''} --unit dhpd` may tell more."

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """Those properties of a unit, the values of one that is told several times on lines of their own; raises `SystemdError`."""
        ended = self._run("show", unit, "--property", ",".join(properties))
        if ended.returncode:
            raise SystemdError(" ".join(ended.stderr.split()))
        found: dict[str, list[str]] = {}
        for line in ended.stdout.splitlines():
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
        return {name: "\n".join(values) for name, values in found.items()}

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [*self._command, "--no-pager", *arguments]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        except FileNotFoundError:
            raise SystemdError(f"There is no systemctl. {ELSEWHERE}") from None
        except subprocess.TimeoutExpired:
            raise SystemdError(f"`{' '.join(command)}` took longer than {WITHIN_S:.0f} s.") from None


def runtime_folder() -> PurePosixPath:
    """Where this user's sockets lie."""
    return PurePosixPath(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")


def version_here() -> int:
    """systemd's version; 0 where there is none."""
    if shutil.which("systemctl") is None:
        return UNKNOWN_VERSION
    told = subprocess.run(
        ["systemctl", "--version"], capture_output=True, text=True, timeout=WITHIN_S, check=False
    ).stdout
    found = re.match(r"systemd (\d+)", told)
    return int(found[1]) if found else UNKNOWN_VERSION


def make_user(sysusers_file: Path) -> None:
    """Makes the users that the file names, where they aren't there yet; raises `SystemdError`."""
    try:
        ended = subprocess.run(
            ["systemd-sysusers", str(sysusers_file)], capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
    except FileNotFoundError:
        raise SystemdError(
            "There is no systemd-sysusers: make the user by `useradd --system --user-group --home-dir /var/lib/dhpd "
            "--shell /usr/sbin/nologin dhpd`, and run this again."
        ) from None
    if ended.returncode:
        raise SystemdError(f"The user can't be made: {' '.join(ended.stderr.split())}")
