"""What a run comes to in numbers.

Pure: counted from the books. Whether the run was good is the `judge`'s to say.
"""

from collections.abc import Iterator

from msgspec import Struct

from .books import Acknowledged, Begun, Books, Late, WorkerEntry
from .judge import cases, lost_checkpoints, redone
from .plan import KILL_DAEMON, KILL_WORKER


class Figures(Struct, frozen=True, kw_only=True):
    """Of one run. A take-over is a claim of a handoff that had been claimed before.

    `steps_begun` counts each time that a step was begun, `steps_redone` those of a step that had been begun before (a kill
    in the middle of a step counts it whole), and `most_redone` the most that any one holding had to be redone of. All
    steps take the same time, so that `redone_share` is a share of the work.
    """

    seconds: float
    handoffs: int
    results: int
    workers_killed: int
    daemon_killed: int
    other_faults: int
    take_overs: int
    steps_begun: int
    steps_redone: int
    most_redone: int
    redone_share: float
    checkpoints_acknowledged: int
    checkpoints_lost: int
    late_writes_refused: int


def figures(books: Books) -> Figures:
    """Time runs from the first entry of any book to the last."""
    looked_at = cases(books)
    again = [steps for case in looked_at for steps in redone(case).values()]
    begun = sum(isinstance(entry, Begun) for entry in _entries(books))
    kinds = [fault.kind for fault in books.faults]
    killed = kinds.count(KILL_WORKER), kinds.count(KILL_DAEMON)
    moments = [entry.at_ms for entry in (*_entries(books), *books.faults)]
    return Figures(
        seconds=round((max(moments, default=0.0) - min(moments, default=0.0)) / 1000, 1),
        handoffs=len(looked_at),
        results=sum(record.type == "completed" for case in looked_at for record in case.records),
        workers_killed=killed[0],
        daemon_killed=killed[1],
        other_faults=len(kinds) - sum(killed),
        take_overs=sum(max(0, len(case.claims) - 1) for case in looked_at),
        steps_begun=begun,
        steps_redone=sum(again),
        most_redone=max(again, default=0),
        redone_share=sum(again) / max(1, begun),
        checkpoints_acknowledged=sum(isinstance(entry, Acknowledged) for entry in _entries(books)),
        checkpoints_lost=sum(1 for case in looked_at for _ in lost_checkpoints(case)),
        late_writes_refused=sum(isinstance(entry, Late) and entry.answer == "lease_lost" for entry in _entries(books)),
    )


def figure_lines(found: Figures) -> Iterator[str]:
    """For people."""
    yield f"  killed       {found.workers_killed} workers, and the daemon {found.daemon_killed} times"
    yield f"  other faults {found.other_faults}"
    yield f"  take-overs   {found.take_overs}"
    yield (
        f"  steps        {found.steps_begun} begun, {found.steps_redone} of them again "
        f"({found.redone_share:.2%}), {found.most_redone} at most of one holding"
    )
    yield f"  checkpoints  {found.checkpoints_acknowledged} acknowledged, {found.checkpoints_lost} lost"
    yield f"  late writes  {found.late_writes_refused} refused"
    yield f"  results      {found.results} of {found.handoffs}"
    yield f"  time         {found.seconds} s"


def _entries(books: Books) -> Iterator[WorkerEntry]:
    return (entry for entries in books.workers.values() for entry in entries)
