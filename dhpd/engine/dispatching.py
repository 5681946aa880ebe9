"""Rules for whoever asks for work: dispatch, cancel, ack.

Owns what an intent may hold in this version, and when a handoff may begin and be ended from outside. Pure.
"""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, Struct

from dhp_protocol.errors import IdentityMismatch, InvalidRequest, NotFound, WrongState
from dhp_protocol.intent import Intent, canonical_intent, handoff_id
from dhp_protocol.limits import MAX_PARENT_DEPTH, Limits
from dhp_protocol.messages import Dispatch, intent_bytes

from .budget import Budget, budget_of
from .capabilities import capabilities_of
from .facts import Handoff
from .moments import Now
from .records import Acked, Cancelled, Change, Dispatched
from .sizes import check_intent


class NamedIntent(Struct, frozen=True):
    """An intent that has been checked: its id, its canonical bytes, and what is known of it without them."""

    handoff: str
    canonical: bytes
    budget: Budget
    capable: bool
    has_schema: bool


class PreparedDispatch(Struct, frozen=True):
    """A dispatch whose intent has been named."""

    request: Dispatch
    named: NamedIntent

    @property
    def handoff(self) -> str:
        """Which handoff it is about."""
        return self.named.handoff


def name_intent(request: Dispatch, limits: Limits) -> NamedIntent:
    """Names the intent. Costs about 0.1 ms per KB and looks at no state, so it may run anywhere.

    Raises `InvalidRequest`, `TooLarge`, and `IdentityMismatch` where the id that the client computed is another one.
    """
    check_intent(intent_bytes(request), limits)
    intent = Intent(
        kind=request.kind,
        inputs=request.inputs,
        output_schema=_or_empty(request.output_schema),
        budget=_or_empty(request.budget),
        capabilities=_or_empty(request.capabilities),
        key=request.key,
    )
    budget = budget_of(intent.budget)
    capable = bool(capabilities_of(intent.capabilities))
    canonical = canonical_intent(intent)
    check_intent(len(canonical), limits)
    name = handoff_id(canonical)
    if request.handoff is not UNSET and request.handoff != name:
        raise IdentityMismatch(
            "The given handoff id isn't the hash of this intent: compare the canonical forms.",
            expected=name,
            got=request.handoff,
        )
    schema = bytes(intent.output_schema)
    return NamedIntent(name, canonical, budget, capable, schema not in (b"{}", b"true"))


def prepare_dispatch(request: Dispatch, limits: Limits) -> PreparedDispatch:
    """As `name_intent`, with the request."""
    return PreparedDispatch(request, name_intent(request, limits))


def _or_empty(raw: Raw | msgspec.UnsetType) -> Raw:
    return _EMPTY if raw is UNSET else raw


_EMPTY = Raw(b"{}")


def decide_dispatch(
    prepared: PreparedDispatch, parent: Handoff | None, token: str | None, fence: int, now: Now
) -> Sequence[Change]:
    """The beginning of a handoff that isn't there yet, dispatched by `token`; `fence` is the highest ever purged from the store."""
    request = prepared.request
    ancestors: tuple[str, ...] = ()
    if request.parent is not UNSET:
        if parent is None:
            raise NotFound("There is no such parent: dispatch it first.", handoff=request.parent)
        if parent.final:
            sentence = f"The parent is {parent.status} and takes no more children."
            raise WrongState(sentence, handoff=parent.id, status=parent.status)
        ancestors = (*parent.ancestors, parent.id)
        if len(ancestors) > MAX_PARENT_DEPTH:
            raise InvalidRequest(f"Children may be {MAX_PARENT_DEPTH} deep.", member="parent")
    record = Dispatched(
        n=1,
        at_ms=now.wall_ms,
        fence=fence,
        kind=request.kind,
        priority=request.priority,
        budget=prepared.named.budget,
        bytes=len(prepared.named.canonical),
        has_schema=prepared.named.has_schema,
        not_before_ms=now.wall_ms + request.delay_ms if request.delay_ms else 0,
        ancestors=ancestors,
        labels=None if request.labels is UNSET or not request.labels else request.labels,
        keep_checkpoints=request.keep_checkpoints,
        capable=prepared.named.capable,
        token=token,
    )
    return (Change(record, prepared.named.canonical),)


def decide_cancel(handoff: Handoff, reason: str | None, now: Now) -> Sequence[Change]:
    """The end from outside; nothing where it has ended already."""
    if handoff.final:
        return ()
    return (Change(Cancelled(n=handoff.n + 1, at_ms=now.wall_ms, fence=handoff.fence + 1, reason=reason)),)


def decide_ack(handoff: Handoff, now: Now) -> Sequence[Change]:
    """Its keeper has taken note of the end; a second time changes nothing."""
    if not handoff.final:
        sentence = f"The handoff is {handoff.status}: acknowledge it when it has ended."
        raise WrongState(sentence, handoff=handoff.id, status=handoff.status)
    if handoff.acked:
        return ()
    return (Change(Acked(n=handoff.n + 1, at_ms=now.wall_ms, fence=handoff.fence)),)
