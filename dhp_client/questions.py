"""All that people are asked, page by page.

Owns the asking. Who may answer, and how, is `persons`'s.
"""

from .looking import Looking
from .results import Approval

PAGE = 1_000


async def all_approvals(client: Looking, *, handoff: str | None = None, status: str | None = None) -> list[Approval]:
    """Every approval that was asked for, in all or about one handoff, of any status or of one, oldest first."""
    found: list[Approval] = []
    after: int | None = 0
    while after is not None:
        page = await client.approvals(handoff=handoff, status=status, after=after, limit=PAGE)
        found += page.approvals
        after = page.next
    return found
