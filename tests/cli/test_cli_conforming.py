"""`dhp conform`: its report, its choice of points, its exit codes. What the points find is tests/conformance's."""

from hashlib import sha256
from pathlib import Path

import pytest

from tests.security.authority import Authority
from tests.support.daemon_process import DaemonProcess

from .conftest import Dhp


def test_points_are_told_line_by_line_and_summed_up(dhp: Dhp, daemon: DaemonProcess) -> None:
    ran = dhp("conform", daemon.address, "--only", "capabilities", "--only", "unseen/not-primary")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "ok       capabilities/only-what-is-named-is-granted"
    assert lines[-2] == "skipped  unseen/not-primary: not checkable from outside"
    assert lines[-1] == "2 ok, 0 failed, 1 skipped."


def test_the_report_as_json(dhp: Dhp, daemon: DaemonProcess) -> None:
    ran = dhp("conform", daemon.address, "--json", "--only", "capabilities/only*")
    point, summary = ran.json_lines
    assert point["outcome"] == "ok"
    assert point["section"].startswith("5 ")
    assert summary == {"ok": 1, "failed": 0, "skipped": 0, "left": []}


def test_points_can_be_listed_without_a_daemon(dhp: Dhp) -> None:
    ran = dhp("conform", "--list", "--only", "fences/late:*", "tcp://127.0.0.1:1")
    assert ran.code == 0
    assert "fences/late:-checkpoint  (5 The life of a handoff)" in ran.out


def test_no_such_point_is_wrong_usage(dhp: Dhp, daemon: DaemonProcess) -> None:
    assert dhp("conform", daemon.address, "--only", "nothing-like-it").code == 2


def test_nobody_there_is_told(dhp: Dhp, tmp_path: Path) -> None:
    for address in ("tcp://127.0.0.1:1", f"unix:{tmp_path}/none.sock", str(tmp_path)):
        ran = dhp("conform", address, "--only", "frames")
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.startswith("dhp: ")


def test_a_directory_stands_for_the_daemon_that_runs_there(dhp: Dhp, daemon: DaemonProcess) -> None:
    assert dhp("conform", str(daemon.data), "--only", "capabilities/only*").code == 0


def test_draining_is_for_those_who_ask_for_it(dhp: Dhp, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as own:
        assert dhp("conform", own.address, "--only", "drain").out.splitlines()[-1] == "0 ok, 0 failed, 1 skipped."
        assert (
            dhp("conform", own.address, "--only", "drain", "--drain").out.splitlines()[-1]
            == "1 ok, 0 failed, 0 skipped."
        )


def test_where_a_certificate_names_the_worker_nothing_is_checked_and_told_why(
    dhp: Dhp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    ada = authority.issue("ada@example.org")
    flags = [*authority.issue("127.0.0.1").flags, "--tls-client-ca", str(authority.ca_file)]
    for variable, file in (("CA", authority.ca_file), ("CERT", ada.cert_file), ("KEY", ada.key_file)):
        monkeypatch.setenv(f"DHP_TLS_{variable}", str(file))
    with DaemonProcess(tmp_path / "data", arguments=flags) as own:
        ran = dhp("conform", own.address)
    assert (ran.code, ran.out) == (1, "")
    assert "as the worker 'ada@example.org'" in ran.err


def test_where_tokens_are_in_use(dhp: Dhp, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    secrets = {name: f"{name}-{'x' * 24}" for name in ("ada", "grace", "mary")}
    roles = {"ada": ["admin"], "grace": ["approver"], "mary": ["dispatcher", "worker"]}
    tokens.write_text(
        "".join(
            f'[[token]]\nname = "{name}"\nsha256 = "{sha256(secret.encode()).hexdigest()}"\nroles = {roles[name]}\n'
            for name, secret in secrets.items()
        )
    )
    for name, secret in secrets.items():
        (tmp_path / name).write_text(secret)
    only = [
        part
        for group in ("hello/w*", "approvals/whoever", "ends/what-is-forgotten", "suspension/a-decision")
        for part in ("--only", group)
    ]
    with DaemonProcess(tmp_path / "data", arguments=("--tokens", str(tokens))) as own:
        assert dhp("conform", own.address, *only).code == 1
        by_admin = dhp("conform", own.address, "--token-file", str(tmp_path / "ada"), *only)
        assert (by_admin.code, "give --approver-token-file" in by_admin.out) == (0, True)
        files = ("--token-file", str(tmp_path / "ada"), "--approver-token-file", str(tmp_path / "grace"))
        with_approver = dhp("conform", own.address, *files, *only)
        assert with_approver.code == 0
        assert with_approver.out.count("skipped") == 2  # One point, and the sum.
        by_worker = dhp("conform", own.address, "--token-file", str(tmp_path / "mary"), *only)
        assert by_worker.code == 0
        assert "the token isn't admin" in by_worker.out
        assert "couldn't be removed" in by_worker.err
