"""The daemon's certificate: what is shown to clients, and whose certificates are asked of them.

Owns reading the files, what is wrong with them, and the name that a client's certificate proves. Does not own a
connection's encryption (`tls`), nor what a name may do (`admission`).
"""

import logging
import os
import ssl
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from dhp_protocol.limits import MAX_NAME_CHARS
from dhpd.config import Config, ConfigError

_log = logging.getLogger(__name__)


class Certificates:
    """A context for the handshakes to come, made of files, and made anew when those have changed."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        """Reads the files; raises `ConfigError`. With `client_ca`, clients must show a certificate signed by one of those in there."""
        self._files = (certificate, key, client_ca)
        self._reading = threading.Lock()  # Who reads later leaves what was read later.
        self.context = _context(*self._files)

    def reload(self) -> str | None:
        """Reads the files again, for the connections to come. What can't be used leaves all as it was, and is told. Blocks."""
        with self._reading:
            try:
                self.context = _context(*self._files)
            except ConfigError as error:
                refused = f"{error} The certificate from before stays in use."
                _log.error("%s", refused)
                return refused
            _log.info("the certificate was read: it is shown to new connections")
            return None


def certificates_of(config: Config) -> Certificates | None:
    """What the settings say; None: no TLS. Raises `ConfigError`."""
    if config.tls_cert is None and config.tls_key is None:
        if config.tls_client_ca is not None:
            raise ConfigError(
                "--tls-client-ca needs --tls-cert and --tls-key: clients' certificates are asked for by TLS."
            )
        return None
    if config.tls_cert is None or config.tls_key is None:
        raise ConfigError("TLS needs both a certificate and its key: give --tls-cert FILE and --tls-key FILE.")
    client_ca = None if config.tls_client_ca is None else Path(config.tls_client_ca)
    return Certificates(Path(config.tls_cert), Path(config.tls_key), client_ca)


def name_in(certificate: Mapping[str, Any]) -> str | None:
    """The name that a certificate, as `ssl` gives it, proves: its first e-mail address, else its first DNS name, else its first
    URI, else its last common name. None: that can't be a worker's name, or there is none.
    """
    alternatives = certificate.get("subjectAltName", ())
    names = [value for wanted in ("email", "DNS", "URI") for kind, value in alternatives if kind == wanted]
    if not names:
        parts = [part for parts in certificate.get("subject", ()) for part in parts]
        names = [value for kind, value in reversed(parts) if kind == "commonName"]
    name = names[0] if names else ""
    return name if name.isprintable() and 1 <= len(name) <= MAX_NAME_CHARS else None


def _context(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    try:
        return _loaded(certificate, key, client_ca)
    except OSError as error:  # Each is read more than once, and may just be exchanged.
        raise ConfigError(
            f"The certificate {certificate} and its key {key} changed while they were read: {error.strerror}."
        ) from None


def _loaded(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # Each connection proves anew who it is.
    _check_text(certificate, "certificate", b"-----BEGIN CERTIFICATE-----")
    _check_text(key, "key", b"PRIVATE KEY-----")
    _check_private(key)
    try:
        context.load_cert_chain(certificate, key, password=lambda: _needs_passphrase(key))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"The key {key} isn't the one of the certificate {certificate}.") from None
        raise ConfigError(f"The certificate {certificate} and its key {key} can't be used: {_why(error)}.") from None
    if client_ca is not None:
        _check_text(client_ca, "clients' CA", b"-----BEGIN CERTIFICATE-----")
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise ConfigError(f"The clients' CA {client_ca} can't be used: {_why(error)}.") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _check_text(file: Path, what: str, must_hold: bytes) -> None:
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"The {what} {file} can't be read: {error.strerror}.") from None
    if must_hold not in text:
        raise ConfigError(f"The {what} {file} holds none in PEM form.")


def _check_private(key: Path) -> None:
    """As OpenSSH has it: nobody else reads a key. One that is another user's, root's most often, may be read through its group."""
    found = key.stat()
    open_to = stat.S_IRWXO | (stat.S_IRWXG if found.st_uid == os.geteuid() else stat.S_IWGRP)
    if found.st_mode & open_to:
        raise ConfigError(f"The key {key} is open to others (mode {stat.S_IMODE(found.st_mode):04o}): chmod 600 it.")


def _needs_passphrase(key: Path) -> NoReturn:
    raise ConfigError(f"The key {key} is locked by a passphrase, which nobody could type here: give one without.")


def _why(error: ssl.SSLError) -> str:
    return (error.reason or "no reason told").replace("_", " ").lower()
