"""Claiming a handoff again after its lease ended, for as long as nobody else has.

Owns when the new lease may stand for the old one: nobody was between them, and the last checkpoint is ours. Does not own
what is written under it (`hold`).
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from dhp_protocol.errors import AlreadyClaimed, DHPError, Draining, NotClaimable, NotFound
from dhp_protocol.messages import Claim, GetStatus
from dhp_protocol.replies import StatusReply

from .backoff import Backoff
from .exceptions import ClientError, ConnectionLost, NotConnected
from .grants import Grant
from .leases import Loss, Phase, loss_from_status
from .standing_in import may_stand_for

if TYPE_CHECKING:
    from .hold import Hold

log = logging.getLogger("dhp_client")

FIRST_PAUSE_MS = 100
MOST_PAUSE_MS = 1_000


async def reclaim(hold: "Hold") -> None:
    """Has `hold` go on under a new fence, or be lost."""
    pauses = Backoff(FIRST_PAUSE_MS, MOST_PAUSE_MS)
    try:
        while hold.phase is Phase.ENDED and hold.ended is None:
            try:
                await _reclaim_once(hold)
            except (NotConnected, ConnectionLost, Draining):
                await asyncio.sleep(pauses.next_ms() / 1000)
    except (DHPError, ClientError) as error:
        log.warning("%s couldn't be claimed again: %s", hold.lease.handoff, error)
        hold.lose(hold.lease.ended or Loss("expired", hold.lease.fence, ""))


async def _reclaim_once(hold: "Hold") -> None:
    lease, session = hold.lease, hold.session
    request = Claim(worker=hold.worker, handoff=lease.handoff, ttl_ms=int(lease.ttl_ms), detached=lease.detached)
    try:
        grant = await session.claim_again(request)
    except (AlreadyClaimed, NotClaimable):
        status = GetStatus(handoff=lease.handoff)
        found = loss_from_status(await session.connection.call(lambda: status, StatusReply), lease.fence)
        if not found.leaves_it_free(lease.fence):
            hold.lose(found)
        return
    except NotFound:
        hold.lose(Loss("superseded", lease.fence, "not_found"))
        return
    if grant is None:
        return
    stands = await may_stand_for(session.connection, lease.handoff, lease.fence, grant.reply.fence)
    if not stands or not _is_where_we_were(hold, grant):
        await session.hand_back(lease.handoff, grant.reply.fence, "somebody else was at work meanwhile")
        hold.lose(Loss("superseded", grant.reply.fence, "running"))
        return
    log.warning("%s had ended and was claimed again: fence %d", lease.handoff, grant.reply.fence)
    hold.attempt = grant.reply.attempt
    if hold.spooling is not None:
        await hold.spooling.reclaimed(grant.reply.fence)
    session.leases.reclaimed(lease, grant.reply.fence, grant.renewed_ms)
    session.look_again()


def _is_where_we_were(hold: "Hold", grant: Grant) -> bool:
    stored = grant.checkpoint
    if stored is None:
        return hold.seq == 0
    landed = stored.seq == hold.seq + 1 and stored.sha256 in hold.unanswered
    return landed or (stored.seq == hold.seq and stored.sha256 == hold.sha256)
