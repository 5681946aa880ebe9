"""What `uv tool install` puts there, from nothing but what the Dockerfile copies, and the commands of docs/service.md for docker."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.blocks import ROOT, block

PAGE = "docs/service.md"


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
    wanted = {
        str(path.relative_to(package.parent))
        for package in (ROOT / "dhpd", ROOT / "dhp_client", ROOT / "protocol/dhp_protocol")
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
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
