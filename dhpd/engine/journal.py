"""Memory runs ahead of the disk, and nothing else does: the journal's batches, and what waits for them.

Owns positions, the batches on their way to the disk with the facts of before, and the outputs that may leave only when
what they looked at is there. Invariant 7 is enforced here: nothing leaves before its position is durable. Pure: the
server (`dhpd.store.group_commit`) carries batches to the store and says how it went.
"""

from collections import deque

from msgspec import Struct
from msgspec.structs import replace

from dhp_protocol.errors import StoreUnavailable

from .binding import bound_to
from .facts import Handoff
from .outputs import Output, Reply
from .records import Entry
from .waiting import Waiter

MAX_BATCH_ENTRIES = 512
MAX_BATCH_BYTES = 8 * 1024 * 1024
ENTRY_OVERHEAD_BYTES = 512
NOT_KEPT = "The store could not keep this: whether it took effect isn't known yet. Send the same request again."


class Extension(Struct, frozen=True, gc=False):
    """A lease that a restart prolonged: it ends at `until_ms` by the wall clock, whatever else restarts."""

    handoff: str
    fence: int
    until_ms: int


class Batch:
    """What goes to the disk in one commit."""

    __slots__ = (
        "before",
        "covers",
        "entries",
        "extended",
        "facts",
        "flushed",
        "freed",
        "last_position",
        "outputs",
        "size_bytes",
    )

    def __init__(self, position: int) -> None:
        self.entries: list[Entry] = []
        self.before: dict[str, Handoff | None] = {}
        self.outputs: list[Output] = []
        self.facts: list[Handoff] = []
        self.flushed: dict[str, tuple[int, int]] = {}
        self.extended: list[Extension] = []
        self.freed: list[str] = []
        self.covers: int | None = None
        self.last_position = position
        self.size_bytes = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.entries or self.facts or self.extended or self.freed or self.covers is not None)

    @property
    def full(self) -> bool:
        """Whether the next command begins a new batch."""
        return len(self.entries) >= MAX_BATCH_ENTRIES or self.size_bytes >= MAX_BATCH_BYTES


