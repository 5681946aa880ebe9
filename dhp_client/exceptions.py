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


class BadReply(ClientError):
    """The daemon sent something that is no dhp/1 reply."""


class IntegrityError(ClientError):
    """An intent, a state or an answer doesn't have the hash that names it: it was changed on the way or at rest."""


class NothingToClaim(ClientError):
    """The wait ended without work. Raised where a block was to run with the task."""


class TaskEnded(ClientError):
    """The task was completed, failed or released already."""


class InDoubt(ClientError):
    """A write was given up while nobody answered: whether it took effect, and whether the lease lives, isn't known."""
