"""A bundle whose sender falls silent gives its place up, and its next part is told so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dhpd.server import importing as importing_module
from tests.support.bundles import exported
from tests.support.in_process_daemon import InProcessDaemon
from tests.support.wire_client import WireClient


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessDaemon]:
    """It has room for one bundle, and little patience with it."""
    monkeypatch.setattr(importing_module, "MAX_OPEN", 1)
    monkeypatch.setattr(importing_module, "SILENT_AT_MOST_S", 0.05)
    with InProcessDaemon(tmp_path) as running:
        yield running


def test_it_gives_its_place_up_and_its_next_part_is_refused(daemon: InProcessDaemon) -> None:
    with WireClient(daemon.address) as silent, WireClient(daemon.address) as other:
        handoff = other.dispatch()
        other.call("cancel", handoff=handoff)
        lines = exported(other, handoff)
        silent.call("import", records=lines[:2])
        while not (reply := other.reply(other.send("import", records=lines)))["ok"]:
            assert reply["error"]["code"] == "overloaded"
        refused = silent.refused("import", records=lines[2:])
        assert (refused.code, refused.details) == ("invalid_request", {"member": "records", "line": 3})
        assert "first line" in refused.error["message"]
        assert silent.call("import", records=lines)["handoff"] == handoff


def test_who_begins_anew_by_itself_is_not_told_of_it(daemon: InProcessDaemon) -> None:
    with WireClient(daemon.address) as silent, WireClient(daemon.address) as other:
        handoff = other.dispatch()
        other.call("cancel", handoff=handoff)
        lines = exported(other, handoff)
        silent.call("import", records=lines[:1])
        while not other.reply(other.send("import", records=lines))["ok"]:
            pass
        assert silent.call("import", records=lines)["handoff"] == handoff
