"""The daemon's certificate files: what is wrong with them is said in a line, and new ones are taken up while it runs."""

import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dhpd.config import Config, ConfigError
from dhpd.server import certificates
from dhpd.server.certificates import Certificates, certificates_of
from tests.security.authority import Authority, Identity
from tests.security.conftest import encrypted, plain
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient


def told(cert: object = None, key: object = None, client_ca: object = None) -> str:
    names = [None if file is None else str(file) for file in (cert, key, client_ca)]
    with pytest.raises(ConfigError) as raised:
        certificates_of(Config(tls_cert=names[0], tls_key=names[1], tls_client_ca=names[2]))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_what_cant_be_used_is_said_in_a_line(tmp_path: Path, server: Identity, ada: Identity) -> None:
    cert, key = server.cert_file, server.key_file
    (tmp_path / "empty").touch(mode=0o600)
    (tmp_path / "broken").write_text("-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n")
    assert "give --tls-cert FILE and --tls-key FILE" in told(cert)
    assert "give --tls-cert FILE and --tls-key FILE" in told(None, key)
    assert "--tls-client-ca needs --tls-cert" in told(None, None, cert)
    assert "/none can't be read: No such file" in told("/none", key)
    assert "/none can't be read: No such file" in told(cert, "/none")
    assert "/none can't be read: No such file" in told(cert, key, "/none")
    assert "key" in told(key, key)
    assert "holds none in PEM form" in told(cert, tmp_path / "empty")
    assert "holds none in PEM form" in told(cert, key, tmp_path / "empty")
    assert "can't be used" in told(cert, key, tmp_path / "broken")
    assert "can't be used" in told(tmp_path / "broken", key)
    assert "isn't the one of the certificate" in told(cert, ada.key_file)


def test_a_key_that_is_locked_by_a_passphrase_is_refused_without_asking_for_it(
    tmp_path: Path, server: Identity
) -> None:
    locked = tmp_path / "locked"
    made = ["openssl", "pkey", "-in", server.key_file, "-aes256", "-passout", "pass:secret", "-out", locked]
    subprocess.run(made, check=True, capture_output=True)
    locked.chmod(0o600)
    assert "locked by a passphrase" in told(server.cert_file, locked)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o601])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, server: Identity, mode: int) -> None:
    key = tmp_path / "key"
    key.write_bytes(server.key_file.read_bytes())
    key.chmod(mode)
    assert f"is open to others (mode {mode:04o}): chmod 600 it" in told(server.cert_file, key)
    key.chmod(0o400)
    assert certificates_of(Config(tls_cert=str(server.cert_file), tls_key=str(key))) is not None


def test_files_that_are_exchanged_while_they_are_read_leave_the_certificate_from_before(
    server: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(server.key_file.read_bytes())
    key.chmod(0o600)
    used = Certificates(server.cert_file, key, None)
    before = used.context
    monkeypatch.setattr(certificates, "_check_private", lambda file: file.unlink())
    assert used.reload() == (
        f"The certificate {server.cert_file} and its key {key} changed while they were read: No such file or directory. "
        "The certificate from before stays in use."
    )
    assert used.context is before


def test_settings_that_cant_be_used_end_the_daemon_with_one_line_and_code_2(tmp_path: Path, server: Identity) -> None:
    command = [sys.executable, "-m", "dhpd", "--data", str(tmp_path / "data"), "--tls-cert", str(server.cert_file)]
    env = {**os.environ, "DHPD_TLS_KEY": "/none"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "dhpd: The key /none can't be read: No such file or directory.\n"
    assert not (tmp_path / "data").exists()


def test_an_old_version_of_tls_is_refused(tmp_path: Path, authority: Authority, server: Identity) -> None:
    with DaemonProcess(tmp_path / "data", arguments=server.flags) as daemon:
        context = ssl.create_default_context(cafile=str(authority.ca_file))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with context.wrap_socket(plain(daemon), server_hostname="127.0.0.1") as sock:
            assert sock.version() == "TLSv1.2"
        with encrypted(daemon, authority) as sock:
            assert sock.version() == "TLSv1.3"
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        with plain(daemon) as sock, pytest.raises(ssl.SSLError):
            context.wrap_socket(sock, server_hostname="127.0.0.1")


def test_sighup_takes_up_a_new_certificate_and_leaves_the_old_one_where_it_is_broken(
    tmp_path: Path, authority: Authority
) -> None:
    files = [tmp_path / "cert.pem", tmp_path / "key.pem"]

    def put(identity: Identity) -> None:
        for source, target in zip((identity.cert_file, identity.key_file), files, strict=True):
            draft = target.with_suffix(".new")
            draft.write_bytes(source.read_bytes())
            draft.chmod(0o600)
            draft.replace(target)

    def names(daemon: DaemonProcess) -> list[str]:
        with encrypted(daemon, authority) as sock:
            certificate = sock.getpeercert()
        assert certificate is not None
        return [str(value) for kind, value in certificate["subjectAltName"] if kind == "DNS"]

    def hang_up_signal(daemon: DaemonProcess, awaited: str) -> None:
        os.kill(daemon.pid, signal.SIGHUP)
        while awaited not in daemon.stderr:
            time.sleep(0.02)

    put(authority.issue("127.0.0.1", "first"))
    flags = ["--tls-cert", str(files[0]), "--tls-key", str(files[1])]
    with DaemonProcess(tmp_path / "data", arguments=flags) as daemon, WireClient(encrypted(daemon, authority)) as old:
        assert names(daemon) == ["first"]
        put(authority.issue("127.0.0.1", "second"))
        assert names(daemon) == ["first"], "only a signal has them read"
        hang_up_signal(daemon, "the certificate was read")
        assert names(daemon) == ["second"]
        files[0].write_text("nonsense")
        hang_up_signal(daemon, "holds none in PEM form. The certificate from before stays in use.")
        assert names(daemon) == ["second"]
        old.call("ping")
