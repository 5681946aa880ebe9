"""A bundle on its way in: its lines taken in one after the other, and added up to a handoff.

Owns what may stand in a bundle. Nothing is taken on trust: the intent is named anew, what it says is compared, and every record
must be one that could have followed the one before. Pure; what takes long here looks at nothing of the engine's, and so may
run anywhere.

The records are added up before their places in the journal are known. So positions are counted from `ELSEWHERE`, and shifted
when the places are there (`porting`).
"""

from collections.abc import Iterable

import msgspec
from msgspec import Raw

from dhp_protocol.bundle import BundledRecord, BundleReader, Envelope, line_fault
from dhp_protocol.decoding import RequestFault, check_text, too_deep
from dhp_protocol.depth import nested_deeper
from dhp_protocol.errors import DHPError, InvalidRequest, TooLarge
from dhp_protocol.intent import Intent
from dhp_protocol.limits import Limits
from dhp_protocol.messages import Dispatch

from .apply import apply, placed
from .dispatching import NamedIntent, name_intent
from .facts import SUSPENDED, Handoff
from .foreign_records import foreign_record, payload_sha256
from .records import (
    AnyRecord,
    ApprovalRequested,
    Change,
    Checkpointed,
    Completed,
    Dispatched,
    EffectDoneRecord,
    ResultRefused,
)
from .succession import why_not

ELSEWHERE = 1 << 60
"""Far above every position that a journal comes to."""
MAX_FOREIGN_FENCE = 2**52
"""Fences go on from there, and must stay below 2^53."""

_decode_intent = msgspec.json.Decoder(Intent).decode
_decode_json = msgspec.json.Decoder(Raw).decode


