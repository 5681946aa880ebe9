"""A systemd of the test's own, as process 1 of a container made by hand: it manages nothing but what a test puts there.

Owns the container: namespaces for mounts, processes, the network and more, with its own /run, /etc, /var/lib, /opt and temporary
directories; in /opt is a dhpd that every user can run. Nothing of it outlives `close`, however the test ends. Needs root and `TOOLS`.
"""

import contextlib
import os
import shutil
import site
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from .manager_socket import ManagerSocket

SYSTEMD = Path("/usr/lib/systemd/systemd")
TOOLS = ("unshare", "nsenter", "mount", "umount", "ip", "systemctl", "systemd-sysusers")
CHECKOUT = Path(__file__).parents[2]
NAMESPACES = ("--mount", "--pid", "--cgroup", "--uts", "--ipc", "--net")
TARGETS = ("sysinit", "basic", "shutdown", "sockets", "timers", "multi-user", "network")

_BOOT = r"""
set -eu
echo $$ > "$CGROUP/cgroup.procs"
exec unshare --mount --pid --cgroup --uts --ipc --net --fork --kill-child sh -euc '
mount --make-rprivate /
mount -t proc proc /proc
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
mount -t tmpfs -o mode=755 tmpfs /run
cp -a /etc /run/etc
rm -rf /run/etc/systemd/system /run/etc/dhpd
mkdir -p /run/etc/systemd/system /run/etc/systemd/system.conf.d /run/systemd
printf "[Manager]\nDefaultEnvironment=LD_LIBRARY_PATH=/opt/python/lib\n" > /run/etc/systemd/system.conf.d/python.conf
mount --bind /run/etc /etc
mount -t tmpfs -o mode=755 tmpfs /var/lib
mount -t tmpfs -o mode=755 tmpfs /opt
mkdir /opt/python /opt/packages /opt/checkout /run/of-the-test
mount --bind "$FOLDER" /run/of-the-test
mount --bind "$PYTHON_PREFIX" /opt/python
mount --bind "$PACKAGES" /opt/packages
mount --bind "$CHECKOUT" /opt/checkout
/opt/python/bin/python3 -m venv --without-pip /opt/dhpd
printf "%s\n" /opt/checkout /opt/checkout/protocol /opt/packages > "$(echo /opt/dhpd/lib/python3*/site-packages)/here.pth"
for name in dhpd dhp; do
    module=$([ $name = dhp ] && echo dhp_client.cli || echo dhpd.cli)
    printf "#!/opt/dhpd/bin/python3\nfrom $module import main\nmain()\n" > /opt/dhpd/bin/$name
    chmod 755 /opt/dhpd/bin/$name
done
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
export container=private NOTIFY_SOCKET=/run/of-the-test/booted SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/of-the-test/units
export SYSTEMD_GENERATOR_PATH=/nonexistent SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/nonexistent
exec "$SYSTEMD" --system --unit=multi-user.target --log-target=null --show-status=no --crash-reboot=no
'
"""


def missing() -> str | None:
    """Why there can't be one here; None where there can."""
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking or not SYSTEMD.exists():
        return f"there is no {', '.join(lacking) or SYSTEMD}"
    if os.geteuid() != 0:
        return "only root can make one"
    return None if _cgroups() else "no cgroup2 is mounted"


class PrivateSystemd:
    """`with PrivateSystemd(tmp_path) as systemd:` has it ready."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        mounted = _cgroups()
        assert mounted is not None
        self._cgroup = mounted / f"dhp-test-{os.getpid()}"
        self._process: subprocess.Popen[bytes] | None = None
        self.pid = 0
        """Of process 1, as the test sees it."""

    def __enter__(self) -> "PrivateSystemd":
        units = self._folder / "units"
        units.mkdir(parents=True)
        for name in TARGETS:
            (units / f"{name}.target").write_text(f"[Unit]\nDescription={name}\nDefaultDependencies=no\n")
        self._cgroup.mkdir()
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "CGROUP": str(self._cgroup),
            "PYTHON_PREFIX": sys.base_prefix,
            "PACKAGES": site.getsitepackages()[0],
            "CHECKOUT": str(CHECKOUT),
            "FOLDER": str(self._folder),
            "SYSTEMD": str(SYSTEMD),
        }
        with ManagerSocket(self._folder / "booted", watchdog_ms=0) as booted:
            self._process = subprocess.Popen(["sh", "-c", _BOOT], env=environment, stdin=subprocess.DEVNULL)
            try:
                booted.until("READY")
            except BaseException:
                self.close()
                raise
        (child,) = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        self.pid = int(child)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def path(self, inside: str) -> Path:
        """A path in there, for the test."""
        return Path(f"/proc/{self.pid}/root{inside}")

    def entering(self, *command: str) -> list[str]:
        """The command that runs that one in there, as root, with nothing of the test's environment."""
        enter = ["nsenter", "--target", str(self.pid), *NAMESPACES, "--wd=/", "env", "-i"]
        environment = ("PATH=/opt/dhpd/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH=/opt/python/lib")
        return [*enter, *environment, *command]

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Runs a command in there, as root."""
        return subprocess.run(self.entering(*command), capture_output=True, text=True, timeout=60, check=False)

    def process(self, unit: str) -> int:
        """The first process of a running service, as the test sees it."""
        listed = (self._cgroup / "system.slice" / unit / "cgroup.procs").read_text().split()
        return min(map(int, listed))

    def show(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.run("systemctl", "show", unit, "--property", name, "--value").stdout.strip()

    def close(self) -> None:
        """With process 1 everything in there goes."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        until = time.monotonic() + 20
        while self._cgroup.exists() and time.monotonic() < until:
            for folder, _, _ in os.walk(self._cgroup, topdown=False):
                with contextlib.suppress(OSError):  # Somebody in there is just ending.
                    os.rmdir(folder)
            time.sleep(0.01)


def _cgroups() -> Path | None:
    """Where the cgroup2 hierarchy lies."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    return None
