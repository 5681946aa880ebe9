"""The error registry: one class, one wire code.

Owns the codes, whether a retry can help, and the shape of an error in a reply. The daemon raises these classes and the
client raises the same ones again. Does not own exceptions that never cross the wire (a closed client, a lost socket).
"""

from typing import Any, ClassVar, Literal

import msgspec

Retry = Literal["no", "now", "later"]


class DHPError(Exception):
    """What the daemon answers instead of a result: a code for programs, one plain sentence for people.

    `retry` tells whether the same request can succeed: "no", "now", or "later" (`after_ms` says when, if it is known).
    `details` holds the facts a program may act on; each subclass names its own.
    """

    code: ClassVar[str] = ""
    retry: Retry = "no"

    def __init__(self, message: str, *, after_ms: int | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.after_ms = after_ms
        self.details = details

    def __init_subclass__(cls, *, code: str, retry: Retry = "no") -> None:
        assert code not in ERROR_BY_CODE, f"wire code {code!r} is taken"
        cls.code, cls.retry, ERROR_BY_CODE[code] = code, retry, cls


ERROR_BY_CODE: dict[str, type[DHPError]] = {}


class BadFrame(DHPError, code="bad_frame"):
    """The bytes are no frame. Begin a line with its length, or with `{`."""


class BadJson(DHPError, code="bad_json"):
    """The frame's body isn't one JSON object in UTF-8, or is nested too deep."""


class FrameTooLarge(DHPError, code="frame_too_large"):
    """The frame is longer than `max_frame_bytes` (details: `limit`, `size` where it is known)."""


class InvalidRequest(DHPError, code="invalid_request"):
    """A member is unknown, missing, of the wrong type or out of its bounds (details: `member`)."""


class UnknownOp(DHPError, code="unknown_op"):
    """The daemon has no such operation (details: `op`)."""


class Unauthenticated(DHPError, code="unauthenticated"):
    """A token is required, and none or a wrong one was given."""


class Forbidden(DHPError, code="forbidden"):
    """The caller may not do this (details: `role`, the one that may)."""


class NotFound(DHPError, code="not_found"):
    """There is no such handoff or approval (details: `handoff`, or `approval`)."""


class IdentityMismatch(DHPError, code="identity_mismatch"):
    """The given handoff id isn't the hash of the given intent (details: `expected`)."""


class SchemaInvalid(DHPError, code="schema_invalid"):
    """The output schema can't be enforced as it stands (details: `path`, `rule`)."""


class ResultInvalid(DHPError, code="result_invalid"):
    """The result doesn't meet the handoff's output schema (details: `path` as JSON Pointer, `rule`, `left`: tries).

    Mend it and send it again while tries are left; at 0 the handoff is dead.
    """


class AlreadyClaimed(DHPError, code="already_claimed", retry="later"):
    """Somebody holds the handoff (details: `handoff`, `holder`)."""


class NotClaimable(DHPError, code="not_claimable", retry="later"):
    """The handoff is delayed, suspended or final (details: `status`); `after_ms` says when a delay ends."""


class WrongState(DHPError, code="wrong_state"):
    """The handoff's status doesn't allow this (details: `status`), or an approval's decision (`approval`, `decision`)."""


class LeaseLost(DHPError, code="lease_lost"):
    """The fence no longer holds the handoff: stop work, do not retry (details: `why`, `fence`, `status`)."""


class CheckpointConflict(DHPError, code="checkpoint_conflict"):
    """That seq is stored with another content, or the sent sha256 is wrong (details: `expected`, `got`)."""


class OutOfOrder(DHPError, code="out_of_order"):
    """The seq leaves a gap or was pruned (details: `expected`, `first_kept`)."""


class EffectConflict(DHPError, code="effect_conflict"):
    """The effect is done with another result, which stands (details: `step`, `expected`, `got`)."""


class BudgetExceeded(DHPError, code="budget_exceeded"):
    """The write would pass a cap (details: `cap`, `limit`, `used`, `asked`, `lacking`, `whose`). The handoff is parked as dead."""


class ApprovalExpired(DHPError, code="approval_expired"):
    """Nobody decided in time, which isn't a "no", or the work has ended (details: `approval`, `decision`)."""


class AlreadyDecided(DHPError, code="already_decided"):
    """The approval has another decision (details: `approval`, `decision`, `by`)."""


class TooLarge(DHPError, code="too_large"):
    """A payload is over its limit (details: `member`, `limit`, `size`)."""


class Overloaded(DHPError, code="overloaded", retry="later"):
    """The daemon holds as much as it may; try again after `after_ms`."""


class Draining(DHPError, code="draining", retry="later"):
    """The daemon takes no new claims and dispatches; held leases go on."""


class NotPrimary(DHPError, code="not_primary", retry="later"):
    """This daemon follows another one."""


class StoreUnavailable(DHPError, code="store_unavailable", retry="later"):
    """Whether this took effect isn't known: the disk failed. Send the same again: safe retries settle it."""


class Internal(DHPError, code="internal", retry="later"):
    """The daemon made a mistake; its log says more."""


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as it stands in a reply."""

    code: str
    message: str
    retry: Retry
    after_ms: int | None = None
    details: dict[str, Any] = {}


def error_body(error: DHPError) -> ErrorBody:
    """The wire form of `error`."""
    return ErrorBody(
        code=error.code, message=error.message, retry=error.retry, after_ms=error.after_ms, details=error.details
    )


def error_from_body(body: ErrorBody) -> DHPError:
    """The exception that `body` stands for; a code this version doesn't know becomes `Internal`, its code kept in the message."""
    known = ERROR_BY_CODE.get(body.code)
    if known is None:
        error: DHPError = Internal(f"{body.code}: {body.message}", after_ms=body.after_ms)
    else:
        error = known(body.message, after_ms=body.after_ms)
    error.details = body.details
    error.retry = body.retry
    return error
