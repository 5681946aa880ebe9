"""The token file: what a good one is, what is said about a bad one, and how `dhpd token` adds to it."""

import concurrent.futures
import hashlib
import os
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dhpd.config import ConfigError, load_config
from dhpd.server.tokens import Tokens
from dhpd.token_file import TokenEntry, add_token, parse_roles, parse_tokens

SHA256 = hashlib.sha256(b"secret").hexdigest()
ENTRY = f'[[token]]\nname = "ada"\nsha256 = "{SHA256}"\nroles = ["worker", "reader"]\n'


def dhpd(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dhpd", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env={**os.environ, **(env or {})})


# --- reading ---------------------------------------------------------------------------------------------------------


def test_a_good_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(ENTRY)
    tokens = Tokens(path)
    ada = tokens.find("secret")
    assert ada is not None
    assert (ada.token, ada.roles) == ("ada", {"worker", "reader"})
    assert tokens.find("another") is None
    assert tokens.find(SHA256) is None
    assert tokens.find("sécret") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "token"),
        ("[[token\n", "at line 1"),
        ("[[token]]\n", "name"),
        ("[token]\n", "token"),
        (ENTRY + "expires = 5\n", "expires"),
        ("colour = 5\n" + ENTRY, "colour"),
        (ENTRY.replace("worker", "wrker"), "wrker"),
        (ENTRY.replace('"worker", "reader"', ""), "roles"),
        (ENTRY.replace(SHA256, SHA256.upper()), "sha256"),
        (ENTRY.replace(SHA256, SHA256[:-1]), "sha256"),
        (ENTRY.replace("ada", ""), "name"),
        (ENTRY.replace("ada", "a" * 129), "name"),
        (ENTRY.replace("ada", "a\\n"), "name"),
        (ENTRY + ENTRY, "the same name"),
        (ENTRY + ENTRY.replace("ada", "bob"), "the same sha256"),
    ],
)
def test_a_bad_file_is_told_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    ended = dhpd("--data", tmp_path / "data", "--tokens", path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(r"dhpd: .*\n", ended.stderr)
    assert str(path) in ended.stderr
    assert said in ended.stderr
    assert SHA256[:-1] not in ended.stderr.lower()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir, lambda path: path.write_bytes(b"\xff")])
def test_a_file_that_can_not_be_read_is_told_in_one_line(tmp_path: Path, make: object) -> None:
    path = tmp_path / "tokens.toml"
    assert callable(make)
    make(path)
    ended = dhpd("--data", tmp_path / "data", env={"DHPD_TOKENS": str(path)})
    assert ended.returncode == 2
    assert re.fullmatch(r"dhpd: The token file .*\n", ended.stderr)


def test_the_settings_file_may_name_it(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(f'tokens = "{tmp_path}/none.toml"\n')
    ended = dhpd("--data", tmp_path / "data", "--config", tmp_path / "settings.toml")
    assert (ended.returncode, "none.toml" in ended.stderr) == (2, True)


def test_neither_an_entry_nor_the_tokens_show_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(ENTRY)
    entry = TokenEntry("ada", SHA256, ["worker"])
    shown = [
        repr(entry),
        str(entry),
        repr(Tokens(path)),
        repr(parse_tokens(ENTRY, path)),
        repr(Tokens(path).find("secret")),
    ]
    assert all(SHA256 not in text and "secret" not in text for text in shown)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o664])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(ENTRY)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}"):
        Tokens(path)
    path.chmod(0o644)
    assert Tokens(path).find("secret") is not None


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokens.toml")
    with pytest.raises(ConfigError, match="plain file"):
        Tokens(tmp_path / "tokens.toml")


@pytest.mark.parametrize("text", ["token = " + "[" * 10_000, "token = " + "9" * 10_000], ids=["deep", "long"])
def test_toml_that_python_does_not_read_is_told_like_any_other(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="isn't TOML"):
        Tokens(path)
    with pytest.raises(ConfigError, match="can't be read"):
        load_config(path, {}, {})


# --- adding ----------------------------------------------------------------------------------------------------------


