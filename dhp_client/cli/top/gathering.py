"""Asking a daemon for what `dhp top` shows.

Owns what is asked for, and bounds on it: one refresh costs the daemon the same few pages, whether it holds a hundred handoffs or a
million. What the answers mean is `picture`'s.
"""

import asyncio

from msgspec import Struct

from dhp_client.client import Client
from dhp_client.results import Approval
from dhp_protocol.errors import NotFound
from dhp_protocol.replies import HealthReply, StatsReply, StatusReply

LEASES_AT_MOST = 200
OTHERS_AT_MOST = 25
"""Of each status but `running`. A page's item costs the daemon some 60 µs."""

PAGE = 50
"""Several short pages hold up the daemon's other callers less than a long one."""

EMPTY_PAGES_AT_MOST = 5
"""So many pages are gone through for what is wanted, where the first ones hold none of that kind, or only what was taken note of."""


class Listed(Struct, frozen=True):
    """Handoffs of one status; `more`: there are others."""

    handoffs: list[StatusReply] = []
    more: bool = False


class Asked(Struct, frozen=True):
    """An open approval, and the kind of the work that waits for it."""

    approval: Approval
    kind: str


class Facts(Struct, frozen=True, kw_only=True):
    """What was read from the daemon's store in one refresh. `pending` are the oldest, `dead` the newest ones nobody acknowledged."""

    stats: StatsReply
    running: Listed = Listed()
    orphaned: Listed = Listed()
    suspended: Listed = Listed()
    pending: Listed = Listed()
    dead: Listed = Listed()
    asked: list[Asked] = []
    more_asked: bool = False


async def health(client: Client) -> HealthReply:
    """How the daemon is, which it says whatever its store does."""
    return await client.health()


async def facts(client: Client, kind: str | None) -> Facts:
    """What there is, of all kinds or of one; the counts in `stats` are of all kinds."""
    stats = await client.stats()

    async def listed(status: str, limit: int = OTHERS_AT_MOST, *, newest_first: bool = False) -> Listed:
        if not stats.handoffs.get(status):
            return Listed()
        return await _listed(client, status, kind, limit, newest_first=newest_first)

    running, orphaned, suspended, pending, dead, (asked, more_asked) = await asyncio.gather(
        listed("running", LEASES_AT_MOST),
        listed("orphaned"),
        listed("suspended"),
        listed("pending"),
        listed("dead", newest_first=True),
        _asked(client, kind),
    )
    return Facts(
        stats=stats,
        running=running,
        orphaned=orphaned,
        suspended=suspended,
        pending=pending,
        dead=dead,
        asked=asked,
        more_asked=more_asked,
    )


async def _listed(client: Client, status: str, kind: str | None, limit: int, *, newest_first: bool) -> Listed:
    """What nobody has taken note of, up to `limit`."""
    found: list[StatusReply] = []
    after: int | None = 0
    empty_pages = 0
    while after is not None and len(found) < limit and empty_pages < EMPTY_PAGES_AT_MOST:
        page = await client.list(
            status=status, kind=kind, limit=min(limit - len(found), PAGE), after=after, newest_first=newest_first
        )
        wanted = [one for one in page.handoffs if not one.acked]
        found += wanted
        empty_pages += not wanted
        after = page.next
    return Listed(found, after is not None)


async def _asked(client: Client, kind: str | None) -> tuple[list[Asked], bool]:
    """The oldest open questions; an approval doesn't tell of what kind its work is, the work does."""
    page = await client.approvals(status="open", limit=OTHERS_AT_MOST)
    standing = await asyncio.gather(*(client.status(one.handoff) for one in page.approvals), return_exceptions=True)
    found = []
    for approval, stands in zip(page.approvals, standing, strict=True):
        if isinstance(stands, NotFound):  # It has been forgotten since.
            continue
        if isinstance(stands, BaseException):
            raise stands
        if kind in (None, stands.kind):
            found.append(Asked(approval, stands.kind))
    return found, page.next is not None
