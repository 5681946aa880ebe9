"""The journal's newest records, as watchers see them.

Owns which of them are kept in memory, and that each is encoded once, however many see it. Whoever lags behind further
than this reads the journal on disk.
"""

from bisect import bisect_right
from collections.abc import Iterable

import msgspec
from msgspec import Raw

from dhp_protocol.replies import RecordEvent
from dhpd.engine.records import AnyRecord
from dhpd.engine.views import record_view

MAX_RECORDS = 1024
"""Two full batches. A record has some 10 KB at most."""

encode = msgspec.json.Encoder().encode


class Shown:
    """A record on disk, and the handoff's `kind`, where it is known; where it was read from there, also what was `before` it."""

    __slots__ = ("_event", "before", "handoff", "kind", "position", "record")

    def __init__(self, position: int, handoff: str, record: AnyRecord, kind: str | None, before: int = 0) -> None:
        self.position = position
        self.handoff = handoff
        self.record = record
        self.kind = kind
        self.before = before
        self._event: bytes | None = None

    @property
    def event(self) -> bytes:
        """The event that tells of it."""
        if self._event is None:
            view = encode(record_view(self.position, self.record))
            self._event = encode(RecordEvent(handoff=self.handoff, record=Raw(view)))
        return self._event


class Tail:
    """Holds all records on disk after the position `after`."""

    def __init__(self, after: int) -> None:
        self.after = after
        self._records: list[Shown] = []

    def add(self, records: Iterable[Shown]) -> None:
        """They have come to the disk, behind all that it holds."""
        self._records += records
        if len(self._records) > MAX_RECORDS:
            self.after = self._records[-MAX_RECORDS - 1].position
            del self._records[:-MAX_RECORDS]

    def clear(self, after: int) -> None:
        """Nobody wants to see what is up to there."""
        self.after = after
        self._records.clear()

    def page(self, position: int, limit: int) -> list[Shown]:
        """The first `limit` records after `position`, which isn't before `after`."""
        assert position >= self.after, "who is further behind reads from disk"
        first = bisect_right(self._records, position, key=lambda shown: shown.position)
        return self._records[first : first + limit]
