"""dhpd installed under a real systemd, process 1 of a container: hardened, activated, watched, reloaded, and removed again."""

import contextlib
import os
import pwd
import signal
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.client.waiting import until_blocking
from tests.pages.blocks import block
from tests.pages.terminals import fits
from tests.support.private_systemd import PrivateSystemd
from tests.support.sandbox_processes import workers
from tests.support.wire_client import WireClient

PAGE = "docs/service.md"
UNIT, SOCKET = "/etc/systemd/system/dhpd.service", "/etc/systemd/system/dhpd.socket"
WATCHDOG = "[Service]\nWatchdogSec=3s\nTimeoutAbortSec=3s\n"
"""A minute, as the unit has it, is long for a test."""
OWN_MANAGER = """[Service]
Type=notify
User=games
Delegate=yes
RuntimeDirectory=own
StateDirectory=own
Environment=HOME=/var/lib/own XDG_RUNTIME_DIR=/run/own LD_LIBRARY_PATH=/opt/python/lib
Environment=SYSTEMD_UNIT_PATH=/var/lib/own/.config/systemd/user:/var/lib/own/targets
Environment=SYSTEMD_GENERATOR_PATH=/nonexistent SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/nonexistent
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
PATTERN = {"properties": {"code": {"type": "string", "pattern": r"^[A-Z]\d$"}}, "required": ["code"]}


def typed(machine: PrivateSystemd, script: str, *as_whom: str) -> str:
    ended = machine.run(*as_whom, "sh", "-euc", f"cd /run\n{script}")
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def systemd(machine: PrivateSystemd) -> PrivateSystemd:
    """The machine, with the service installed as the page has it."""
    override = machine.path("/etc/systemd/system/dhpd.service.d/test.conf")
    override.parent.mkdir()
    override.write_text(WATCHDOG)
    console = block(PAGE, "A service of the machine", "console")
    commands = [line.removeprefix("$ ") for line in console.splitlines() if line.startswith("$ ")]
    printed = [line for line in console.splitlines() if not line.startswith("$ ")]
    assert fits(typed(machine, "\n".join(commands)), printed)
    return machine


def client(systemd: PrivateSystemd) -> WireClient:
    return WireClient(f"unix:{systemd.path('/run/dhpd/dhpd.sock')}")


def status(systemd: PrivateSystemd) -> tuple[int, dict[str, object]]:
    told = systemd.run("dhpd", "service", "status", "--json")
    assert told.stderr == ""
    return told.returncode, msgspec.json.decode(told.stdout)


def test_it_runs_as_a_user_of_its_own_who_owns_nothing_but_the_store(systemd: PrivateSystemd) -> None:
    code, told = status(systemd)
    assert code == 0
    assert told["units"] == [UNIT, SOCKET]
    assert (told["enabled"], told["health"], told["changed"]) == ("enabled", "ok", [])
    assert told["addresses"] == ["unix:/run/dhpd/dhpd.sock"]
    process = Path(f"/proc/{systemd.process('dhpd.service')}")
    facts = dict(line.partition(":\t")[::2] for line in (process / "status").read_text().splitlines())
    users = dict(line.split(":")[:3:2] for line in systemd.path("/etc/passwd").read_text().splitlines())
    assert set(facts["Uid"].split()) == {users["dhpd"]}
    assert int(facts["CapEff"], 16) == int(facts["CapBnd"], 16) == 0
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    for inside in ("/etc/passwd", "/opt/checkout", "/var/lib"):
        assert os.statvfs(f"{process}/root{inside}").f_flag & os.ST_RDONLY
    assert not os.statvfs(f"{process}/root/var/lib/dhpd").f_flag & os.ST_RDONLY
    assert os.listdir(f"{process}/root/root") == []
    data = systemd.path("/var/lib/dhpd").stat()
    assert (str(data.st_uid), stat.S_IMODE(data.st_mode)) == (users["dhpd"], 0o700)
    sock = systemd.path("/run/dhpd/dhpd.sock").stat()
    assert (str(sock.st_uid), stat.S_IMODE(sock.st_mode)) == (users["dhpd"], 0o660)
    assert "dhpd" not in {entry.pw_name for entry in pwd.getpwall()}, "all of that is in the container"


def test_the_helper_process_is_bounded_there_as_well_and_inherits_nothing(systemd: PrivateSystemd) -> None:
    with client(systemd) as speaking:
        handoff = speaking.dispatch(output_schema=PATTERN)
        fence = speaking.claim(handoff=handoff)["fence"]
        refused = speaking.refused("complete", handoff=handoff, fence=fence, result={"code": "x"})
        assert refused.code == "result_invalid"
        (worker,) = workers(systemd.process("dhpd.service"))
        speaking.call("complete", handoff=handoff, fence=fence, result={"code": "A1"})
    process = Path(f"/proc/{worker}")
    limits = {line[:25].strip(): line[25:].split()[0] for line in (process / "limits").read_text().splitlines()[1:]}
    assert limits["Max address space"] != "unlimited", "the filter of system calls lets it bound itself"
    assert (limits["Max core file size"], limits["Max file size"]) == ("0", "0")
    names = {entry.partition(b"=")[0].decode() for entry in (process / "environ").read_bytes().split(b"\0")}
    assert names.isdisjoint({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID"})
    listening = os.readlink(f"/proc/{systemd.process('dhpd.service')}/fd/3")
    assert listening.startswith("socket:")
    assert listening not in {os.readlink(entry) for entry in (process / "fd").iterdir()}


def test_a_daemon_that_stands_still_is_ended_by_the_watchdog_and_who_connects_meanwhile_is_served_by_the_next(
    systemd: PrivateSystemd,
) -> None:
    stuck = systemd.process("dhpd.service")
    before = int(systemd.show("dhpd.service", "NRestarts"))
    with client(systemd) as speaking:
        handoff = speaking.dispatch(kind="restarted")
        held = speaking.claim("restarted")
        os.kill(stuck, signal.SIGSTOP)
        until_blocking(lambda: ") T " in Path(f"/proc/{stuck}/stat").read_text(), "it stands still")
        stands = _status_once_it_answers(systemd, handoff)
    assert (stands["status"], stands["fence"]) == ("running", held["fence"]), "no lease ends with the daemon"
    assert systemd.process("dhpd.service") != stuck
    assert int(systemd.show("dhpd.service", "NRestarts")) == before + 1


def _status_once_it_answers(systemd: PrivateSystemd, handoff: str) -> dict[str, Any]:
    """Asked in the backlog, which systemd keeps; once more, as any client does, where the dying process took the connection up at its end."""
    with contextlib.suppress(ConnectionError, EOFError), client(systemd) as waiting:
        return waiting.call("status", handoff=handoff)
    with client(systemd) as waiting:
        return waiting.call("status", handoff=handoff)


def test_a_copy_is_made_every_hour(systemd: PrivateSystemd) -> None:
    path = "Environment=PATH=/opt/dhpd/bin:/usr/bin:/bin\n"  # The page has dhpd in /usr/local/bin.
    units = systemd.path("/etc/systemd/system")
    (units / "dhpd-backup.service").write_text(block(PAGE, "Backups", "ini") + path)
    (units / "dhpd-backup.timer").write_text(block(PAGE, "Backups", "ini", 1))
    typed(systemd, f"{{ {block(PAGE, 'Backups', 'sh')} }} 2> /dev/null")  # systemctl tells there which links it makes.
    assert systemd.show("dhpd-backup.timer", "ActiveState") == "active"
    (copy,) = systemd.path("/var/lib/dhpd-backups").iterdir()
    assert copy.suffix == ".dhp"
    assert copy.stat().st_uid == systemd.path("/var/lib/dhpd").stat().st_uid


def test_tokens_are_made_by_the_administrator_and_reloaded_whole_or_not_at_all(systemd: PrivateSystemd) -> None:
    config, tokens, key = (systemd.path(f"/etc/dhpd/{name}") for name in ("dhpd.toml", "tokens.toml", "server.key"))
    before = config.read_text()
    typed(systemd, block(PAGE, "Tokens and TCP", "sh"))
    key.write_text("")
    typed(systemd, block(PAGE, "Tokens and TCP", "sh", 1))
    for file in (tokens, key):
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
        assert file.stat().st_gid == systemd.path("/var/lib/dhpd").stat().st_gid, (
            "the service may read it, and not write"
        )
    assert systemd.show("dhpd.service", "StatusText").endswith("; tcp://127.0.0.1:8471 unix:/run/dhpd/dhpd.sock")
    process = systemd.process("dhpd.service")
    good = tokens.read_text()
    tokens.write_text("nonsense")
    assert systemd.run("systemctl", "reload", "dhpd.service").returncode == 0
    until_blocking(lambda: "stay in force" in systemd.show("dhpd.service", "StatusText"), "it says so")
    tokens.write_text(good)
    assert systemd.run("systemctl", "reload", "dhpd.service").returncode == 0
    until_blocking(lambda: systemd.show("dhpd.service", "StatusText").startswith("ok: "), "it says so")
    assert systemd.process("dhpd.service") == process
    config.write_text(before)


def test_without_a_socket_unit_it_opens_the_addresses_of_its_settings(systemd: PrivateSystemd) -> None:
    config = systemd.path("/etc/dhpd/dhpd.toml")
    config.write_text(config.read_text() + 'listen = ["unix:/run/dhpd/dhpd.sock"]\n')
    installed = systemd.run("dhpd", "service", "install", "--no-socket")
    assert (installed.returncode, installed.stderr) == (0, "")
    assert not systemd.path(SOCKET).exists()
    assert systemd.show("dhpd.service", "StatusText").endswith("; unix:/run/dhpd/dhpd.sock")
    assert stat.S_IMODE(systemd.path("/run/dhpd/dhpd.sock").stat().st_mode) == 0o600


def test_what_somebody_changed_is_left_alone_and_uninstall_keeps_settings_and_store(systemd: PrivateSystemd) -> None:
    unit = systemd.path(UNIT)
    unit.write_text(unit.read_text() + "# by hand\n")
    refused = systemd.run("dhpd", "service", "uninstall")
    assert refused.returncode == 1
    assert f"dhpd: {UNIT} was changed, or written by somebody else: " in refused.stderr
    assert "--force" in refused.stderr
    assert systemd.show("dhpd.service", "ActiveState") == "active"
    removed = systemd.run("dhpd", "service", "uninstall", "--force")
    assert (removed.returncode, removed.stderr) == (0, "")
    assert "Kept: /etc/dhpd and /var/lib/dhpd." in removed.stdout
    assert not unit.exists()
    assert systemd.path("/var/lib/dhpd/dhpd.sqlite").exists()
    code, told = status(systemd)
    assert (code, told["units"], told["todo"]) == (4, [], "`dhpd service install` installs it.")


def test_a_user_has_one_of_their_own(machine: PrivateSystemd) -> None:
    targets = machine.path("/var/lib/own/targets")
    targets.mkdir(parents=True)
    for name in ("default", "basic", "sockets", "shutdown"):
        (targets / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    machine.path("/etc/systemd/system/own.service").write_text(OWN_MANAGER)
    assert machine.run("systemctl", "start", "own.service").returncode == 0
    said = typed(machine, block(PAGE, "A service of your own", "sh"), *OWN)
    assert "wrote      /var/lib/own/.config/systemd/user/dhpd.service\n" in said
    assert "status           ok\n" in said
    assert machine.path("/var/lib/own/.local/share/dhpd/dhpd.sqlite").exists()
    running = machine.run(*OWN, "systemctl", "--user", "show", "dhpd.service", "--property=ActiveState,NRestarts")
    assert set(running.stdout.split()) == {"ActiveState=active", "NRestarts=0"}, "a reload of nothing ends nothing"
    machine.run("systemctl", "kill", "--signal=KILL", "own.service")
