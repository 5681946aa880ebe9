"""Operations that remove: forget, and what retention does by itself."""

from dhp_protocol.messages import Forget
from dhp_protocol.replies import Empty

from .moments import Now
from .outputs import Reply
from .retention import decide_forget, may_go
from .settling import Settling
from .waiting import Address


def forget(core: Settling, request: Forget, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    change = decide_forget(facts, core.ledger.descendants_left(facts.id), now)
    position = core.forget(facts, change, now)
    core.journal.emit(Reply(to, Empty(), position, facts.id))


def retire(core: Settling, handoff: str, acked_before_ms: int, now: Now) -> bool:
    """Forgets a handoff that is in memory, if retention may; tells whether it did."""
    facts = core.ledger.get(handoff)
    if facts is None or not core.available:
        return False
    descendants = core.ledger.descendants_left(handoff)
    if not may_go(facts, acked_before_ms, descendants, awaited=core.waiting.awaited(handoff)):
        return False
    core.forget(facts, decide_forget(facts, descendants, now), now)
    core.seal_if_full(now)
    return True
