"""What the tests of the service share: a systemd of their own, which runs what is installed there."""

from collections.abc import Iterator

import pytest

from tests.support.private_systemd import PrivateSystemd, missing

WATCHDOG = "[Service]\nWatchdogSec=3s\nTimeoutAbortSec=3s\n"
"""A minute, as the unit has it, is long for a test."""


@pytest.fixture(scope="package")
def systemd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSystemd]:
    """One in which dhpd was installed by `dhpd service install`."""
    if (why := missing()) is not None:
        pytest.skip(f"needs systemd in a container: {why}")
    with PrivateSystemd(tmp_path_factory.mktemp("systemd")) as running:
        override = running.path("/etc/systemd/system/dhpd.service.d/test.conf")
        override.parent.mkdir()
        override.write_text(WATCHDOG)
        installed = running.run("dhpd", "service", "install")
        assert (installed.returncode, installed.stderr) == (0, "")
        yield running
