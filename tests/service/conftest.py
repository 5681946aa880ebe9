"""What the tests of the service share: a machine with a systemd of its own."""

from collections.abc import Iterator

import pytest

from tests.support.private_systemd import PrivateSystemd, missing


@pytest.fixture(scope="package")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSystemd]:
    """One on which dhpd can be run by everybody, and isn't."""
    if (why := missing()) is not None:
        pytest.skip(f"needs systemd in a container: {why}")
    with PrivateSystemd(tmp_path_factory.mktemp("systemd")) as running:
        yield running
