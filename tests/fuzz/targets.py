"""What is fuzzed: for each, where its inputs come from, and what must hold of every one.

An input is parsed, or gets its documented error: never another exception, never more room or time than the input is worth. And
what is parsed is what another reader makes of the same bytes.
"""

import hashlib
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import rfc8785

from dhp_client.exceptions import BadReply
from dhp_client.wire import Inbox
from dhp_protocol.bundle import BundledRecord, BundleReader, Envelope
from dhp_protocol.decoding import OPS, RequestFault, check_in_steps, check_members, decode_request, decode_typed
from dhp_protocol.errors import DHPError, InvalidRequest, ResultInvalid, SchemaInvalid, TooLarge
from dhp_protocol.framing import Frame, Framer
from dhp_protocol.intent import Intent, canonical_intent
from dhp_protocol.limits import Limits
from dhp_protocol.money import nano_usd
from dhpd.config import Config, ConfigError, load_config
from dhpd.engine.arriving import Arrival
from dhpd.schemas.compiling import compile_schema
from dhpd.schemas.patterns import compile_pattern
from dhpd.schemas.verdicts import judge
from dhpd.token_file import parse_tokens
from tests.support.bundles import forged

from . import inputs
from .models import Told, frames_in

MAX_FRAME_BYTES = 60
MAX_DEPTH = 128
STEPS = 50_000
LIMITS = Limits(max_bundle_bytes=200_000)


class Target(NamedTuple):
    """`example` makes an input; `check` raises AssertionError, or whatever else should never come, for one that shows a fault."""

    name: str
    example: Callable[[random.Random], bytes]
    check: Callable[[bytes], None]


def of_vectors(name: str, made: Callable[[random.Random], bytes]) -> Callable[[random.Random], bytes]:
    """Inputs by a grammar, vectors, and both of them changed."""

    def example(rng: random.Random) -> bytes:
        seeds = inputs.vectors(name)
        data = rng.choice(seeds) if rng.random() < 0.6 else made(rng)
        return inputs.mutated(rng, data, seeds) if rng.random() < 0.85 else data

    return example


# --- frames ------------------------------------------------------------------------------------------------------------


def check_frames(data: bytes) -> None:
    """Any split of the bytes gives the same frames, which are those of the slow reading; little is held meanwhile."""
    expected = frames_in(data, MAX_FRAME_BYTES)
    cuts = random.Random(hashlib.sha256(data).digest())
    some = sorted(cuts.choices(range(len(data) + 1), k=3))
    pieces = [data[start:end] for start, end in zip([0, *some], [*some, len(data)], strict=True)]
    for name, chunks in (("whole", [data]), ("pieces", pieces), ("bytes", [data[i : i + 1] for i in range(len(data))])):
        assert _told(chunks) == expected, name


def _told(chunks: list[bytes]) -> list[Told]:
    framer = Framer(MAX_FRAME_BYTES)
    found = []
    for chunk in chunks:
        found += list(framer.feed(chunk))
        assert framer.held_bytes <= MAX_FRAME_BYTES + 13, "more than one frame is held"
    found += list(framer.finish())
    assert not list(framer.feed(b"{}\n"))
    return [
        (item.body, item.counted) if isinstance(item, Frame) else (item.error.code, item.counted, item.close)
        for item in found
    ]


# --- requests ----------------------------------------------------------------------------------------------------------


def check_request(data: bytes) -> None:
    """A body is a request as another reader reads it, or one of three errors; in steps it is the same."""
    try:
        request = decode_request(data, MAX_DEPTH)
    except RequestFault as fault:
        _check_request_fault(fault, data)
        return
    assert _in_steps(data) is None
    members = json.loads(data, object_pairs_hook=_Pairs)
    _check_names(members)
    assert dict(members)["op"] in OPS
    assert dict(members).get("id", msgspec.UNSET) == request.id
    again = msgspec.json.encode(request)
    assert msgspec.json.encode(decode_request(again, MAX_DEPTH)) == again, "what was read can be written and read"
    typed = decode_typed(data)
    check_members(typed, data)
    assert typed == request


def _check_request_fault(fault: RequestFault, data: bytes) -> None:
    error = fault.error
    assert error.code in ("bad_json", "invalid_request", "unknown_op"), error
    assert error.message
    assert len(error.message) < 20_000 + len(data), "what is told is bounded by what was sent"
    msgspec.json.encode(error.details)
    if error.code == "bad_json":
        assert fault.request_id is msgspec.UNSET
    else:
        value = json.loads(data.decode())
        assert isinstance(value, dict), "what is no object is bad_json"
        assert fault.request_id in (msgspec.UNSET, value.get("id"))
    if error.code == "invalid_request":
        assert isinstance(error.details["member"], str)
    found = _in_steps(data)
    assert found is None or found.error.code == error.code == "bad_json", "in steps it is the same fault"


def _in_steps(data: bytes) -> RequestFault | None:
    try:
        for _ in check_in_steps(data, MAX_DEPTH):
            pass
    except RequestFault as fault:
        return fault
    return None


class _Pairs(list[tuple[str, Any]]):
    """An object's members, all of them, told from a list."""


