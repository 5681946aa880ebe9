"""One write under a lease, as `hold` carries it through.

Owns what a write may say about itself: how to send it, what follows from its answer, what may be made of a lost one.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct

from dhp_protocol.errors import BudgetExceeded, DHPError, ResultInvalid
from dhp_protocol.messages import Request

from .leases import Loss
from .spool_lines import Contents, Entry

T = TypeVar("T")


class OutOfTouch(Exception):
    """There is no connection, or the lease is in doubt; a write that gives way didn't leave, or has no answer."""


class Write(Struct, Generic[T], eq=False):
    """How to say it under the present fence, and what follows from its answer.

    `ending` names how the work ends by it. `already` makes the answer of a write that was sent before, if its hold
    turns out to have ended since: then the first sending did it, or there is nothing left to end (None: neither).
    `corrects` tells whether it took something from a refusal that lets `request` say it rightly now. `spends`: a cap may be in its way,
    and the refusal then ends the hold. `unanswered` makes the answer of one that mustn't be sent twice. `begins`: it is
    refused, not kept waiting, while the lease is in doubt. `insists`: it is sent even if nobody waits for it any more.

    Where there is a spool, `entry` is what of it is kept there while nobody answers, and `kept` makes the answer then, of what the
    file holds (None: it waits for the daemon's). `gives_way_ms`: it waits so long to be in touch, and then raises `OutOfTouch` (None: for ever).
    """

    request: Callable[[], Request]
    shape: type[T]
    took_effect: Callable[[T], None] = lambda reply: None
    ending: str | None = None
    already: Callable[[Loss], T | None] = lambda loss: None
    corrects: Callable[[DHPError], bool] = lambda error: False
    spends: bool = False
    unanswered: Callable[[], T] | None = None
    begins: bool = False
    insists: bool = False
    sent: bool = False
    entry: Entry | None = None
    kept: Callable[[Contents], T] | None = None
    gives_way_ms: float | None = None

    @property
    def settles(self) -> tuple[str, ...] | None:
        """By which words a loss that is told meanwhile may be the write's own doing; None: by any."""
        if self.ending is not None:
            return None
        return ("dead",) if self.spends else ()


def makes_it_dead(error: DHPError) -> bool:
    """Whether this refusal was the end of the handoff: a cap was reached, and nothing is left to write."""
    return isinstance(error, BudgetExceeded) or (isinstance(error, ResultInvalid) and error.details.get("left") == 0)
