"""Sending what a dead process left in a spool, where nobody comes to claim its handoff.

Owns claiming for that alone, and telling an answer that was only lost from a take-over. What is sent, and whether it may
be, is `spooling`'s.
"""

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from dhp_protocol.errors import AlreadyClaimed, DHPError, LeaseLost, NotClaimable, NotFound
from dhp_protocol.messages import Claim

from . import payload
from .spool import Spool, Spooled
from .spool_file import take
from .spool_lines import Void
from .spooling import put_aside

if TYPE_CHECKING:
    from .client import Client

log = logging.getLogger("dhp_client")


async def replay_left(client: "Client", spool: Spool, left: Spooled) -> None:
    """Sends what `left` holds, if nobody was at work on its handoff since; notes that it is void if somebody was."""
    try:
        task = await client._claimed(Claim(worker=left.worker, handoff=left.handoff, wait_ms=0), spool=spool)
        if task is not None:
            await task.release("its spool was replayed")
    except NotFound:
        await _end(left, Void(why="not_found", fence=left.fence, status=""))
    except (AlreadyClaimed, NotClaimable):
        await _compare(client, left)
    except LeaseLost as error:
        log.debug("%s: %s", left.handoff, error)
    except DHPError as error:
        log.warning("%s can't be claimed for its spool: %s", left.handoff, error)


async def _compare(client: "Client", left: Spooled) -> None:
    """It isn't there to be claimed: its own lease still runs, or somebody else has it, or it will never be."""
    found = await client.status(left.handoff)
    if found.status == "completed" and left.has_result:
        accepted = await client.result(left.handoff)
        if payload.encode(accepted.result, member="result") == payload.encode(left.result, member="result"):
            await _end(left, None)  # It was accepted; only the answer was lost.
            return
    if found.status in ("completed", "cancelled", "dead", "suspended"):  # Else the next claim tells.
        await _end(left, Void(why="superseded", fence=found.fence, status=found.status))


async def _end(left: Spooled, void: Void | None) -> None:
    def end() -> None:
        file = take(Path(left.path))
        if file is None:
            return
        if void is None:
            file.remove()
        else:
            put_aside(file, void)

    await asyncio.to_thread(end)
