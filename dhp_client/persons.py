"""A person's decision, brought to the daemon by a program that faces that person for a worker.

Owns that it goes in by a session of its own, opened for that one decision, under an approver's own token where the daemon wants
tokens: whoever asked or holds the work never decides, and the daemon tells them apart by session and by token. Does not own how
the person is asked, nor who may decide, which the daemon holds everybody to.
"""

import os
from functools import partial

from dhp_protocol.replies import DecisionReply

from .addresses import AddressLike
from .connecting import Connecting, connect, token_from, token_in
from .exceptions import NotAnApprover

PATIENCE_MS = 10_000
"""A person waits for it, so an outage is told rather than outlasted."""

Path = str | os.PathLike[str]


class Approver:
    """Takes decisions to the daemon at `address`; `name` is told as `by` where there are no tokens. Made by `approver_beside`.

    `approve` and `deny` raise as those of `Client` do: `Forbidden`, `AlreadyDecided`, `ApprovalExpired`, `NotConnected` …
    """

    def __init__(
        self,
        address: AddressLike | None,
        *,
        token: str | None,
        name: str,
        ca_file: Path | None = None,
        cert_file: Path | None = None,
        key_file: Path | None = None,
        server_name: str | None = None,
    ) -> None:
        self._connecting: partial[Connecting] = partial(
            connect,
            address,
            name=name,
            token=token or "",  # Nobody decides under the token of the environment, which is the worker's.
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            server_name=server_name,
            connect_timeout_ms=PATIENCE_MS,
            retry_ms=PATIENCE_MS,
        )

    async def approve(self, approval: str, note: str | None = None) -> DecisionReply:
        """The person said yes."""
        async with self._connecting() as person:
            return await person.approve(approval, note)

    async def deny(self, approval: str, note: str | None = None) -> DecisionReply:
        """The person said no."""
        async with self._connecting() as person:
            return await person.deny(approval, note)

    async def check(self) -> None:
        """Raises `NotAnApprover` where the token may not decide, `Unauthenticated` where it is none; as `connect` besides."""
        async with self._connecting() as person:
            if not {"approver", "admin"} & set(person.roles):
                raise NotAnApprover("The approver's token has no role to decide with: give one with the role approver.")


def approver_beside(
    address: AddressLike | None = None,
    *,
    token_file: Path | None = None,
    approver_token_file: Path | None = None,
    name: str = "person",
    ca_file: Path | None = None,
    cert_file: Path | None = None,
    key_file: Path | None = None,
    server_name: str | None = None,
) -> Approver | None:
    """What takes decisions in beside a client that was connected with the same settings; None where nothing can.

    `token_file` is that client's own token (None: what the environment says), `approver_token_file` that of persons. Without the
    second there is nothing to decide with, unless the client has no token either, and so the daemon wants none. Raises
    `NotAnApprover` where both are the same token, and `TokenUnreadable`.
    """
    own = token_from(None, token_file)
    persons = None if approver_token_file is None else token_in(approver_token_file)
    if own is not None and persons is None:
        return None
    if persons is not None and persons == own:
        raise NotAnApprover("The approver's token is the one that asks: give persons one of their own.")
    return Approver(
        address,
        token=persons,
        name=name,
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
        server_name=server_name,
    )
