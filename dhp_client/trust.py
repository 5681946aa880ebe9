"""Whom a client trusts over TLS, and what it shows of itself.

Owns the files' settings, the context made of them, and saying what is wrong when two ends can't trust each other. A daemon's
certificate is verified always, its name too: there is no setting that would turn that off. Does not own connecting.
"""

import os
import ssl
from collections.abc import Mapping
from typing import NoReturn

from msgspec import Struct

from .exceptions import BadAddress, Untrusted

CA_VARIABLE = "DHP_TLS_CA"
CERTIFICATE_VARIABLE = "DHP_TLS_CERT"
KEY_VARIABLE = "DHP_TLS_KEY"

HANDSHAKE_WITHIN_MS = 5_000
"""As long as the daemon waits: when it has just come back, many shake hands at the same time."""

_CERTIFICATE_FILE = "cert_file= (--cert-file, $DHP_TLS_CERT)"
_KEY_FILE = "key_file= (--key-file, $DHP_TLS_KEY)"
_EXPIRED, _NOT_YET_VALID = 10, 9
_WRONG_NAMES = (62, 63, 64)
_UNKNOWN_ISSUERS = (2, 18, 19, 20, 21)
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG")
_WANTS_CERTIFICATE = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE")
_REFUSES_CERTIFICATE = (
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_UNKNOWN",
    "UNSUPPORTED_CERTIFICATE",
    "DECRYPT_ERROR",
)


class Trust(Struct, frozen=True):
    """`ca_file` holds the certificates of those whose signature is trusted (None: whom the system trusts); `cert_file` and
    `key_file` are the client's own; `server_name` is the name the daemon's certificate must hold (None: the address's host).
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """What the next handshake goes by: the files are read anew, since certificates are. Blocks. Raises `BadAddress`."""
        if self.key_file is not None and self.cert_file is None:
            raise BadAddress(f"A key is of no use without its certificate: give {_CERTIFICATE_FILE} too.")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # Verifies the certificate and its name.
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.ca_file is None:
            context.load_default_certs()
        else:
            _check_readable(self.ca_file)
            try:
                context.load_verify_locations(self.ca_file)
            except ssl.SSLError as error:
                raise BadAddress(f"{self.ca_file} holds no CA's certificate in PEM form ({error.reason}).") from None
        if self.cert_file is not None:
            _check_readable(self.cert_file)
            _check_readable(self.key_file or self.cert_file)
            try:
                context.load_cert_chain(self.cert_file, self.key_file, password=self._needs_passphrase)
            except ssl.SSLError as error:
                files = " and ".join(file for file in (self.cert_file, self.key_file) if file is not None)
                why = f" ({error.reason})" if error.reason else ""
                lacking = "" if self.key_file else f" Where the key has a file of its own, give {_KEY_FILE} too."
                raise BadAddress(f"{files}: no certificate with its key, in PEM form{why}.{lacking}") from None
        return context

    def _needs_passphrase(self) -> NoReturn:
        raise BadAddress(f"{self.key_file or self.cert_file} is locked by a passphrase: give a key without one.")


def trust_from(
    ca_file: str | os.PathLike[str] | None = None,
    cert_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    server_name: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Trust:
    """What was given, else what the environment says. A certificate that was given doesn't get the environment's key."""
    if cert_file is None and key_file is None:
        cert_file, key_file = environment.get(CERTIFICATE_VARIABLE), environment.get(KEY_VARIABLE)
    return Trust(
        _path(ca_file or environment.get(CA_VARIABLE)),
        _path(cert_file),
        _path(key_file),
        server_name or None,
    )


def why_untrusted(address: object, error: BaseException | None) -> Untrusted | None:
    """What to say of a failure of TLS at `address`; None: it is none."""
    if not isinstance(error, ssl.SSLError):
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return Untrusted(_why_not_trusted(address, error))
    reason = error.reason or ""
    if any(known in reason for known in _NO_TLS):
        return Untrusted(f"{address} doesn't speak TLS: connect with tcp://, or start dhpd there with --tls-cert.")
    if any(known in reason for known in _WANTS_CERTIFICATE):
        return Untrusted(f"{address} asks for this client's certificate: give {_CERTIFICATE_FILE} and {_KEY_FILE}.")
    if any(known in reason for known in _REFUSES_CERTIFICATE):
        told = reason.partition("ALERT_")[2] or reason
        why = told.replace("_", " ").lower()
        return Untrusted(
            f"{address} doesn't take this client's certificate ({why}): get one that is signed by whom it trusts."
        )
    return Untrusted(f"{address} and this client can't agree on TLS ({reason or error}).")


def _why_not_trusted(address: object, error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return f"The certificate of {address} has expired: it has to be renewed there."
    if code == _NOT_YET_VALID:
        return f"The certificate of {address} isn't valid yet: compare the clocks."
    if code in _WRONG_NAMES:
        return (
            f"The certificate of {address} is for another name: connect to a name that it holds, or give server_name=."
        )
    if code in _UNKNOWN_ISSUERS:
        return (
            f"The certificate of {address} isn't signed by anybody trusted here: give its CA's as ca_file= "
            "(--ca-file, $DHP_TLS_CA)."
        )
    return f"The certificate of {address} can't be trusted: {error.verify_message}."


def _path(given: str | os.PathLike[str] | None) -> str | None:
    return None if not given else os.path.abspath(os.fsdecode(given))


def _check_readable(file: str) -> None:
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise BadAddress(f"{file} can't be read: {error.strerror}.") from None
