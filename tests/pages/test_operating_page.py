"""The page on running the daemon does what it says: its commands are typed, and answer as printed but for sizes and counts."""

import os
import re
import subprocess
import sys
from pathlib import Path

from dhpd.config import Config, load_config

from ..support.daemon_process import DaemonProcess
from ..support.wire_client import WireClient
from .blocks import ROOT, block

PAGE = "docs/operating.md"
STARTED = block(PAGE, "Running it", "console")
CONSOLES = [block(PAGE, "Is the store whole", "console"), block(PAGE, "A second copy", "console")]


def test_every_command_answers_as_printed(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    assert STARTED.startswith("$ dhpd --data ./data --listen unix:./dhpd.sock\n")
    with DaemonProcess(tmp_path / "data", listen=(f"unix:{tmp_path}/dhpd.sock",)) as daemon:
        with WireClient(daemon.unix) as client:
            handoff = client.dispatch()
            fence = client.claim()["fence"]
            client.call("checkpoint", handoff=handoff, fence=fence, state=1)
            client.call("complete", handoff=handoff, fence=fence, result=2)
            client.call("list")  # Waits for the table of facts to say all this.
        for console in CONSOLES:
            commands = [line.removeprefix("$ ") for line in console.splitlines() if line.startswith("$ ")]
            printed = [line for line in console.splitlines() if not line.startswith("$ ")]
            script = "\n".join(commands)
            typed = subprocess.run(
                ["bash", "-ec", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
            )
            assert (typed.returncode, typed.stderr) == (0, "")
            assert [_counted(line) for line in typed.stdout.splitlines()] == [_counted(line) for line in printed]


def test_every_setting_is_named_and_the_example_can_be_used(tmp_path: Path) -> None:
    named = set(re.findall(r"`([a-z_]+)`", (ROOT / PAGE).read_text()))
    assert set(Config.__struct_fields__) - named == set()
    file = tmp_path / "dhpd.toml"
    file.write_text(block(PAGE, "Settings", "toml"))
    assert load_config(file, {}, {}).retention_ms == 90 * 86_400_000


def _counted(line: str) -> str:
    return re.sub(r"\d[\d,]*", "0", line)