class Arrival:
    """A bundle as it comes in, line by line, and what its records add up to so far."""

    def __init__(self, limits: Limits) -> None:
        self.envelope: Envelope | None = None
        self.named: NamedIntent | None = None
        self.intent: Intent | None = None
        self.result: tuple[int, bytes] | None = None  # The line that it is in, and its bytes.
        self.facts: Handoff | None = None
        self.changes: list[Change] = []
        self.size_bytes = 0
        self.whole = False
        self._limits = limits
        self._reader = BundleReader()
        self._last_n = 0
        self._absent = 0  # Records that were left out: pruned checkpoints, or what stays elsewhere.
        self._unseen = 0  # Of those, as many as may be checkpoints that no seq has accounted for yet.

    def take(self, lines: Iterable[bytes]) -> None:
        """Takes in what comes next; `whole` is set at the trailer. Raises `InvalidRequest` and `TooLarge` with the `line`."""
        for text in lines:
            self.size_bytes += len(text)
            self._bound(self.size_bytes, self._limits.max_bundle_bytes, "bytes", self.line + 1)
            found = self._reader.take(text)
            if isinstance(found, Envelope):
                self._begin(found)
            elif isinstance(found, BundledRecord):
                self._add(found)
            else:
                self._end()

    @property
    def line(self) -> int:
        """The number of the line that was taken last."""
        return self._reader.line

    def _bound(self, size: int, limit: int, what: str, line: int) -> None:
        if size > limit:
            sentence = f"Line {line} of the bundle is too much: it may have {limit} {what}."
            raise TooLarge(sentence, member="records", limit=limit, size=size, line=line)

    def _begin(self, envelope: Envelope) -> None:
        intent = envelope.intent.encode()
        try:
            _check_json(intent, self._limits.max_depth)
            found = _decode_intent(intent)
            members = {name: getattr(found, name) for name in Intent.__struct_fields__}
            named = name_intent(Dispatch(**members), self._limits)
        except (DHPError, RequestFault, msgspec.DecodeError, RecursionError) as error:
            raise line_fault(1, f"holds no intent that can be taken: {error}") from None
        if named.canonical != intent or named.handoff != envelope.handoff:
            raise line_fault(1, "holds an intent that isn't in canonical form")
        self.envelope, self.named, self.intent = envelope, named, found

    def _add(self, found: BundledRecord) -> None:
        try:
            record = foreign_record(found.members)
        except msgspec.ValidationError as error:
            raise self._fault(f"holds no record that can be taken: {error}") from None
        if payload_sha256(record) != found.sha256:
            raise self._fault("gives another hash for its payload than its record does")
        self._check_payload(record, found.payload)
        skipped = record.n - self._last_n - 1
        if skipped < 0 or (not self._last_n and skipped):
            raise self._fault("holds a number that doesn't follow the one before")
        self._leave_out(skipped)
        self._last_n = record.n
        if self.facts is None:
            self._dispatched(record)
        elif (fault := why_not(self.facts, record, self._unseen)) is not None:
            raise self._fault(fault)
        elif isinstance(record, Checkpointed) and found.payload is None:
            self._leave_out(1)  # Without its state it is as good as pruned.
            return
        if isinstance(record, Completed) and found.payload is not None:
            self.result = self.line, found.payload
        self._apply(Change(record, found.payload if self.facts is not None else self._intent()))

    def _dispatched(self, record: AnyRecord) -> None:
        named, intent = self.named, self.intent
        assert named is not None
        assert intent is not None, "the envelope came first"
        if not isinstance(record, Dispatched):
            raise self._fault("isn't the dispatch, with which a handoff begins")
        told = (record.bytes, record.budget, record.has_schema, record.capable, record.kind)
        if told != (len(named.canonical), named.budget, named.has_schema, named.capable, intent.kind):
            raise self._fault("says something else of the intent than the intent does")
        if len({*record.ancestors, named.handoff}) <= len(record.ancestors):
            raise self._fault("names an ancestor twice, or the handoff as its own")

    def _leave_out(self, records: int) -> None:
        self._absent += records
        self._unseen += records

    def _intent(self) -> bytes:
        assert self.named is not None
        return self.named.canonical

    def _apply(self, change: Change) -> None:
        envelope = self.envelope
        assert envelope is not None
        before = self.facts
        seq = 0 if before is None else before.seq
        self.changes.append(change)
        self._bound(len(self.changes), self._limits.max_bundle_records, "records", self.line)
        self.facts = apply(before, placed(envelope.handoff, before, ELSEWHERE + len(self.changes), change))
        self._unseen -= max(0, self.facts.seq - seq - 1)
        if self.facts.fence > MAX_FOREIGN_FENCE:
            raise self._fault(f"holds a fence above {MAX_FOREIGN_FENCE}")

    def _check_payload(self, record: AnyRecord, payload: bytes | None) -> None:
        if payload is None:
            asked_again = isinstance(record, ApprovalRequested) and self._knows(record.approval)
            if payload_sha256(record) is not None and not asked_again and not isinstance(record, Checkpointed):
                raise self._fault("lacks the payload of its record")
            return
        if isinstance(record, ApprovalRequested) and self._knows(record.approval):
            raise self._fault("holds details that were asked about before")
        most = self._limits.max_state_bytes
        if isinstance(record, Completed | ResultRefused | EffectDoneRecord):
            most = self._limits.max_result_bytes
        elif isinstance(record, ApprovalRequested):
            most = self._limits.max_details_bytes
        self._bound(len(payload), most, "bytes in this payload", self.line)
        told = getattr(record, "bytes", getattr(record, "kept_bytes", len(payload)))
        if told != len(payload) or payload.strip(b" \t\r\n") != payload:
            raise self._fault("holds a payload of another length than its record tells")
        try:
            _check_json(payload, self._limits.max_depth - 1)
        except (RequestFault, msgspec.DecodeError, RecursionError) as error:
            raise self._fault(f"holds a payload that is no JSON: {error}") from None

    def _knows(self, approval: str) -> bool:
        return self.facts is not None and approval in (self.facts.approvals or {})

    def _end(self) -> None:
        facts, envelope = self.facts, self.envelope
        if facts is None or envelope is None:
            raise self._fault("ends a bundle without records")
        if self._last_n >= envelope.n:
            raise self._fault("ends a bundle with more records than its envelope tells of")
        if not facts.final and facts.status != SUSPENDED:
            raise self._fault(f"ends with work that is {facts.status}: it wasn't put aside before it was exported")
        if facts.seq != envelope.seq:
            raise self._fault("ends a bundle without the newest state")
        left = (envelope.steps - facts.steps, envelope.usd_nano - facts.usd_nano)
        absent = self._absent + envelope.n - 1 - self._last_n  # What children spent after its last own record, too.
        if min(left) < 0 or (any(left) and not absent):
            raise self._fault("ends with other sums than the envelope tells")
        caps = ((envelope.steps, facts.budget.max_steps), (envelope.usd_nano, facts.budget.max_usd_nano))
        if any(cap is not None and used > cap for used, cap in caps):
            raise self._fault("ends with more used up than the budget allows")
        budget = facts.budget
        counts = (
            (facts.failures, budget.max_attempts),
            (facts.stalls, budget.max_stalls),
            (facts.invalid_results, budget.max_invalid_results),
        )
        if not facts.final and any(count >= cap for count, cap in counts):
            raise self._fault("ends with live work that its budget had ended")
        self.whole = True

    def _fault(self, what: str) -> InvalidRequest:
        return line_fault(self.line, what)


def _check_json(text: bytes, max_depth: int) -> None:
    """Raises unless `text` is JSON on one line, and no deeper."""
    check_text(text)
    if nested_deeper(text, max_depth):
        raise too_deep(max_depth)
    _decode_json(text)
