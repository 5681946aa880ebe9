"""Whether a new lease may stand for an earlier one: nobody was at work between them, as far as anything shows.

Owns that rule. Who asks goes on from the earlier lease's last checkpoint, and looks that it is still the last one (`reclaiming`,
`spooling`).
"""

from .connection import Connection
from .own_doing import JsonRecord, records

_NOBODY_AT_WORK = frozenset(("claimed", "orphaned", "released", "budget_added", "approval_decided"))
"""Records by which nothing of the work has moved."""


async def may_stand_for(connection: Connection, handoff: str, earlier: int, later: int) -> bool:
    """Whether the lease with the fence `later`, which was granted just now, may stand for the one with `earlier`.

    The next but one may: a change of status ended the old lease, the next is this claim. So may a later one if those who had the
    handoff meanwhile left nothing, such as this process itself, when it was granted a claim and never heard of it, or
    one that was killed before it had noted that it had claimed.
    """
    if later <= earlier + 2:
        return later == earlier + 2
    async for record in records(connection, handoff):
        if earlier < record["fence"] < later and _moves_the_work(record):
            return False
    return True


def _moves_the_work(record: JsonRecord) -> bool:
    spent_by_a_child = record["type"] == "spent" and "by" in record
    return record["type"] not in _NOBODY_AT_WORK and not spent_by_a_child
