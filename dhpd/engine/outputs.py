"""What goes out: replies and events, each with what it looked at.

Owns the shapes. An output leaves once the position that it looked at is on disk (`journal`); sending it, and reading
what a `Lookup` asks for, is the server's work.
"""

from msgspec import Struct

from dhp_protocol.errors import DHPError
from dhp_protocol.replies import Event

from .lookups import Lookup
from .waiting import Address, Waiter


class Reply(Struct, frozen=True):
    """One request's answer: a reply struct, an error, or a `Lookup` to be resolved first.

    `position` is the highest that it looked at; `handoff` the one it looked at (None: several). With `covered`, the
    table of facts must have reached the position as well. `waiter` is who goes back to their place, instead of hearing
    of a failed commit.
    """

    to: Address
    answer: Struct | DHPError | Lookup
    position: int = 0
    handoff: str | None = None
    covered: bool = False
    waiter: Waiter | None = None


class Notice(Struct, frozen=True, gc=False):
    """An event for one connection."""

    connection: int
    event: Event
    position: int = 0
    handoff: str | None = None


Output = Reply | Notice
