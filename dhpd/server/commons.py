"""What all connections have in common.

Owns what is one for all of them: turns, the line of long frames, the room for input and for answers that nobody reads, who is
silent, and the counts of what met a bound. Does not own what any of these does.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from dhp_protocol.replies import LimitsHit
from dhpd.config import Config

from .long_frames import LongFrames
from .room import Room
from .silence import Silence
from .turns import Turns

if TYPE_CHECKING:
    from .connection import Connection


class Commons:
    def __init__(
        self,
        config: Config,
        clock_s: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """`clock_s` and `call_soon` are those of the loop."""
        self.config = config
        self.clock_s = clock_s
        self.hits = LimitsHit()
        self.turns = Turns(clock_s, call_soon)
        self.long_frames = LongFrames(config.max_depth, clock_s)
        self.input: Room[Connection] = Room(config.max_buffered_bytes, _input_gives_way)
        self.unsent: Room[Connection] = Room(config.max_unsent_bytes_in_all, _answers_give_way)
        self.silence = Silence(config, clock_s, self.hits, self.unsent)


def _input_gives_way(connection: "Connection") -> None:
    connection.input_gives_way()


def _answers_give_way(connection: "Connection") -> None:
    connection.answers_give_way()
