"""Work over TLS, end to end, where the certificate says who the worker is."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dhp_client
import dhp_client.sync
from dhp_client import BadFrame, Untrusted
from dhpd.server.certificates import name_in
from dhpd.token_file import add_token
from tests.security.authority import Authority, Identity
from tests.security.conftest import encrypted, plain
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import Refused, WireClient

NEVER_MS = 600_000
"""Who tries again for so long has to be told to stop."""
Speak = Callable[..., WireClient]


@pytest.fixture
def settings(authority: Authority, ada: Identity) -> dict[str, Any]:
    """Ada's, as `connect` takes them."""
    return {"ca_file": authority.ca_file, **ada.files}


async def a_handoff(daemon: DaemonProcess, settings: dict[str, Any], key: str) -> str:
    async with dhp_client.connect(daemon.address, **settings) as client:
        return (await client.dispatch("work", {}, key=key)).handoff


WORKER = """
import os, signal, sys, time, dhp_client
client = dhp_client.sync.connect(sys.argv[1])
with client.claim(sys.argv[2], ttl_ms=600) as task:
    task.checkpoint({"n": 1})
    time.sleep(1.5)  # Longer than its ttl: only the keep-alive's own connection renews it meanwhile.
    task.checkpoint({"n": 2})
    print(task.fence, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_a_worker_is_killed_and_another_ones_certificate_takes_over(
    mutual: DaemonProcess, settings: dict[str, Any], authority: Authority, bob: Identity
) -> None:
    handoff = await a_handoff(mutual, settings, "killed")
    files = {
        "DHP_TLS_CA": authority.ca_file,
        "DHP_TLS_CERT": settings["cert_file"],
        "DHP_TLS_KEY": settings["key_file"],
    }
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, mutual.address, handoff,
        env={**os.environ, **{name: str(file) for name, file in files.items()}}, stdout=subprocess.PIPE,
    )  # fmt: skip
    said, _ = await worker.communicate()
    assert worker.returncode == -signal.SIGKILL
    async with dhp_client.connect(mutual.address, ca_file=authority.ca_file, **bob.files) as client:
        async with client.claim(handoff, wait_ms=20_000) as task:
            assert task.state == {"n": 2}
            assert task.fence > int(said)
            await task.complete("done")
        records = (await client.history(handoff)).records
    claims = [(record["worker"], record["token"]) for record in records if record["type"] == "claimed"]
    assert claims == [("ada@example.org", "ada@example.org"), ("bob.example.org", "bob.example.org")]


async def test_large_states_and_many_requests_at_once_go_through(
    mutual: DaemonProcess, settings: dict[str, Any]
) -> None:
    handoff = await a_handoff(mutual, settings, "large")
    state = {"text": "x" * 3_000_000}
    async with dhp_client.connect(mutual.address, **settings) as client:
        async with client.claim(handoff) as task:
            await task.checkpoint(state)
            await asyncio.gather(*(client.status(handoff) for _ in range(200)))
            await task.release()
        async with client.claim(handoff) as task:
            assert task.state == state


def test_the_sync_client_and_the_command_speak_tls(mutual: DaemonProcess, settings: dict[str, Any]) -> None:
    with dhp_client.sync.connect(mutual.address, **settings) as client:
        handoff = client.dispatch("work", {}, key="sync").handoff
    files = [f"--{name.replace('_', '-')}={file}" for name, file in settings.items()]
    ended = subprocess.run(
        [sys.executable, "-m", "dhp_client.cli", "--connect", mutual.address, "status", handoff, "--json", *files],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (ended.returncode, json.loads(ended.stdout)["status"]) == (0, "pending"), ended.stderr


async def test_one_of_several_addresses_may_be_another_daemons_that_isnt_trusted(
    mutual: DaemonProcess, settings: dict[str, Any], tmp_path: Path
) -> None:
    with DaemonProcess(tmp_path / "data") as other:
        first = other.address.replace("tcp://", "tls://")
        async with dhp_client.connect([first, mutual.address], **settings) as client:
            assert client._session.connection.worker == "ada@example.org"


# --- each misfit has its own sentence, and costs nobody else anything ---------------------------------------------------


def misfits(authority: Authority, stranger: Authority, ada: Identity) -> dict[str, tuple[dict[str, Any], str]]:
    trusted = {"ca_file": authority.ca_file}
    return {
        "nobody trusted": (ada.files, "isn't signed by anybody trusted here: give its CA's as ca_file="),
        "another CA": ({"ca_file": stranger.ca_file, **ada.files}, "isn't signed by anybody trusted here"),
        "another name": ({**trusted, **ada.files, "server_name": "elsewhere"}, "is for another name"),
        "no certificate": (trusted, "asks for this client's certificate: give cert_file= (--cert-file, $DHP_TLS_CERT) and key_file= "),
        "a stranger's": ({**trusted, **stranger.issue("ada@example.org").files}, "(unknown ca)"),
        "an expired one": ({**trusted, **authority.issue("ada@example.org", expired=True).files}, "(certificate expired)"),
        "no such file": ({**trusted, "cert_file": "/none"}, "/none can't be read"),
        "a key alone": ({**trusted, "key_file": str(ada.key_file)}, "without its certificate"),
        "no key": ({**trusted, "cert_file": str(authority.ca_file)}, "in PEM form. Where the key has a file of its own, give key_file="),
    }  # fmt: skip


async def test_every_misfit_is_told_at_once_and_an_honest_worker_goes_on(
    mutual: DaemonProcess, settings: dict[str, Any], authority: Authority, stranger: Authority, ada: Identity
) -> None:
    handoff = await a_handoff(mutual, settings, "beside misfits")
    async with dhp_client.connect(mutual.address, **settings) as client, client.claim(handoff, ttl_ms=1_000) as task:
        for given, told in misfits(authority, stranger, ada).values():
            with pytest.raises(dhp_client.BadAddress) as raised:
                await dhp_client.connect(mutual.address, connect_timeout_ms=NEVER_MS, **given)
            assert told in str(raised.value)
        with pytest.raises(BadFrame, match="connect with tls://"):
            await dhp_client.connect(mutual.address.replace("tls://", "tcp://"), connect_timeout_ms=NEVER_MS)
        await task.complete("undisturbed")
    assert "it doesn't speak TLS" in mutual.stderr
    assert "certificate has expired" in mutual.stderr


async def test_a_daemons_expired_certificate_is_told(tmp_path: Path, authority: Authority) -> None:
    server = authority.issue("127.0.0.1", expired=True)
    with DaemonProcess(tmp_path / "data", arguments=server.flags) as daemon:
        connecting = dhp_client.connect(daemon.address, ca_file=authority.ca_file, connect_timeout_ms=NEVER_MS)
        with pytest.raises(Untrusted, match="has expired: it has to be renewed there"):
            await connecting


async def test_tls_to_a_plain_port_is_told(tmp_path: Path, authority: Authority) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        with pytest.raises(Untrusted, match="doesn't speak TLS: connect with tcp://"):
            await dhp_client.connect(daemon.address.replace("tcp", "tls"), connect_timeout_ms=NEVER_MS)
        async with dhp_client.connect(daemon.address) as client:
            await client.list()


def test_garbage_instead_of_a_handshake_costs_nobody_anything(
    mutual: DaemonProcess, authority: Authority, ada: Identity, speak: Speak
) -> None:
    honest = speak(mutual, ada)
    for garbage in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00",
        b"\x16\x03\x01\xff\xff" + b"z" * 70_000,
        b"\x16",
        os.urandom(9_000),
    ):
        with plain(mutual) as sock:
            sock.sendall(garbage)
            honest.call("ping")
    with encrypted(mutual, authority, ada) as sock:  # Tampered with after the handshake.
        os.write(sock.fileno(), b"\x17\x03\x03\x00\x20" + b"z" * 32)
        honest.call("ping")


def test_what_was_received_before_the_end_of_the_input_is_answered_after_it(
    mutual: DaemonProcess, authority: Authority, ada: Identity
) -> None:
    requests = b'{"op":"dispatch","kind":"half-closed","inputs":{},"id":1}\n{"op":"ping","id":2}\n'
    with plain(mutual) as sock:
        answers = [json.loads(line) for line in half_closed(sock, authority, ada, requests).splitlines()]
    assert sorted((answer["id"], answer["ok"]) for answer in answers) == [(1, True), (2, True)]


def half_closed(sock: socket.socket, authority: Authority, identity: Identity, data: bytes) -> bytes:
    """Says `data`, and that nothing more comes; gives what is said until the other end does the same."""
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.load_cert_chain(identity.cert_file, identity.key_file)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")

    def step(action: Callable[[], Any]) -> Any:
        while True:
            try:
                return action()
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                received = sock.recv(65_536)
                if not received:
                    return b""
                incoming.write(received)

    step(tls.do_handshake)
    tls.write(data)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.unwrap()  # It sends its end, and the other one's hasn't come.
    said = b""
    with contextlib.suppress(ssl.SSLZeroReturnError):
        while piece := step(lambda: tls.read(65_536)):
            said += piece
    return said


# --- the certificate is the worker ----------------------------------------------------------------------------------------


def refused(client: WireClient, op: str, **members: Any) -> str:
    with pytest.raises(Refused) as raised:
        client.call(op, **members)
    assert raised.value.code == "forbidden"
    return str(raised.value.error["message"])


def test_a_claim_names_its_certificates_worker_and_no_other(
    mutual: DaemonProcess, ada: Identity, bob: Identity, speak: Speak
) -> None:
    hers, his = speak(mutual, ada), speak(mutual, bob)
    handoff = hers.call("dispatch", kind="named", inputs={})["handoff"]
    for wait_ms in (0, 600_000):
        told = refused(hers, "claim", handoff=handoff, worker="bob.example.org", wait_ms=wait_ms)
        assert "Your certificate is ada@example.org's" in told
    welcome = his.call("hello")
    assert (welcome["worker"], welcome["roles"]) == ("bob.example.org", ["admin"])
    fence = his.call("claim", handoff=handoff, worker="bob.example.org")["fence"]
    held = {"handoff": handoff, "fence": fence}
    for op, members in (
        ("checkpoint", {"state": 1}),
        ("complete", {"result": 1}),
        ("fail", {"error": {"type": "x", "message": "y"}}),
        ("release", {}),
        ("spend", {"usd": 1}),
        ("effect_begin", {"step": "s"}),
    ):
        assert "given to another certificate" in refused(hers, op, **held, **members)
    assert hers.call("heartbeat", leases=[held])["lost"] == [handoff]
    assert his.call("heartbeat", leases=[held])["renewed"] == [handoff]


def test_a_session_belongs_to_its_certificate(
    mutual: DaemonProcess, ada: Identity, bob: Identity, speak: Speak
) -> None:
    speak(mutual, ada).call("hello", session="hers")
    assert "another certificate's" in refused(speak(mutual, bob), "hello", session="hers")
    speak(mutual, ada).call("hello", session="hers")


def test_the_unix_socket_needs_no_certificate(mutual: DaemonProcess) -> None:
    with WireClient(mutual.unix) as client:
        assert "worker" not in client.call("hello")
        handoff = client.call("dispatch", kind="local", inputs={})["handoff"]
        assert client.call("claim", handoff=handoff, worker="anybody")["handoff"] == handoff


@pytest.fixture
def both(tmp_path: Path, authority: Authority, server: Identity) -> Iterator[tuple[DaemonProcess, dict[str, str]]]:
    """A daemon that asks for a certificate and a token, and its tokens."""
    file = tmp_path / "tokens.toml"
    tokens = {
        "workers": add_token(file, "workers", ["worker", "dispatcher"]),
        "eyes": add_token(file, "eyes", ["reader"]),
    }
    flags = [*server.flags, "--tls-client-ca", str(authority.ca_file), "--tokens", str(file)]
    with DaemonProcess(tmp_path / "data", arguments=flags) as daemon:
        yield daemon, tokens


def test_with_tokens_both_are_needed_and_both_are_bound(
    both: tuple[DaemonProcess, dict[str, str]], ada: Identity, bob: Identity, speak: Speak
) -> None:
    daemon, tokens = both
    with pytest.raises(Refused, match="unauthenticated"):
        speak(daemon, ada).call("status", handoff="0" * 64)
    hers, his, watching = (speak(daemon, who) for who in (ada, bob, bob))
    hers.call("hello", token=tokens["workers"], session="shared")
    assert "another certificate's" in refused(his, "hello", token=tokens["workers"], session="shared")
    his.call("hello", token=tokens["workers"])
    assert watching.call("hello", token=tokens["eyes"])["roles"] == ["reader"]
    handoff = hers.call("dispatch", kind="both", inputs={})["handoff"]
    fence = hers.call("claim", handoff=handoff, worker="ada@example.org")["fence"]
    held = {"handoff": handoff, "fence": fence}
    assert "given to another certificate" in refused(his, "checkpoint", **held, state=1)
    assert his.call("heartbeat", leases=[held])["lost"] == [handoff]
    assert "needs the role" in refused(watching, "claim", handoff=handoff, worker="bob.example.org")
    hers.call("checkpoint", **held, state=1)
    claimed = next(record for record in hers.call("history", handoff=handoff)["records"] if record["type"] == "claimed")
    assert (claimed["worker"], claimed["token"]) == ("ada@example.org", "workers")


def test_a_token_that_is_taken_out_ends_its_connections_over_tls_too(
    both: tuple[DaemonProcess, dict[str, str]], ada: Identity, speak: Speak, tmp_path: Path
) -> None:
    daemon, tokens = both
    hers, hidden = speak(daemon, ada), speak(daemon, ada)
    hers.call("hello", token=tokens["workers"])
    hidden.call("hello", token=tokens["eyes"])
    file = tmp_path / "tokens.toml"
    draft = file.with_suffix(".new")
    draft.write_text("[[token]]" + file.read_text().split("[[token]]")[2])
    draft.replace(file)
    os.kill(daemon.pid, signal.SIGHUP)
    hers.receive_until_closed()
    hidden.call("ping")


def test_a_stranger_with_a_certificate_gets_small_frames_and_three_tries(
    both: tuple[DaemonProcess, dict[str, str]], ada: Identity, speak: Speak
) -> None:
    client = speak(both[0], ada)
    with pytest.raises(Refused, match="unauthenticated"):
        client.call("hello", token="a guess")
    client.send_bytes(b"70000 " + b"x" * 70_000 + b"\n")
    assert client.receive()["error"]["code"] == "frame_too_large"
    for _ in range(2):
        with pytest.raises(Refused, match="unauthenticated"):
            client.call("hello", token="another guess")
    client.receive_until_closed()


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        ({"subjectAltName": (("DNS", "a.b"), ("email", "x@y"), ("email", "z@y"), ("URI", "u:v"))}, "x@y"),
        ({"subjectAltName": (("URI", "spiffe://a/b"), ("DNS", "a.b"))}, "a.b"),
        ({"subjectAltName": (("IP Address", "1.2.3.4"), ("URI", "spiffe://a/b"))}, "spiffe://a/b"),
        ({"subject": ((("commonName", "old"),), (("organizationName", "o"), ("commonName", "new")))}, "new"),
        ({"subjectAltName": (("DNS", "a\0b"),), "subject": ((("commonName", "cn"),),)}, None),
        ({"subjectAltName": (("DNS", "a" * 129),)}, None),
        ({"subjectAltName": (("DNS", ""),)}, None),
        ({}, None),
    ],
)
def test_which_name_in_a_certificate_counts(certificate: dict[str, Any], name: str | None) -> None:
    assert name_in(certificate) == name
