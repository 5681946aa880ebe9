"""Asking a daemon one thing, whatever happens to the connection meanwhile.

Owns what a call that was sent again makes of a refusal which its own first sending has caused. Base of the client's parts.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import UNSET, UnsetType

from dhp_protocol.errors import DHPError
from dhp_protocol.messages import GetStatus, Request
from dhp_protocol.replies import StatusReply

from .session import Session

T = TypeVar("T")


class Calls:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def _call(
        self, request: Request, shape: type[T], *, already: Callable[[DHPError], Awaitable[T | None]] | None = None
    ) -> T:
        """The answer to `request`, sent again until there is one.

        `already` makes an answer of a refusal of what was sent before, if the first sending did it. None: it didn't.
        """
        self._session.check_usable()
        sendings = 0

        def sending() -> Request:
            nonlocal sendings
            sendings += 1
            return request

        try:
            return await self._session.connection.call(sending, shape)
        except DHPError as error:
            reply = await already(error) if already is not None and sendings > 1 else None
            if reply is None:
                raise
            return reply

    async def _status(self, handoff: str) -> StatusReply:
        return await self._call(GetStatus(handoff=handoff), StatusReply)


def or_unset(value: T | None) -> T | UnsetType:
    """`value`, or what leaves its member out."""
    return UNSET if value is None else value