class Journal:
    """`position` is the newest record's, `durable` the newest on disk, `covered` how far the table of facts is."""

    def __init__(self, position: int = 0, covered: int = 0) -> None:
        self.position = position
        self.durable = position
        self.covered = covered
        self.ready: deque[Output] = deque()
        self.queued_bytes = 0
        self._in_flight: Batch | None = None
        self._sealed: deque[Batch] = deque()
        self.gathering = Batch(position)
        """The batch that the next record goes into."""
        self._closed_up_to = position  # What lies beyond is in the gathering batch.
        self._for_coverage: list[Reply] = []

    @property
    def in_flight(self) -> bool:
        """Whether a batch is on its way to the disk."""
        return self._in_flight is not None

    @property
    def coverage_wanted(self) -> bool:
        """Whether an answer waits for the table of facts."""
        return bool(self._for_coverage)

    @property
    def sealed(self) -> bool:
        """Whether a full batch waits."""
        return bool(self._sealed)

    def add(self, entry: Entry, before: Handoff | None) -> None:
        """The record, which is in the next position, has been applied; `before` are its handoff's facts before it."""
        assert entry.position == self.position + 1, "an entry is in its place"
        self.position = entry.position
        batch = self.gathering
        if entry.handoff not in batch.before:
            batch.before[entry.handoff] = before
        batch.entries.append(entry)
        batch.last_position = entry.position
        size_bytes = ENTRY_OVERHEAD_BYTES + (len(entry.payload) if entry.payload is not None else 0)
        batch.size_bytes += size_bytes
        self.queued_bytes += size_bytes

    def pending_of(self, handoff: str) -> list[Entry]:
        """Its records that aren't on disk yet, as far as is known; the oldest first."""
        batches = (self._in_flight, *self._sealed, self.gathering)
        touched = (batch for batch in batches if batch is not None and handoff in batch.before)
        return [entry for batch in touched for entry in batch.entries if entry.handoff == handoff]

    def emit(self, output: Output) -> None:
        """Sends `output` off as soon as what it looked at is on disk."""
        position = output.position
        if isinstance(output, Reply) and output.covered and position > self.covered:
            self._for_coverage.append(output)
        elif position <= self.durable:
            self.ready.append(output)
        elif position > self._closed_up_to:
            self.gathering.outputs.append(output)
        else:
            self._batch_with(position).outputs.append(output)

    def seal(self) -> None:
        """Ends the gathering batch: what comes next is committed after it."""
        self._sealed.append(self.gathering)
        self._closed_up_to = self.gathering.last_position
        self.gathering = Batch(self.position)

    def take(self) -> Batch:
        """The next batch to commit; it has been sealed."""
        assert self._in_flight is None, "one commit at a time"
        self._in_flight = self._sealed.popleft()
        return self._in_flight

    def committed(self, failed: frozenset[str] = frozenset()) -> tuple[Batch, list[Entry], dict[str, Handoff | None]]:
        """The batch in flight is on disk, but for the handoffs in `failed`.

        Gives the batch, the records undone, and the facts of before, which are the caller's to restore. Of what was decided
        since, all that concerns those, or is bound to them, is undone too. Replies about what is undone, and what looked at
        several handoffs since, become `store_unavailable`.
        """
        batch = self._in_flight
        assert batch is not None
        self._in_flight = None
        self.durable = max(self.durable, batch.last_position)
        self.queued_bytes -= batch.size_bytes
        undone: list[Entry] = []
        restored: dict[str, Handoff | None] = {}
        for later in (batch, *self._sealed, self.gathering) if failed else ():
            failed = bound_to(failed, later.entries)
            undone.extend(self._fail(later, failed))
            for handoff in sorted(failed & later.before.keys()):
                restored.setdefault(handoff, later.before.pop(handoff))
        if batch.covers is not None:
            self.covered = batch.covers
        self.ready.extend(batch.outputs)
        if self._for_coverage:
            waiting = self._for_coverage
            self._for_coverage = []
            for reply in waiting:
                self.emit(reply)
        return batch, undone, restored

    def rolled_back(self) -> tuple[list[tuple[str, Handoff | None]], list[Waiter], list[Batch]]:
        """Nothing since the last commit is on disk: gives what to undo, newest first, and who goes back to their place.

        Every other reply that waited becomes `store_unavailable`; events are dropped, for what they told isn't so.
        """
        batches = [batch for batch in (self._in_flight, *self._sealed, self.gathering) if batch is not None]
        self._in_flight = None
        self._sealed.clear()
        undo: list[tuple[str, Handoff | None]] = []
        back: list[Waiter] = []
        for batch in reversed(batches):
            undo.extend(batch.before.items())
        for batch in batches:
            self._refuse(batch.outputs, back)
        self._refuse(self._for_coverage, back)
        self._for_coverage = []
        self.position = self.durable
        self.queued_bytes = 0
        self.gathering = Batch(self.position)
        self._closed_up_to = self.position
        return undo, back, batches

    def refuse_waiting(self) -> None:
        """Nobody knows whether the batch in flight is on disk: whoever asked hears so now, rather than in a while.

        What would go out unasked, and what was granted to somebody who waits, stays until it is known.
        """
        for batch in (self._in_flight, *self._sealed, self.gathering):
            if batch is not None:
                batch.outputs = [output for output in batch.outputs if not self._refused(output)]
        self._for_coverage = [reply for reply in self._for_coverage if not self._refused(reply)]

    def _refused(self, output: Output) -> bool:
        if not isinstance(output, Reply) or output.waiter is not None:
            return False
        self.ready.append(unavailable(output))
        return True

    def _refuse(self, outputs: "list[Output] | list[Reply]", back: list[Waiter]) -> None:
        for output in outputs:
            if isinstance(output, Reply):
                if output.waiter is not None:
                    back.append(output.waiter)
                else:
                    self.ready.append(unavailable(output))

    def _fail(self, batch: Batch, failed: frozenset[str]) -> list[Entry]:
        kept: list[Output] = []
        for output in batch.outputs:
            if output.handoff is not None and output.handoff not in failed:
                kept.append(output)
            elif isinstance(output, Reply):
                self.ready.append(unavailable(output))
        batch.outputs = kept
        undone = [entry for entry in batch.entries if entry.handoff in failed]
        batch.entries = [entry for entry in batch.entries if entry.handoff not in failed]
        batch.facts = [facts for facts in batch.facts if facts.id not in failed]
        batch.covers = None  # Reckoned as if the batches before it had brought all of theirs into the table.
        return undone

    def _batch_with(self, position: int) -> Batch:
        if self._in_flight is not None and position <= self._in_flight.last_position:
            return self._in_flight
        for batch in self._sealed:
            if position <= batch.last_position:
                return batch
        raise AssertionError("every position that was given out is in a batch")


def unavailable(reply: Reply) -> Reply:
    """What `reply` becomes when its commit failed."""
    return replace(reply, answer=StoreUnavailable(NOT_KEPT), position=0, covered=False, waiter=None)
