"""Dockerfile and compose.yaml, as far as can be told without an engine: what they say is done by hand, with a user that has no rights."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dhpd.config import load_config
from tests.pages.blocks import ROOT, block
from tests.support.private_systemd import PrivateSystemd

DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
FINAL = DOCKERFILE.rpartition("\nFROM ")[2]
PLACES = {"/data": "/opt/data"}
"""What lies elsewhere here: the root directory isn't the test's own."""


def instructions(name: str) -> list[str]:
    """Of the image itself, not of what it is built by."""
    return re.findall(rf"^{name} +(.*)", FINAL, re.MULTILINE)


def here(text: str) -> str:
    for place, other in PLACES.items():
        text = text.replace(place, other)
    return text


def image_environment() -> dict[str, str]:
    (line,) = instructions("ENV")
    given = dict(word.split("=", 1) for word in shlex.split(line))
    given["PATH"] = given["PATH"].replace("$PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    return given


class Container:
    """What an engine would do with the image, in the container of a private systemd."""

    def __init__(self, systemd: PrivateSystemd) -> None:
        self.systemd = systemd
        (user,) = instructions("USER")
        uid, gid = user.split(":")
        assert int(uid) > 0
        self._as_user = [
            "setpriv",
            f"--reuid={uid}",
            f"--regid={gid}",
            "--clear-groups",
            "--no-new-privs",
            "--bounding-set=-all",
        ]

    def command(self, *command: str, environment: dict[str, str]) -> list[str]:
        """A command as the image's user, with the image's environment and more, and without a HOME."""
        values = {**image_environment(), **environment, "LD_LIBRARY_PATH": "/opt/python/lib"}
        given = [f"{name}={here(value)}" for name, value in values.items()]
        return self.systemd.entering(*self._as_user, "env", "-i", *given, *command)

    def run(self, *command: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*command, environment=environment), capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def container(machine: PrivateSystemd) -> Iterator[Container]:
    built = instructions("RUN")
    assert len(built) == 3
    for line in built:
        made = machine.run("sh", "-euc", here(line))
        assert made.returncode == 0, made.stderr
    yield Container(machine)
    assert machine.run("sh", "-euc", "userdel dhpd; rm -r /run/dhpd").returncode == 0, "the next test has its own"


def test_it_starts_is_healthy_serves_whoever_has_a_token_and_ends_in_time(container: Container) -> None:
    systemd = container.systemd
    (secrets_line,) = [
        line for line in block("docs/service.md", "Compose", "sh").splitlines() if line.startswith("docker")
    ]
    token_command, _, token_file = secrets_line.partition(" dhpd token ")[2].partition(" > ")
    systemd.path("/run/secrets").mkdir()
    made = systemd.run(
        "dhpd", "token", *token_command.replace("/secrets/tokens.toml", "/run/secrets/dhpd_tokens").split()
    )
    assert made.returncode == 0, made.stderr
    assert token_file == "secrets/dhp.token"
    systemd.path("/run/secrets/dhp_token").write_text(made.stdout)
    for name in ("dhpd_tokens", "dhp_token"):
        systemd.path(f"/run/secrets/{name}").chmod(0o644)
    with systemd.path("/etc/hosts").open("a") as hosts:
        hosts.write("127.0.0.1 dhpd\n")

    service, asker = COMPOSE["services"]["dhpd"], COMPOSE["services"]["dhp"]
    (entrypoint,) = map(json.loads, instructions("ENTRYPOINT"))
    command = container.command("sh", "-c", 'echo $$; exec "$@"', "sh", *entrypoint, environment=service["environment"])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        pid = running.stdout.readline().strip()
        try:
            ready = running.stdout.readline()
            assert ready == "dhpd ready unix:/run/dhpd/dhpd.sock tcp://0.0.0.0:8471\n"
            (check,) = re.findall(r"CMD (\[.*\])", instructions("HEALTHCHECK")[0])
            healthy = container.run(*json.loads(check), environment=service["environment"])
            assert healthy.returncode == 0, healthy.stderr
            listed = container.run(*asker["entrypoint"], "list", environment=asker["environment"])
            assert listed.returncode == 0, listed.stderr
        finally:
            systemd.run("kill", f"-{instructions('STOPSIGNAL')[0].removeprefix('SIG')}", pid)
    assert running.returncode == 0


def test_the_image_holds_what_it_needs_and_no_more() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    copied = [
        name
        for line in re.findall(r"^COPY +(.*)", DOCKERFILE, re.MULTILINE)
        for name in line.split()[:-1]
        if not name.startswith(("-", "/"))
    ]
    assert {f"!{name}" for name in copied} == {line for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)
    assert instructions("COPY") == ["--from=build /opt/dhpd /opt/dhpd"], "no compiler, no source, no pip"


def test_the_daemon_of_compose_is_closed_in() -> None:
    services = COMPOSE["services"]
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service.keys() & {"ports", "network_mode", "privileged", "user"}
        for network in service["networks"]:
            assert COMPOSE["networks"][network] == {"internal": True}
        for secret in service["secrets"]:
            file = Path(COMPOSE["secrets"][secret]["file"])
            assert f"/{file.parts[0]}/" in (ROOT / ".gitignore").read_text().splitlines()
            assert str(file) in block("docs/service.md", "Compose", "sh")
            assert f"/run/secrets/{secret}" in service["environment"].values()
    daemon = services["dhpd"]
    config = load_config(None, {**image_environment(), **daemon["environment"]}, {})
    assert config.tokens is not None
    (mount,) = daemon["volumes"]
    volume, _, target = mount.partition(":")
    assert volume in COMPOSE["volumes"]
    assert target == config.data == instructions("VOLUME")[0]
    assert config.listen is not None
    assert config.listen[0] == f"unix:{daemon['tmpfs'][0].partition(':')[0]}/dhpd.sock"
    assert int(daemon["stop_grace_period"].removesuffix("s")) * 1000 >= config.drain_grace_ms + 5_000
    assert daemon["stop_signal"] == instructions("STOPSIGNAL")[0]
    assert services["dhp"]["environment"]["DHP_CONNECT"] == "tcp://dhpd:8471"
    assert "HOME" not in image_environment()
