"""The daemon's desk, played: what the real one finds out before the engine decides.

Owns what is read from the store for a request: handoffs that have left memory, a kept state, an intent's capabilities; and
the verdict of an output schema.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from dhp_protocol.decoding import RequestFault, decode_request
from dhp_protocol.errors import DHPError, ResultInvalid, StoreUnavailable
from dhp_protocol.limits import Limits
from dhp_protocol.messages import ApprovalRequest, CheckCapability, Complete, Dispatch, Redrive, Request
from dhpd.engine.capabilities import capabilities_of, granted
from dhpd.engine.dispatching import PreparedDispatch, prepare_dispatch
from dhpd.engine.moments import Now
from dhpd.engine.operations import Engine
from dhpd.engine.waiting import Address

from .store_model import ModelStore

T = TypeVar("T")

LIMITS = Limits(max_state_bytes=2_000, max_result_bytes=2_000)


class _Intent(msgspec.Struct):
    capabilities: msgspec.Raw


def carry_out(
    engine: Engine, store: ModelStore, body: bytes, connection: int, now: Callable[[], Now], *, strange: bool = False
) -> None:
    """One request, from the bytes to the engine's decision. Only strangers send what is none."""
    try:
        request = decode_request(body, LIMITS.max_depth)
    except RequestFault as fault:
        if not strange:
            raise AssertionError(f"a simulated client sends good requests: {fault}") from fault
        engine.reply(Address(connection, fault.request_id, False), fault.error)
        return
    to = Address(connection, request.id, False)
    if isinstance(request, Dispatch):
        try:
            prepared = prepare_dispatch(request, LIMITS)
        except DHPError as error:
            if not strange:
                raise
            engine.reply(to, error)
            return
        _load(engine, store, prepared, now)
        engine.execute(prepared, to, now())
        return
    _load(engine, store, request, now)
    match request:
        case Complete():
            engine.execute(request, to, now(), _verdict(engine, request))
        case CheckCapability():
            engine.execute(request, to, now(), _granted(engine, store, request))
        case Redrive():
            _redrive(engine, store, request, to, now)
        case ApprovalRequest():
            engine.execute(request, to, now(), None)
        case _:
            engine.execute(request, to, now())


def _load(engine: Engine, store: ModelStore, request: Request | PreparedDispatch, now: Callable[[], Now]) -> None:
    """The handoff first, then those whose caps count, now that it is known who they are."""
    lacking: list[str] = []
    while (missing := engine.missing(request)) and missing != lacking:
        for facts in now_of(store.facts_of(missing)):
            engine.admit(facts, now())
        lacking = missing


def _redrive(engine: Engine, store: ModelStore, request: Redrive, to: Address, now: Callable[[], Now]) -> None:
    facts = engine.ledger.get(request.handoff)
    state = None
    if facts is not None and facts.kept is not None and facts.kept.seq:
        state = now_of(store.payloads([facts.kept.position])).get(facts.kept.position)
        if state is None:  # It isn't on disk yet.
            engine.reply(to, StoreUnavailable("simulated"))
            return
    engine.execute(request, to, now(), state)


def _verdict(engine: Engine, request: Complete) -> ResultInvalid | None:
    """What calls itself bad doesn't fit."""
    facts = engine.ledger.get(request.handoff)
    if facts is None or not facts.has_schema or b'"bad"' not in bytes(request.result):
        return None
    return ResultInvalid("simulated", path="/bad", rule="false")


def _granted(engine: Engine, store: ModelStore, request: CheckCapability) -> bool:
    facts = engine.ledger.get(request.handoff)
    intent = None if facts is None else now_of(store.payloads([facts.number])).get(facts.number)
    if intent is None:
        return False
    capabilities = capabilities_of(msgspec.json.decode(intent, type=_Intent).capabilities)
    return granted(capabilities, request.domain, request.resource)


def now_of(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing; where it lets others have a turn, nobody wants one."""
    while True:
        try:
            waits_for = coroutine.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        assert waits_for is None, "the model store never waits"
