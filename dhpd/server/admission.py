"""Admission: who speaks on each connection, and what one may do before it has said who.

Owns what a connection gets until its `hello` is accepted, where a token is required: small frames, a few seconds, three
tries, and a place in half of the room. Does not own what a role may do (`dhpd.engine.roles`), nor what a token is (`tokens`).
"""

import asyncio

from msgspec import UNSET

from dhp_protocol.errors import Forbidden, Unauthenticated
from dhp_protocol.messages import Hello
from dhpd.config import Config
from dhpd.engine.roles import ADMIN, Caller

from .connection import Connection
from .tokens import Tokens

STRANGER_FRAME_BYTES = 64 * 1024
MAX_REFUSALS = 3

STRANGER = Caller(None, ())
"""Whoever hasn't said hello where a token is required."""


class Admission:
    def __init__(self, tokens: Tokens | None, config: Config) -> None:
        self._tokens = tokens
        self._hello_within_ms = config.hello_within_ms
        self._max_frame_bytes = config.max_frame_bytes
        self._max_strangers = max(1, config.max_connections // 2)
        self._callers: dict[int, Caller] = {}
        self._refusals: dict[int, int] = {}
        self._deadlines: dict[int, asyncio.TimerHandle] = {}

    def has_room(self, connection: Connection) -> bool:
        """Whether it may stay: strangers take half of the places at most, so that who has a token finds one."""
        return not self._is_stranger(connection) or len(self._deadlines) < self._max_strangers

    def opened(self, connection: Connection) -> None:
        """A connection has come. File modes guard a unix socket, so whoever is there needs no token."""
        if not self._is_stranger(connection):
            name = connection.certificate_name
            self._callers[connection.number] = ADMIN if name is None else Caller(name, ADMIN.roles, worker=name)
            return
        connection.bound_frames(min(STRANGER_FRAME_BYTES, self._max_frame_bytes))
        loop = asyncio.get_running_loop()
        self._deadlines[connection.number] = loop.call_later(self._hello_within_ms / 1000, connection.end_soon)

    def caller(self, connection: int) -> Caller:
        """Who speaks there."""
        return self._callers.get(connection, STRANGER)

    def proven(self, connection: Connection, hello: Hello) -> Caller:
        """Who the `hello` proves to be; raises `Unauthenticated`, or `Forbidden` where the connection is another's."""
        known = self._callers.get(connection.number)
        if known is not None and (self._tokens is None or known is ADMIN):
            return known
        assert self._tokens is not None, "where no tokens are in use, nobody is a stranger"
        if hello.token is UNSET:
            if known is None:
                raise unauthenticated()
            return known
        found = self._tokens.find(hello.token)
        if found is None:
            raise Unauthenticated("This token isn't known here: check it, or ask for another one.")
        if connection.certificate_name is not None:
            found = found.as_worker(connection.certificate_name)
        if known is not None and found is not known:
            raise Forbidden("This connection has said hello with another token: open one for each.")
        return found

    def accepted(self, connection: Connection, caller: Caller) -> None:
        """The connection's `hello` was."""
        if connection.number in self._callers:
            return
        self._callers[connection.number] = caller
        self._stop_waiting(connection.number)
        connection.bound_frames(self._max_frame_bytes)

    def refused(self, connection: Connection) -> None:
        """The connection's `hello` was: whoever guesses isn't given many tries."""
        if connection.number in self._callers:
            return
        refusals = self._refusals.get(connection.number, 0) + 1
        self._refusals[connection.number] = refusals
        if refusals >= MAX_REFUSALS:
            connection.end_soon()

    def gone(self, connection: int) -> bool:
        """Whether it was admitted with a token that is in force no more."""
        caller = self._callers.get(connection)
        return caller is not None and not caller.roles

    def closed(self, connection: int) -> None:
        """The connection is gone."""
        self._callers.pop(connection, None)
        self._stop_waiting(connection)

    def _is_stranger(self, connection: Connection) -> bool:
        """Whether who has come there has to say hello with a token."""
        return self._tokens is not None and connection.over_tcp

    def _stop_waiting(self, connection: int) -> None:
        self._refusals.pop(connection, None)
        deadline = self._deadlines.pop(connection, None)
        if deadline is not None:
            deadline.cancel()


def unauthenticated() -> Unauthenticated:
    """What a stranger hears."""
    return Unauthenticated("A token is required here: send it as the member token of hello.")
