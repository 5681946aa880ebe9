"""Bundles for tests: taken apart, changed, and tied together again as a forger would."""

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

import rfc8785

from tests.support.wire_client import WireClient

Line = dict[str, Any]
TOLD_BY_HASH = ("chain", "intent", "payload", "payload_base64")


def exported(client: WireClient, handoff: str) -> list[Line]:
    """The lines of a whole export, page after page."""
    page = client.call("export", handoff=handoff)
    lines: list[Line] = page["records"]
    while page["next"] is not None:
        page = client.call("export", handoff=handoff, after=page["next"])
        lines += page["records"]
    return lines


def forged(lines: Iterable[Line]) -> list[Line]:
    """The lines with a right chain, and a trailer that counts them."""
    chain = ""
    tied = []
    for number, line in enumerate(lines):
        changed = {**line, "records": number - 1} if "records" in line else line
        head = {name: value for name, value in changed.items() if name not in TOLD_BY_HASH}
        chain = hashlib.sha256(chain.encode() + b"\n" + rfc8785.dumps(_doubles(head))).hexdigest()
        tied.append({**changed, "chain": chain})
    return tied


def _doubles(value: Any) -> Any:
    """Integers that no double holds exactly stand for the one nearest to them."""
    if isinstance(value, dict):
        return {name: _doubles(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_doubles(member) for member in value]
    return float(value) if isinstance(value, int) and abs(value) >= 2**53 else value


def with_record(lines: list[Line], number: int, change: Callable[[Line], None]) -> list[Line]:
    """The lines with the record in line `number` (from 1) changed, tied together again."""
    copied: list[Line] = json.loads(json.dumps(lines))
    change(copied[number - 1]["record"])
    return forged(copied)


def with_payload(line: Line, payload: str) -> Line:
    """A record's line with another payload, told everywhere as if it had always been that."""
    sha256 = hashlib.sha256(payload.encode()).hexdigest()
    record = dict(line["record"])
    for name in ("sha256", "kept_sha256", "details_sha256"):
        if name in record:
            record[name] = sha256
    for name in ("bytes", "kept_bytes"):
        if name in record:
            record[name] = len(payload.encode())
    return {"record": record, "sha256": sha256, "payload": payload, "chain": line["chain"]}


def encoded(lines: Iterable[Line]) -> list[bytes]:
    """The lines as they stand in a file."""
    return [json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() for line in lines]
