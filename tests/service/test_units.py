"""The unit files, as systemd itself judges them; and what is said where they can't be installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest
from click.testing import CliRunner, Result

from dhpd.cli import main
from dhpd.config import ConfigError, load_config
from dhpd.service import files, installing, placing, systemctl, units
from dhpd.service.placing import plan_for

MOST_EXPOSED = 15
"""Tenths, as `systemd-analyze security` counts from 0 to 100. A service as it comes has 96."""
MOST_EXPOSED_OF_A_USER = 65
"""Nothing but filters can be put on there."""


@pytest.fixture(scope="module")
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("there is no systemd-analyze")
    return found


def written(folder: Path, *, for_user: bool, with_socket: bool) -> list[Path]:
    """The units, in a folder of the test's, with a program that is there."""
    plan = plan_for(for_user=for_user, command=sys.executable, with_socket=with_socket)
    made = []
    for path, text in units.files_of(plan).items():
        if path.parent == plan.units:
            made.append(folder / path.name)
            made[-1].write_text(files.marked(text, plan.version))
    return made


@pytest.mark.parametrize("for_user", [False, True])
@pytest.mark.parametrize("with_socket", [False, True])
def test_systemd_finds_nothing_wrong_with_the_units(
    analyze: str, tmp_path: Path, for_user: bool, with_socket: bool
) -> None:
    made = written(tmp_path, for_user=for_user, with_socket=with_socket)
    assert len(made) == 1 + with_socket
    manager = ["--user"] if for_user else []
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    judged = subprocess.run(
        [analyze, *manager, "--man=no", "verify", *map(str, made)], capture_output=True, text=True, timeout=60, env=env
    )
    assert (judged.returncode, judged.stderr) == (0, "")


@pytest.mark.parametrize(("for_user", "most"), [(False, MOST_EXPOSED), (True, MOST_EXPOSED_OF_A_USER)])
def test_the_service_is_exposed_as_little_as_it_says(analyze: str, tmp_path: Path, for_user: bool, most: int) -> None:
    service, _ = written(tmp_path, for_user=for_user, with_socket=True)
    command = [analyze, "security", "--no-pager", "--offline=true", f"--threshold={most}", str(service)]
    judged = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert judged.returncode == 0, judged.stdout
    service.write_text("[Service]\nExecStart=/bin/true\n")
    assert subprocess.run(command, capture_output=True, timeout=60).returncode != 0, "the bound bites"


def test_a_reload_is_waited_for_where_systemd_can() -> None:
    texts = {}
    for version in (units.NOTIFY_RELOAD_SINCE - 1, units.NOTIFY_RELOAD_SINCE):
        plan = plan_for(for_user=False)
        changed = units.Plan(
            **{name: getattr(plan, name) for name in plan.__struct_fields__} | {"systemd_version": version}
        )
        texts[version] = units.files_of(changed)[changed.units / units.SERVICE]
    old, new = texts.values()
    assert "Type=notify\nExecReload=kill -HUP $MAINPID\n" in old
    assert "Type=notify-reload\nNotifyAccess" in new
    assert "ExecReload" not in new


def test_what_is_written_is_told_from_what_somebody_changed(tmp_path: Path) -> None:
    file = tmp_path / "new" / "dhpd.service"
    first = {file: files.marked("[Unit]\n", "1")}
    assert files.write_all(first, force=False) == [file]
    assert files.write_all(first, force=False) == []
    second = {file: files.marked("[Unit]\nA=b\n", "2")}
    assert files.write_all(second, force=False) == [file], "a newer version replaces an older one's"
    file.write_text(file.read_text().replace("A=b", "A=c"))
    for act in (lambda: files.write_all(first, force=False), lambda: files.remove_all([file], force=False)):
        with pytest.raises(files.Changed, match=r"dhpd.service was changed"):
            act()
    assert "A=c" in file.read_text()
    assert files.write_all(first, force=True) == [file]
    file.write_bytes(b"\xff")
    assert not files.is_unchanged(file)
    assert files.remove_all([file, tmp_path / "none"], force=True) == [file]


@pytest.mark.parametrize("with_socket", [False, True])
def test_the_settings_that_are_written_can_be_used(tmp_path: Path, with_socket: bool) -> None:
    file = tmp_path / "dhpd.toml"
    file.write_text(units.settings_of(plan_for(for_user=False, with_socket=with_socket)))
    config = load_config(file, {}, {})
    assert config.data == "/var/lib/dhpd"
    assert config.listen == (None if with_socket else ["unix:/run/dhpd/dhpd.sock"])


