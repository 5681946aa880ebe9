"""The page on running dhpd as a service does what it says: its commands are typed into a machine with a systemd of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.blocks import ROOT, block
from tests.pages.terminals import fits
from tests.support.private_systemd import PrivateSystemd

PAGE = "docs/service.md"
OWN_MANAGER = """[Service]
Type=notify
User=games
Delegate=yes
RuntimeDirectory=own
StateDirectory=own
Environment=HOME=/var/lib/own XDG_RUNTIME_DIR=/run/own LD_LIBRARY_PATH=/opt/python/lib
Environment=SYSTEMD_UNIT_PATH=/var/lib/own/.config/systemd/user:/var/lib/own/targets
ExecStart=/usr/lib/systemd/systemd --user --unit=default.target --log-target=null
"""
"""A user's own systemd, as a login starts it."""
OWN = (
    "setpriv",
    "--reuid=games",
    "--regid=games",
    "--clear-groups",
    "env",
    "HOME=/var/lib/own",
    "XDG_RUNTIME_DIR=/run/own",
)


@pytest.fixture
def removed(systemd: PrivateSystemd) -> Iterator[PrivateSystemd]:
    """The machine as it was before anything was installed."""
    systemd.run("dhpd", "service", "uninstall", "--force")
    shutil.rmtree(systemd.path("/etc/dhpd"))
    shutil.rmtree(systemd.path("/var/lib/dhpd"))
    yield systemd
    systemd.run("dhpd", "service", "uninstall", "--force")


def typed(systemd: PrivateSystemd, script: str, *as_whom: str) -> str:
    ended = systemd.run(*as_whom, "sh", "-euc", f"cd /run\n{script}")
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    return ended.stdout


def test_from_nothing_to_a_service_with_tokens_and_backups(removed: PrivateSystemd) -> None:
    systemd = removed
    console = block(PAGE, "A service of the machine", "console")
    commands = [line.removeprefix("$ ") for line in console.splitlines() if line.startswith("$ ")]
    printed = [line for line in console.splitlines() if not line.startswith("$ ")]
    assert fits(typed(systemd, "\n".join(commands)), printed)

    typed(systemd, block(PAGE, "Tokens and TCP", "sh"))
    systemd.path("/etc/dhpd/server.key").write_text("")
    typed(systemd, block(PAGE, "Tokens and TCP", "sh", 1))
    owner = systemd.path("/etc/dhpd/server.key").stat()
    assert owner.st_gid == systemd.path("/etc/dhpd").stat().st_gid

    here = "Environment=PATH=/opt/dhpd/bin:/usr/bin:/bin\n"  # The page has dhpd in /usr/local/bin.
    units = systemd.path("/etc/systemd/system")
    (units / "dhpd-backup.service").write_text(block(PAGE, "Backups", "ini") + here)
    (units / "dhpd-backup.timer").write_text(block(PAGE, "Backups", "ini", 1))
    typed(systemd, f"{{ {block(PAGE, 'Backups', 'sh')} }} 2> /dev/null")  # systemctl tells there which links it makes.
    assert systemd.show("dhpd-backup.timer", "ActiveState") == "active"
    (copy,) = systemd.path("/var/lib/dhpd-backups").iterdir()
    assert copy.suffix == ".dhp"
    assert copy.stat().st_uid == systemd.path("/var/lib/dhpd").stat().st_uid


def test_a_user_has_one_of_their_own(systemd: PrivateSystemd) -> None:
    targets = systemd.path("/var/lib/own/targets")
    targets.mkdir(parents=True)
    for name in ("default", "basic", "sockets", "shutdown"):
        (targets / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    systemd.path("/etc/systemd/system/own.service").write_text(OWN_MANAGER)
    assert systemd.run("systemctl", "start", "own.service").returncode == 0
    said = typed(systemd, block(PAGE, "A service of your own", "sh"), *OWN)
    assert "wrote      /var/lib/own/.config/systemd/user/dhpd.service\n" in said
    assert "status           ok\n" in said
    assert systemd.path("/var/lib/own/.local/share/dhpd/dhpd.sqlite").exists()
    systemd.run("systemctl", "kill", "--signal=KILL", "own.service")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `uv tool install` has put it, from nothing but what the Dockerfile copies."""
    folder = tmp_path_factory.mktemp("install")
    source = folder / "source"
    for name in copied_by_the_dockerfile():
        target = source / name
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    script = block(PAGE, "Install", "sh")
    for printed, here in (
        ("/opt/uv", folder / "tools"),
        ("/usr/local/bin", folder / "bin"),
        ("/usr/bin/python3", sys.executable),
    ):
        assert printed in script
        script = script.replace(printed, str(here))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    made = subprocess.run(
        ["sh", "-euc", script], cwd=source, env=environment, capture_output=True, text=True, timeout=100
    )
    assert made.returncode == 0, made.stderr
    return folder


def copied_by_the_dockerfile() -> list[str]:
    """What goes from the checkout into the image."""
    lines = [line.split()[1:-1] for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("COPY")]
    return [name for names in lines for name in names if not name.startswith("-") and not name.startswith("/")]


def test_what_is_installed_is_whole(installed: Path) -> None:
    assert {path.name for path in (installed / "bin").iterdir()} == {"dhp", "dhpd"}
    (packages,) = (installed / "tools").glob("dhpd/lib/python3*/site-packages")
    there = {str(path.relative_to(packages)) for path in packages.rglob("*") if path.is_file()}
    kept = subprocess.run(
        ["git", "ls-files", "dhpd", "dhp_client", "protocol/dhp_protocol"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = {name.removeprefix("protocol/") for name in kept.stdout.split()}
    assert {"dhpd/py.typed", "dhp_client/py.typed", "dhp_protocol/vectors/frames.json"} <= wanted
    assert wanted - there == set()
    version = subprocess.run([installed / "bin/dhpd", "--version"], capture_output=True, text=True, timeout=30)
    assert version.stdout.startswith("dhpd, version ")


def docker_lines(script: str) -> Iterator[list[str]]:
    for line in script.splitlines():
        if line.startswith("docker "):
            yield ["sh", "-euc", line.partition(" > ")[0]]


@pytest.mark.parametrize("script", [block(PAGE, "Docker", "sh"), block(PAGE, "Compose", "sh")])
def test_docker_understands_the_commands(script: str) -> None:
    """As far as can be told without its engine: its client looks at what it is told before it looks for that."""
    assert all(line.split()[0] in ("docker", "mkdir", "chmod") for line in script.splitlines())
    if shutil.which("docker") is None:
        return  # test_container looks at what is run in there.
    environment = {**os.environ, "DOCKER_HOST": "unix:///nonexistent"}
    for command in docker_lines(script):
        tried = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert "Cannot connect to the Docker daemon" in tried.stderr, tried.stderr
    wrong = subprocess.run(
        ["docker", "run", "--detatch", "dhpd"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert "unknown flag" in wrong.stderr