def test_a_token_is_made_shown_once_and_works(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    made = dhpd("token", "ada", "--roles", "reader,worker", "--tokens", path)
    assert (made.returncode, made.stderr) == (0, "")
    token = made.stdout.removesuffix("\n")
    assert re.fullmatch(r"dhp_[A-Za-z0-9_-]{43}", token)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token not in path.read_text()
    found = Tokens(path).find(token)
    assert found is not None
    assert found.told_roles() == ["worker", "reader"]


def test_no_two_tokens_are_alike(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    assert len({add_token(path, str(number), ["reader"]) for number in range(50)}) == 50


def test_what_stands_in_the_file_is_kept_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text("# Ours.\n" + ENTRY.rstrip("\n"))
    path.chmod(0o644)
    add_token(path, "bob", ["admin"])
    assert path.read_text().startswith("# Ours.\n" + ENTRY)
    assert [entry.name for entry in parse_tokens(path.read_text(), path)] == ["ada", "bob"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["tokens.toml"]


@pytest.mark.parametrize(("before", "after"), [(0o600, 0o600), (0o640, 0o640), (0o400, 0o400), (0o666, 0o640)])
def test_who_could_read_the_file_still_can_but_for_the_world(tmp_path: Path, before: int, after: int) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(ENTRY)
    path.chmod(before)
    add_token(path, "bob", ["admin"])
    assert stat.S_IMODE(path.stat().st_mode) == after


@pytest.mark.parametrize("name", ['a "quoted" \\ name', "Ada Lovelace", "é✓", "[[token]]", "x" * 128])
def test_a_name_is_kept_as_it_was_given(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tokens.toml"
    token = add_token(path, name, ["reader"])
    found = Tokens(path).find(token)
    assert found is not None
    assert found.token == name == tomllib.loads(path.read_text())["token"][0]["name"]


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb", "a\x7f"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        add_token(tmp_path / "tokens.toml", name, ["reader"])
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_there_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    add_token(path, "ada", ["worker"])
    before = path.read_text()
    refused = dhpd("token", "ada", "--roles", "worker", "--tokens", path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert re.fullmatch(r"dhpd: .*'ada' already.*\n", refused.stderr)
    assert path.read_text() == before


@pytest.mark.parametrize("text", ["[[token", "token = []\n", 'token = [{name = "x"}]\n'])
def test_a_broken_file_is_not_added_to(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        add_token(path, "ada", ["worker"])
    assert path.read_text() == text
    assert [entry.name for entry in tmp_path.iterdir()] == ["tokens.toml"]


def test_two_who_add_at_once_both_have_their_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    names = [f"token-{number}" for number in range(16)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda name: add_token(path, name, ["reader"]), names))
    tokens = Tokens(path)
    found = [tokens.find(token) for token in made]
    assert [caller and caller.token for caller in found] == names


def test_a_link_to_the_file_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real.toml")
    add_token(tmp_path / "link", "ada", ["worker"])
    assert (tmp_path / "link").is_symlink()
    assert "ada" in (tmp_path / "real.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("token", "ada", "--roles", "worker"), "--tokens"),
        (("token", "ada", "--tokens", "t.toml"), "--roles"),
        (("token", "--roles", "worker", "--tokens", "t.toml"), "NAME"),
        (("token", "ada", "--roles", "wrker", "--tokens", "t.toml"), "wrker"),
        (("token", "ada", "--roles", "", "--tokens", "t.toml"), "role"),
        (("token", "ada", "--roles", "worker", "--tokens", "none/t.toml"), "none/t.toml"),
    ],
)
def test_a_usage_error_is_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    command = [sys.executable, "-m", "dhpd", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(r"dhpd: .*\n", ended.stderr)
    assert said in ended.stderr
    assert not list(tmp_path.iterdir())


def test_the_file_may_be_named_before_the_command_or_in_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    assert dhpd("--tokens", path, "token", "ada", "--roles", "worker").returncode == 0
    assert dhpd("token", "bob", "--roles", "worker", env={"DHPD_TOKENS": str(path)}).returncode == 0
    assert [entry.name for entry in parse_tokens(path.read_text(), path)] == ["ada", "bob"]


def test_roles_are_told_in_their_order_and_once() -> None:
    assert parse_roles("reader, dispatcher,reader") == ["dispatcher", "reader"]
