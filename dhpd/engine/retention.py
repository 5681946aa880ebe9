"""Rules for what goes: checkpoints that newer ones have replaced, and handoffs that have ended.

Owns which checkpoints are kept, what may be forgotten, when retention may do so by itself, and by which clock. Nothing that
nobody has acknowledged goes by itself (invariant 4). Does not own how rows leave the disk (`dhpd.store.pruning`). Pure.
"""

from dhp_protocol.errors import WrongState

from .facts import Handoff
from .moments import Now
from .records import Change, Forgotten

SPARE_SHARE = 4
"""Of live work, checkpoints go once this share of the number kept has been replaced: looking for one costs a walk."""
SETTLING_IN_MS = 600_000
"""A machine's clock may be wrong for a while after its start; so long nothing goes by itself."""


def replaced_seq(handoff: Handoff) -> int:
    """Checkpoints up to this one have been replaced by newer ones: they aren't shown any more, and may go from the disk."""
    return max(0, handoff.seq - handoff.keep_checkpoints)


def prune_once_below(handoff: Handoff) -> int:
    """Checkpoints are worth looking for while fewer than up to this one have gone."""
    if handoff.final:
        return replaced_seq(handoff)
    return max(0, replaced_seq(handoff) - max(1, handoff.keep_checkpoints // SPARE_SHARE) + 1)


def decide_forget(handoff: Handoff, descendants: int, now: Now) -> Change:
    """The end of all that is known of it; `descendants` is how many haven't ended for good, whose spending its caps bound.

    Raises `WrongState` where it hasn't ended itself, or one of them hasn't, or may be redriven.
    """
    if not handoff.final:
        sentence = f"The handoff is {handoff.status}: cancel it, or let it end, before it is forgotten."
        raise WrongState(sentence, handoff=handoff.id, status=handoff.status)
    if descendants:
        sentence = (
            f"{descendants} of its descendants live, or are dead and may be redriven: cancel or forget those first."
        )
        raise WrongState(sentence, handoff=handoff.id, status=handoff.status, descendants=descendants)
    return Change(Forgotten(n=handoff.n + 1, at_ms=now.wall_ms, fence=handoff.fence))


def may_go(handoff: Handoff, acked_before_ms: int, descendants: int, *, awaited: bool) -> bool:
    """Whether retention may forget it: it has ended, its keeper took note of that long ago, and nobody needs it."""
    # Invariant 4: without an ack nothing goes.
    long_acked = handoff.final and handoff.acked and handoff.acked_at_ms <= acked_before_ms
    return long_acked and not descendants and not awaited


def retention_wall_ms(started: Now, now: Now) -> int:
    """The time that retention goes by: the wall clock's, as far as it hasn't run ahead of the lease clock since the start.

    So a wall clock that is set forward removes nothing early while the daemon runs, and one that is set back counts at once.
    """
    return min(now.wall_ms, started.wall_ms + now.lease_ms - started.lease_ms)
