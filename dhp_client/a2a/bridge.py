"""What everything here works with: the client, and what this server was told to serve.

Owns which tasks its callers may see: those of its kinds, whoever has dispatched them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from dhp_client import Client
from dhp_client.persons import Approver


class Bridge(msgspec.Struct, frozen=True, kw_only=True):
    """`approver` takes in callers' answers to what a person is asked (None: they don't decide); `budget` caps each task that is sent.

    `shows_states`: whether callers see checkpoints' states.
    """

    client: Client
    kinds: tuple[str, ...]
    approver: Approver | None = None
    budget: Mapping[str, Any] | None = None
    shows_states: bool = True

    @property
    def callers_decide(self) -> bool:
        """Whether callers' answers decide what a person is asked."""
        return self.approver is not None
