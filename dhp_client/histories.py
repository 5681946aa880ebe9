"""A handoff's whole history, page by page.

Owns the asking. What a record means is SPEC.md's.
"""

from typing import Any

from .client import Client

PAGE = 1_000


async def whole_history(client: Client, handoff: str) -> list[dict[str, Any]]:
    """Every record that is kept, oldest first."""
    records: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = await client.history(handoff, after=after, limit=PAGE)
        records += page.records
        after = page.next
    return records
