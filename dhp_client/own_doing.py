"""What a request that was sent again may have done the first time, as the handoff's history tells.

Owns telling a request's own doing from somebody else's. Does not own sending again (`connection`, `hold`), nor the requests
whose sending again the daemon answers like the first time.
"""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

from msgspec import UNSET

from dhp_protocol.errors import BudgetExceeded, DHPError, ResultInvalid
from dhp_protocol.messages import Checkpoint, Complete, GetStatus, History, Request, Spend, Suspend
from dhp_protocol.money import nano_usd, usd
from dhp_protocol.replies import HistoryReply, ImportReply, StatusReply

from .connection import Connection
from .exceptions import ClientError
from .leases import Loss
from .money import unspent_usd
from .payload import sha256_hex

PAGE = 1_000

JsonRecord = dict[str, Any]


async def newest_record(connection: Connection, handoff: str, type: str, *, after: int) -> JsonRecord | None:
    """The newest record of that type behind the position `after`; None: there is none."""
    newest: JsonRecord | None = None
    async for record in records(connection, handoff):
        if record["type"] == type and record["position"] > after:
            newest = record
    return newest


async def records(connection: Connection, handoff: str) -> AsyncIterator[JsonRecord]:
    """The handoff's history, oldest first."""
    after: int | None = 0
    while after is not None:
        page = await _page(connection, handoff, after)
        for record in page.records:
            yield record
        after = page.next


async def _page(connection: Connection, handoff: str, after: int) -> HistoryReply:
    request = History(handoff=handoff, after=after, limit=PAGE)
    return await connection.call(lambda: request, HistoryReply)


def is_suspended_by(request: Suspend, record: JsonRecord) -> bool:
    """Whether that `suspended` record says just what `request` asked for."""
    wake_ms = None
    if "wake_at" in record:
        slept = datetime.fromisoformat(record["wake_at"]) - datetime.fromisoformat(record["at"])
        wake_ms = slept // timedelta(milliseconds=1)
    asked = (request.reason, request.approval, request.wake_ms)
    told = (record.get("reason"), record.get("approval"), wake_ms)
    return "worker" not in record and told == tuple(None if member is UNSET else member for member in asked)


async def imported_before(connection: Connection, reply: ImportReply, before: int) -> ImportReply:
    """What came of a bundle whose first answer was lost, where it was there when it was given again (`reply`).

    `before` is the handoff's position before the first time (0: it wasn't there). What arrives lies in a row, closed by an
    `imported` record.
    """
    first = 0
    async for record in records(connection, reply.handoff):
        position: int = record["position"]
        if position > before:
            first = first or position
            if record["type"] == "imported":
                return ImportReply(handoff=reply.handoff, created=not before, taken=position - first)
    return reply


async def refused_before(connection: Connection, request: Request, loss: Loss, fence: int) -> DHPError | None:
    """The refusal that `request`, sent under `fence`, got the first time if it made the handoff dead; None: it didn't.

    Also where that isn't to be found out: then the lease is lost, which is true as well.
    """
    if loss.why != "dead" or not isinstance(request, Spend | Checkpoint | Complete):
        return None
    try:
        return await _refusal(connection, request, fence)
    except (DHPError, ClientError):
        return None


async def _refusal(connection: Connection, request: Spend | Checkpoint | Complete, fence: int) -> DHPError | None:
    before: JsonRecord = {}
    async for record in records(connection, request.handoff):
        if record["type"] == "dead" and record["fence"] == fence + 1:
            if isinstance(request, Complete):
                return _result_invalid(request, before)
            return await _budget_exceeded(connection, request, record)
        before = record
    return None


def _result_invalid(request: Complete, record: JsonRecord) -> ResultInvalid | None:
    """`record` is the one before the end."""
    if record.get("type") != "result_refused" or record["sha256"] != sha256_hex(request.result):
        return None
    path, rule = record["path"], record["rule"]
    sentence = (
        f"The result doesn't meet the output schema ({rule} at {path!r}), and no try is left: the handoff is dead."
    )
    return ResultInvalid(sentence, path=path, rule=rule, left=0)


async def _budget_exceeded(
    connection: Connection, request: Spend | Checkpoint, record: JsonRecord
) -> BudgetExceeded | None:
    """The details tell `limit` and `used` as they are by now."""
    cap, whose = record.get("cap"), record.get("whose")
    kept = (record.get("kept_steps", 0), record.get("kept_usd", 0.0), record.get("kept_sha256"))
    amount = 0.0 if request.usd is UNSET else usd(nano_usd(request.usd, member="usd"))
    sha256 = sha256_hex(request.state) if isinstance(request, Checkpoint) else None
    if cap not in ("max_steps", "max_usd") or whose is None or kept != (request.steps, amount, sha256):
        return None
    question = GetStatus(handoff=whose)
    account = await connection.call(lambda: question, StatusReply)
    used: float = account.steps if cap == "max_steps" else account.usd
    limit, asked = account.budget[cap], request.steps if cap == "max_steps" else amount
    lacking = unspent_usd(asked, float(unspent_usd(limit, used)))
    of_whom = "" if whose == request.handoff else f" of its ancestor {whose}"
    return BudgetExceeded(
        f"This would pass {cap}{of_whom} ({used} of {limit} used, {asked} asked): parked as dead, with all it has.",
        cap=cap,
        limit=limit,
        used=used,
        asked=asked,
        lacking=int(lacking) if cap == "max_steps" else float(lacking),
        whose=whose,
    )
