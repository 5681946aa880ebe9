"""Certificates of the tests' own: authorities, and files as daemon and clients take them."""

import datetime
import itertools
import os
from dataclasses import dataclass
from pathlib import Path

import trustme

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, in two files."""

    cert_file: Path
    key_file: Path

    @property
    def files(self) -> dict[str, str]:
        """As `dhp_client.connect` takes them."""
        return {"cert_file": str(self.cert_file), "key_file": str(self.key_file)}

    @property
    def flags(self) -> list[str]:
        """As `dhpd` takes them."""
        return ["--tls-cert", str(self.cert_file), "--tls-key", str(self.key_file)]


class Authority:
    """Signs certificates; `ca_file` is what makes others trust them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.ca_file = folder / f"ca-{next(_numbers)}.pem"
        self._ca.cert_pem.write_to_path(str(self.ca_file))

    def issue(self, *names: str, common_name: str | None = None, expired: bool = False) -> Identity:
        """A certificate for those names (e-mail addresses, host names, IP addresses)."""
        past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        dates = {"not_before": past - datetime.timedelta(days=1), "not_after": past} if expired else {}
        issued = self._ca.issue_cert(*names, common_name=common_name, **dates)  # type: ignore[arg-type]
        made = Identity(*(self._folder / f"{next(_numbers)}-{what}.pem" for what in ("cert", "key")))
        for number, blob in enumerate(issued.cert_chain_pems):
            blob.write_to_path(str(made.cert_file), append=number > 0)
        made.key_file.touch(mode=0o600)
        os.chmod(made.key_file, 0o600)
        issued.private_key_pem.write_to_path(str(made.key_file))
        return made
