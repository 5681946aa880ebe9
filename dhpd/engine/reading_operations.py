"""Operations that only look: status, checkpoints, history, result, list."""

from dhp_protocol.messages import Checkpoints, GetResult, GetStatus, History, LastCheckpoint, ListHandoffs
from dhp_protocol.replies import CheckpointsReply, HistoryReply, LastCheckpointReply

from .facts import RUNNING
from .lookups import CheckpointsLookup, HistoryLookup, LastCheckpointLookup, ListLookup
from .moments import Now
from .retention import replaced_seq
from .settling import Settling
from .telling import result_of
from .views import NO_LEASE, lease_view, status_reply
from .waiting import Address, ResultWaiter


def status(core: Settling, request: GetStatus, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    lease = core.leases.get(facts.id, facts.fence) if facts.status == RUNNING else None
    core.reply(to, status_reply(facts, NO_LEASE if lease is None else lease_view(lease, now.lease_ms)), facts)


def last_checkpoint(core: Settling, request: LastCheckpoint, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    newest = facts.checkpoint
    answer = LastCheckpointReply(checkpoint=None) if newest is None else LastCheckpointLookup(newest)
    core.reply(to, answer, facts)


def checkpoints(core: Settling, request: Checkpoints, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    if facts.seq <= request.after:
        core.reply(to, CheckpointsReply(checkpoints=[], next=None), facts)
    else:
        limit = _page(core, request.limit)
        after = max(request.after, replaced_seq(facts))  # Whether or not they have gone from the disk yet.
        core.reply(to, CheckpointsLookup(facts.position, facts.checkpoint, after, limit), facts)


def history(core: Settling, request: History, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    if facts.n <= request.after:
        core.reply(to, HistoryReply(records=[], next=None), facts)
    else:
        core.reply(to, HistoryLookup(facts.position, facts.n, request.after, _page(core, request.limit)), facts)


def result(core: Settling, request: GetResult, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    wait_ms = min(max(request.wait_ms, 0), core.settings.limits.max_wait_ms)
    if facts.final or not wait_ms or core.sessions.of(to.connection) is None:
        core.reply(to, result_of(facts), facts)
    else:
        core.waiting.add(ResultWaiter(to, now.lease_ms + wait_ms, facts.id))


def list_handoffs(core: Settling, request: ListHandoffs, to: Address, now: Now) -> None:
    lookup = ListLookup(
        core.journal.position,
        request.after,
        _page(core, request.limit),
        request.status,
        request.kind,
        request.worker,
        request.label,
        request.prefix,
        request.newest_first,
    )
    core.reply_of_all(to, lookup, covered=True)


def _page(core: Settling, limit: int) -> int:
    return min(max(limit, 1), core.settings.limits.max_page)