def test_a_socket_unit_listens_where_it_was_told_to_and_a_later_installation_leaves_it_there(tmp_path: Path) -> None:
    def installed(*arguments: str) -> str:
        made = CliRunner().invoke(main, ["service", "install", "--root", str(tmp_path), *arguments])
        assert made.exit_code == 0, made.output
        return (tmp_path / "usr/lib/systemd/system/dhpd.socket").read_text()

    wanted = ["unix:/run/dhpd/other.sock", "127.0.0.1:8471", "[::1]:8471"]
    first = installed(*(word for address in wanted for word in ("--listen", address)))
    assert "\nListenStream=/run/dhpd/other.sock\nListenStream=127.0.0.1:8471\nListenStream=[::1]:8471\n" in first
    assert units.listened_on(first) == wanted
    assert installed() == first
    assert units.listened_on(installed("--listen", "127.0.0.1:1")) == ["127.0.0.1:1"]
    assert units.place_of("tls://192.0.2.1:8471") == "192.0.2.1:8471"


def test_without_a_socket_unit_the_settings_have_to_name_the_addresses(tmp_path: Path) -> None:
    def install(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["service", "install", "--root", str(tmp_path), *arguments])

    assert install().exit_code == 0
    refused = install("--no-socket")
    setting = 'listen = ["unix:/run/dhpd/dhpd.sock"]'
    assert refused.exit_code == 2
    assert f"put `{setting}` into it" in refused.output
    config = tmp_path / "etc/dhpd/dhpd.toml"
    config.write_text(f"{config.read_text()}{setting}\n")
    assert install("--no-socket").exit_code == 0


@pytest.mark.parametrize("moves", [False, True])
def test_an_open_socket_is_left_alone_unless_it_is_to_be_elsewhere(moves: bool) -> None:
    asked: list[tuple[str, ...]] = []

    class Manager(systemctl.Systemctl):
        def ask(self, *arguments: str) -> None:
            asked.append(arguments)

        def show(self, unit: str, *properties: str) -> dict[str, str]:
            place = "/new" if moves and ("daemon-reload",) in asked else "/old"
            return {name: {"ActiveState": "active", "Listen": f"{place} (Stream)"}[name] for name in properties}

    installing.start(plan_for(for_user=True), Manager(for_user=True))
    stopped = [("stop", units.SOCKET, units.SERVICE)] if moves else []
    assert asked[2:] == [*stopped, ("start", units.SOCKET), ("restart", units.SERVICE)]


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("0.0.0.0:8471", "add --tokens and --tls-cert with --tls-key, or --insecure"),
        ("localhost:8471", "systemd listens on numbers only"),
        ("unix:here.sock", "systemd needs the whole path"),
        ("nonsense", "is no address"),
    ],
)
def test_an_address_that_cant_be_listened_on_is_refused_before_anything_is_written(
    tmp_path: Path, listen: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        installing.check_addresses(plan_for(for_user=False, listen=[listen]), tmp_path, [listen])
    refused = CliRunner().invoke(main, ["service", "install", "--root", str(tmp_path), "--listen", listen])
    assert refused.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_package_has_its_files_where_packages_do(tmp_path: Path) -> None:
    made = CliRunner().invoke(main, ["service", "install", "--root", str(tmp_path)])
    assert made.exit_code == 0
    found = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*") if path.is_file()}
    assert set(found) == {
        "usr/lib/systemd/system/dhpd.service",
        "usr/lib/systemd/system/dhpd.socket",
        "usr/lib/sysusers.d/dhpd.conf",
        "etc/dhpd/dhpd.toml",
        "etc/dhpd/tokens.toml",
    }
    service = found["usr/lib/systemd/system/dhpd.service"].read_text()
    assert "ExecStart=/usr/bin/dhpd --config /etc/dhpd/dhpd.toml\n" in service
    assert "Type=notify\n" in service, "it may come to any systemd"


def test_what_is_shown_is_what_would_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    shown = CliRunner().invoke(main, ["service", "install", "--user", "--print"])
    assert shown.exit_code == 0
    assert list(tmp_path.iterdir()) == []
    wrote = CliRunner().invoke(main, ["service", "install", "--user", "--no-start"])
    assert wrote.exit_code == 0
    for path in tmp_path.rglob("dhpd.*"):
        assert f"# {path}\n{path.read_text()}" in shown.output
    assert {path.name for path in tmp_path.rglob("dhpd.*")} == {"dhpd.service", "dhpd.socket", "dhpd.toml"}


def test_without_systemd_it_says_what_else_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for command in ("install", "status"):
        refused = CliRunner().invoke(main, ["service", command, "--user"])
        assert refused.exit_code == 1
        for words in ("systemd", "compose.yaml", "run `dhpd --config FILE` in the foreground"):
            assert words in refused.output
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_the_services_user_cant_reach_isnt_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Runs(systemctl.Systemctl):
        def check_runs(self) -> None:
            pass

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    python = closed / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    assert placing.unreachable() == python
    with pytest.raises(systemctl.SystemdError, match=rf"can't get at {python}.*pip install"):
        installing.check_possible(plan_for(for_user=False), Runs(for_user=False))


def test_paths_stand_in_a_unit_as_one_word() -> None:
    assert units.word("/opt/100% of $it/dhpd") == "'/opt/100%% of $$it/dhpd'"
    assert PurePosixPath(units.word("/usr/bin/dhpd")) == PurePosixPath("/usr/bin/dhpd")
