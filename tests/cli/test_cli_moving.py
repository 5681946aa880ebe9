"""Work is moved from daemon to daemon by files, and by standard input and output."""

from pathlib import Path

import dhp_client.sync

from ..support.daemon_process import DaemonProcess
from .conftest import Dhp


def test_work_is_moved_by_a_file_and_goes_on_elsewhere(
    dhp: Dhp, client: dhp_client.sync.Client, tmp_path: Path
) -> None:
    handoff = dhp("dispatch", "cli.move").out.strip()
    with client.claim(handoff) as task:
        task.checkpoint("half-way")
    file = tmp_path / "bundle.jsonl"
    exported = dhp("export", handoff[:12], str(file))
    assert exported.code == 0
    assert f"{len(file.read_text().splitlines())} lines, {file.stat().st_size} bytes" in exported.out
    assert f"`dhp resume --force {handoff[:12]}`" in exported.err
    refused = dhp("resume", handoff)
    assert (refused.code, "force" in refused.err) == (1, True)
    with DaemonProcess(tmp_path / "elsewhere") as elsewhere:
        there = ("--connect", elsewhere.address)
        imported = dhp("import", str(file), *there)
        assert (imported.code, imported.out) == (0, f"{handoff}\n")
        assert f"it is suspended: `dhp resume {handoff[:12]}`" in imported.err
        again = dhp("import", str(file), *there, "--json")
        assert again.json == {"handoff": handoff, "created": False, "taken": 0}
        assert "it was there already" in again.err
        assert dhp("resume", handoff, *there).out == "pending\n"
        with dhp_client.sync.connect(elsewhere.address) as other, other.claim(handoff) as task:
            assert task.state == "half-way"


def test_what_has_ended_goes_through_a_pipe(dhp: Dhp, client: dhp_client.sync.Client, tmp_path: Path) -> None:
    handoff = dhp("dispatch", "cli.pipe").out.strip()
    with client.claim(handoff) as task:
        task.complete("done")
    bundle = dhp("export", handoff)
    assert (bundle.code, bundle.err) == (0, "")
    with DaemonProcess(tmp_path / "elsewhere") as elsewhere:
        there = ("--connect", elsewhere.address)
        imported = dhp("import", "-", *there, stdin=bundle.out.encode())
        assert (imported.code, imported.out, imported.err) == (0, f"{handoff}\n", "")
        assert dhp("result", handoff, *there).out == '"done"\n'


def test_a_bundle_that_was_changed_is_refused_with_its_line(dhp: Dhp) -> None:
    lines = dhp("export", dhp("dispatch", "cli.changed").out.strip()).out.splitlines()
    lines[1] = lines[1].replace("cli.changed", "cli.changeb")
    refused = dhp("import", "-", stdin="\n".join(lines).encode())
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("dhp: Line 2 ")


def test_nothing_is_put_aside_for_a_file_that_cannot_be_written(dhp: Dhp, tmp_path: Path) -> None:
    handoff = dhp("dispatch", "cli.taken").out.strip()
    taken = tmp_path / "taken"
    taken.write_text("precious")
    for file, told in ((taken, "is there already"), (tmp_path / "no" / "where", "can't be written")):
        refused = dhp("export", handoff, str(file))
        assert (refused.code, refused.out, told in refused.err) == (2, "", True)
    assert taken.read_text() == "precious"
    assert dhp("status", handoff, "--json").json["status"] == "pending"
    missing = tmp_path / "missing"
    assert dhp("export", "0" * 64, str(missing)).code == 1
    assert not missing.exists()
    assert dhp("import", str(missing)).code == 2
