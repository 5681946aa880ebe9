"""Asking a daemon one thing, whatever happens to the connection meanwhile.

Owns what a call that was sent again makes of a refusal which its own first sending has caused. Base of the client's parts.
"""

from collections.abc import Callable
from typing import TypeVar

from msgspec import UNSET, UnsetType

from dhp_protocol.errors import DHPError
from dhp_protocol.messages import Request

from .session import Session

T = TypeVar("T")


class Calls:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def _call(
        self, request: Request, shape: type[T], *, already: Callable[[DHPError], T | None] = lambda error: None
    ) -> T:
        """The answer to `request`, sent again until there is one.

        `already` makes an answer of a refusal of what was sent before: then the first sending did it. None: it didn't.
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
            reply = already(error) if sendings > 1 else None
            if reply is None:
                raise
            return reply


def or_unset(value: T | None) -> T | UnsetType:
    """`value`, or what leaves its member out."""
    return UNSET if value is None else value