def _check_names(members: _Pairs) -> None:
    """No name stands twice in a request, nor in what of it isn't payload."""
    _one_of_each(members)
    for name, value in members:
        if name in ("error", "labels") and isinstance(value, _Pairs):
            _one_of_each(value)
        if name == "leases":
            for lease in value:
                _one_of_each(lease)


# --- intents -----------------------------------------------------------------------------------------------------------

_decode_intent = msgspec.json.Decoder(Intent).decode


def check_intent(data: bytes) -> None:
    """An intent has a canonical form that is its own and means the same, or is refused with the member that has none."""
    try:
        intent = _decode_intent(data)
    except (msgspec.DecodeError, RecursionError):
        return  # The request's decoder's business.
    try:
        form = canonical_intent(intent)
    except InvalidRequest as error:
        assert error.details["member"] in Intent.__struct_fields__
        return
    assert canonical_intent(_decode_intent(form)) == form, "a canonical form is its own"
    written = json.loads(form)
    read = {name: getattr(intent, name) for name in Intent.__struct_fields__}
    for name, value in read.items():
        meant = _read_strictly(bytes(value).decode()) if isinstance(value, msgspec.Raw) else value
        assert _as_doubles(written[name]) == _as_doubles(meant), name


def _one_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), "a name stands twice"
    return dict(pairs)


def _same_as_double(digits: str) -> float:
    double = float(digits)
    assert int(double) == int(digits) or rfc8785.dumps(double) == digits.encode(), f"{digits} has changed"
    return double


_read_strictly = json.JSONDecoder(object_pairs_hook=_one_of_each, parse_int=_same_as_double).decode


