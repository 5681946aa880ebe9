"""The page on running the daemon, on TLS and tokens: an authority, certificates, tokens, a daemon and a client, as printed."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from .blocks import block

PAGE = "docs/operating.md"
SECTION = "TLS and tokens"
BLOCKS = (
    block(PAGE, SECTION, "sh", 0),
    block(PAGE, SECTION, "sh", 1),
    block(PAGE, SECTION, "sh", 2),
    block(PAGE, SECTION, "sh", 3),
)
PRINTED_PORT = "8471"


def test_every_command_does_what_it_says(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    authority, tokens, daemon, client = [text.replace(PRINTED_PORT, port) for text in BLOCKS]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("DHP")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def typed(commands: str) -> str:
        ended = subprocess.run(
            ["sh", "-euc", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    typed(authority)
    assert "ada@example.org" in typed("openssl x509 -in tls/ada.pem -noout -ext subjectAltName")
    typed(tokens)
    with subprocess.Popen(
        ["sh", "-euc", f"exec {daemon}"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == f"dhpd ready tls://127.0.0.1:{port}\n"
            assert re.search(r"\b[0-9a-f]{64}\b", typed(client))
            said = typed(f"{client}\ndhp list --json\ndhp health --json\n{REFUSED}")
            assert "Ada" not in said, "a list shows no inputs"
            assert "the role approver" not in said
            assert "dispatch needs the role dispatcher" in said
        finally:
            running.terminate()
    assert running.returncode == 0


REFUSED = "DHP_TOKEN_FILE=people.token dhp dispatch greet --inputs '{}' 2>&1 || true"
