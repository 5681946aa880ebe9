"""What can go wrong on the client's side of the wire.

Owns the exceptions that never cross the wire; those that the daemon answers are the classes of `dhp_protocol.errors`.
"""


class ClientError(Exception):
    """Base of every exception that the client raises by itself."""


class ClientClosed(ClientError):
    """The client was closed, or belongs to the process that this one was forked from: connect again."""


class WrongLoop(ClientError, RuntimeError):
    """The client belongs to another event loop: connect on the one that uses it."""


class ConnectionLost(ClientError):
    """The connection ended before the answer came; what was asked may have taken effect."""


class NotConnected(ClientError):
    """No daemon answered in time at any of the addresses."""


class DaemonNotStarted(NotConnected):
    """The embedded daemon ended instead of becoming ready, or isn't ready yet; the message holds the end of its log."""


class BadAddress(ClientError, ValueError):
    """The address is none that this version can connect to."""


class Untrusted(BadAddress):
    """The daemon's certificate can't be trusted, or the daemon doesn't trust this client's, or one of them speaks no TLS."""


class TokenUnreadable(ClientError, ValueError):
    """The file that was to hold the token can't be read."""


class BadReply(ClientError):
    """The daemon sent something that is no dhp/1 reply."""


class IntegrityError(ClientError):
    """An intent, a state or an answer doesn't have the hash that names it: it was changed on the way or at rest."""


class NothingToClaim(ClientError):
    """The wait ended without work. Raised where a block was to run with the task."""


class TaskEnded(ClientError):
    """The task was completed, failed, released or suspended already, or a cap has ended its work, which is dead."""

    def __init__(self, message: str, handoff: str) -> None:
        super().__init__(message)
        self.handoff = handoff


class InDoubt(ClientError):
    """A write was given up while nobody answered: whether it took effect, and whether the lease lives, isn't known."""


class NotSpooled(ClientError):
    """The spool has no room or can't be written: what nobody answered isn't kept, what was kept before is."""


class NoJournal(ClientError):
    """The handoff's checkpoints aren't entries of this journal, or aren't, or wouldn't be, all kept."""


class EffectInDoubt(ClientError):
    """The effect was begun before, and nobody said that it was done: find out, then say with `in_doubt=` what to do.

    `idempotency_key` is the one that it was begun with, by which the outside service can tell.
    """

    def __init__(self, step: str, idempotency_key: str) -> None:
        super().__init__(
            f"The effect {step!r} was begun before and may have been carried out: give in_doubt=, which settles that."
        )
        self.step = step
        self.idempotency_key = idempotency_key


class ApprovalDenied(ClientError):
    """A person said no; `note` tells why, `approval` is the id.

    `by` is the decider's token; without tokens what their client calls itself, which proves nothing. Raised out of a block,
    it fails the work for good: another attempt would only be told the same.
    """

    def __init__(self, approval: str, action: str, by: str | None, note: str | None) -> None:
        super().__init__(f"{action!r} was denied{f' by {by}' if by else ''}{f': {note}' if note else '.'}")
        self.approval = approval
        self.by = by
        self.note = note


class NotAnApprover(ClientError):
    """The token that was to bring in persons' decisions can't: it is the one that asks for them, or has no such role."""


class CapabilityDenied(ClientError):
    """The handoff's intent doesn't grant this resource: it mustn't be touched."""

    def __init__(self, domain: str, resource: str) -> None:
        super().__init__(f"This handoff may not touch {resource!r} in {domain!r}: its intent doesn't grant it.")
        self.domain = domain
        self.resource = resource


class Suspended(ClientError):
    """The work was put aside until a person has decided. It ends the block around the work, which lets it go no further."""

    def __init__(self, handoff: str, approval: str) -> None:
        super().__init__("The work was put aside until its approval is decided, and comes back by itself.")
        self.handoff = handoff
        self.approval = approval