def _as_doubles(value: Any) -> Any:
    """JSON with each number as the double that it denotes."""
    if isinstance(value, dict):
        return {name: _as_doubles(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_as_doubles(each) for each in value]
    if isinstance(value, int) and not isinstance(value, bool):
        assert math.isfinite(float(value))
        return float(value)
    return value


# --- bundles -----------------------------------------------------------------------------------------------------------


def check_bundle(data: bytes) -> None:
    """A bundle that is taken tells what some good one told; another one is refused with its line."""
    reader = BundleReader()
    told: list[Any] = []
    arrival = Arrival(LIMITS)
    lines = data.split(b"\n")
    try:
        for line in lines:
            found = reader.take(line)
            if isinstance(found, Envelope | BundledRecord):
                told.append(_meaning(found))
    except InvalidRequest as error:
        assert error.details["line"] == reader.line
    else:
        if reader.finished:
            assert told in _good_bundles(), "a chain doesn't come about by chance"
    _check_arrival(arrival, lines)


def _check_arrival(arrival: Arrival, lines: list[bytes]) -> None:
    try:
        arrival.take(lines)
    except (InvalidRequest, TooLarge) as error:
        assert 1 <= error.details["line"] <= len(lines)
        assert len(error.message) < 2_000
        return
    assert arrival.facts is None or arrival.facts.fence <= 2**53 - 1


def _meaning(found: Envelope | BundledRecord) -> Any:
    return (found.handoff, found.intent, found.n) if isinstance(found, Envelope) else (found.members, found.sha256)


def _good_bundle(rng: random.Random) -> bytes:
    return "\n".join(rng.choice([case["lines"] for case in inputs.load("bundles") if "handoff" in case])).encode()


def _good_bundles() -> list[Any]:
    if not _GOOD:
        for case in inputs.load("bundles"):
            if "handoff" in case:
                reader = BundleReader()
                read = [reader.take(line.encode()) for line in case["lines"]]
                _GOOD.append([_meaning(one) for one in read if isinstance(one, Envelope | BundledRecord)])
    return _GOOD


_GOOD: list[Any] = []


def forged_bundle(rng: random.Random) -> bytes:
    """A bundle whose chain is right, though somebody has changed what its records say."""
    case = rng.choice([case for case in inputs.load("bundles") if "handoff" in case])
    lines: list[dict[str, Any]] = [json.loads(line) for line in case["lines"]]
    for _ in range(rng.choice((1, 1, 2, 5))):
        line = rng.choice(lines)
        part = line["record"] if isinstance(line.get("record"), dict) and rng.random() < 0.8 else line
        if not part:
            continue
        match rng.randrange(4):
            case 0:
                part[rng.choice(list(part))] = inputs.json_value(rng, 2)
            case 1:
                part.pop(rng.choice(list(part)))
            case 2:
                other = rng.choice(lines).get("record")
                part.update(other if isinstance(other, dict) else {"record": other})
            case _:
                lines.insert(rng.randrange(len(lines)), json.loads(json.dumps(rng.choice(lines))))
    try:
        return "\n".join(json.dumps(line) for line in forged(lines)).encode()
    except (ValueError, OverflowError):
        return b"{}"


def check_forged_bundle(data: bytes) -> None:
    """Whatever records say, they are taken or refused with their line."""
    _check_arrival(Arrival(LIMITS), data.split(b"\n"))


# --- schemas, patterns, amounts, files, replies ------------------------------------------------------------------------


def check_schema(data: bytes) -> None:
    """A schema can be enforced or is refused with path and rule; a verdict takes bounded steps."""
    schema_text, _, results = data.partition(b"\n")
    try:
        validator = compile_schema(schema_text, _cheap_pattern)
    except SchemaInvalid as error:
        assert isinstance(error.details["path"], str)
        assert isinstance(error.details["rule"], str)
        return
    except (RecursionError, MemoryError):
        return  # The sandbox tells these as beyond the bounds.
    for result in (*results.split(b"\n"), b"1", b'{"a":[{"b":null}],"b":"ab"}', b"[[1,1.0],{}]"):
        refusal = judge(validator, result, STEPS)
        assert refusal is None or isinstance(refusal, ResultInvalid)


def _cheap_pattern(source: str) -> Callable[[str], object]:
    """Searching is bounded from outside of the schema's judge: so here it is left out, and the translation is not."""
    compile_pattern(source)
    return lambda text: None


def check_pattern(data: bytes) -> None:
    """A pattern is translated, or refused with a clause."""
    try:
        source = data.decode()
    except UnicodeDecodeError:
        return
    try:
        compile_pattern(source)
    except ValueError as error:
        assert str(error)


def check_amount(data: bytes) -> None:
    """An amount is whole nano-dollars within the bounds, or refused."""
    try:
        raw = msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.DecodeError:
        return  # The request's decoder's business.
    try:
        amount = nano_usd(raw, member="usd")
    except InvalidRequest as error:
        assert error.details["member"] == "usd"
        return
    assert 0 <= amount <= 8_000_000 * 10**9
    value = float(data)
    assert abs(amount / 1e9 - value) <= max(1e-9, value * 1e-12)


def check_token_file(data: bytes) -> None:
    """A token file is read or refused, and an error holds nothing of it that is secret."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    try:
        parse_tokens(text, Path("tokens.toml"))
    except ConfigError as error:
        assert "0" * 20 not in str(error), "a hash in an error"


def check_settings(data: bytes, folder: Path = Path("/dev/shm")) -> None:
    """A settings file is read or refused."""
    file = folder / f"dhp-fuzz-{hashlib.sha256(data).hexdigest()[:16]}.toml"
    file.write_bytes(data)
    try:
        assert isinstance(load_config(file, {}, {}), Config)
    except ConfigError as error:
        assert str(error)
    finally:
        file.unlink()


def check_inbox(data: bytes) -> None:
    """What a daemon sends is a reply or an event to the client, or `BadReply`."""
    inbox = Inbox()
    try:
        for item in inbox.feed(data):
            assert getattr(item, "error", None) is None or isinstance(item.error, DHPError)  # type: ignore[union-attr]
    except BadReply as error:
        assert str(error)


def _said_by_a_daemon(rng: random.Random) -> bytes:
    body = {
        "id": rng.choice((1, "a", None, 1.5, 2**70)),
        "ok": rng.choice((True, False, None, 1)),
        "error": {"code": rng.choice(("lease_lost", "new_code", 5)), "message": "m", "retry": rng.choice(("no", "x"))},
        "event": rng.choice(("record", "lease_lost", "new_event", 5)),
        "handoff": "h",
        "record": inputs.json_value(rng),
        "fence": 1,
    }
    text = inputs.json_text(rng, {name: body[name] for name in rng.sample(list(body), rng.randrange(1, 7))})
    return b"%d %b\n" % (len(text), text)


def _schema_and_results(rng: random.Random) -> bytes:
    parts = [
        inputs.json_text(rng, inputs.schema(rng)),
        *(inputs.json_text(rng, inputs.json_value(rng)) for _ in range(2)),
    ]
    data = b"\n".join(parts)
    return inputs.mutated(rng, data, [data]) if rng.random() < 0.3 else data


def _amount(rng: random.Random) -> bytes:
    text = rng.choice((b"0.1", b"1e-30", b"8000000", b"0.0000000005", b"-0", b"1e7", b"12.5e-3", b"9" * 70))
    return inputs.mutated(rng, text, [text]) if rng.random() < 0.8 else text


def _file(rng: random.Random) -> bytes:
    data = inputs.settings(rng)
    return inputs.mutated(rng, data, [data]) if rng.random() < 0.5 else data


def _replies(rng: random.Random) -> bytes:
    data = _said_by_a_daemon(rng)
    return inputs.mutated(rng, data, [data]) if rng.random() < 0.5 else data


TARGETS = (
    Target("frames", of_vectors("frames", inputs.frames), check_frames),
    Target("requests", of_vectors("requests", inputs.request), check_request),
    Target("intents", of_vectors("intents", inputs.intent), check_intent),
    Target("bundles", of_vectors("bundles", _good_bundle), check_bundle),
    Target("forged bundles", forged_bundle, check_forged_bundle),
    Target("schemas", _schema_and_results, check_schema),
    Target("patterns", lambda rng: inputs.pattern(rng).encode(), check_pattern),
    Target("amounts", _amount, check_amount),
    Target("token files", _file, check_token_file),
    Target("settings", _file, check_settings),
    Target("replies", _replies, check_inbox),
)
