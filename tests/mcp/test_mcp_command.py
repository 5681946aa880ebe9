"""What `dhp mcp` says before it serves anybody."""

import logging
from pathlib import Path

import pytest

from dhp_client.cli import extras
from dhp_client.cli.main import exit_code
from dhp_client.mcp.secret import SECRET_BYTES, kept_secret

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--connect", "http://127.0.0.1"], 2, "an address begins with tcp://"),
        (["--http", "nowhere"], 2, "write HOST:PORT"),
        (["--http", "0.0.0.0:0"], 2, "--http-token-file"),
        (["--approver-token-file", "/no/such/file"], 2, "can't be read"),
        (["--token-file", "token", "--approver-token-file", "token"], 1, "give persons one of their own"),
        (["--idle-ms", "0"], 2, "--idle-ms"),
        (["no-such-command"], 2, "No such command"),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: list[str], code: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("a-token")
    assert exit_code(["mcp", *arguments]) == code
    out, err = capsys.readouterr()
    assert told in err
    assert out == ""
    assert "a-token" not in err


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None)
    assert exit_code(["mcp"]) == 2
    assert "pip install 'dhpd[mcp]'" in capsys.readouterr().err


def test_the_secret_is_kept_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    secret = kept_secret(environment)
    assert len(secret) == SECRET_BYTES
    assert kept_secret(environment) == secret
    (kept,) = (tmp_path / "dhp").iterdir()
    kept.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert kept_secret(environment) != secret
    assert "delete it" in caplog.text
    # Where nothing can be kept there is one all the same.
    assert len(kept_secret({"XDG_STATE_HOME": "/dev/null"})) == SECRET_BYTES
