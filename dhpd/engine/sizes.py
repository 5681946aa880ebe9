"""How long a payload may be: one bound and one sentence for each.

Owns what is said of one that is too long. Pure.
"""

from dhp_protocol.errors import TooLarge
from dhp_protocol.limits import Limits
from dhp_protocol.messages import ApprovalRequest, Checkpoint, Complete, Dispatch, EffectDone, Request, intent_bytes

_KEEP_ELSEWHERE = "keep large data elsewhere and name it"


def check_intent(size_bytes: int, limits: Limits) -> None:
    """Raises `TooLarge`; an intent is all that names a handoff."""
    _check(size_bytes, limits.max_intent_bytes, "inputs", "An intent", "put large inputs elsewhere and name them")


def check_state(size_bytes: int, limits: Limits) -> None:
    """Raises `TooLarge`; a state is what a checkpoint keeps."""
    _check(size_bytes, limits.max_state_bytes, "state", "A state", _KEEP_ELSEWHERE)


def check_result(size_bytes: int, limits: Limits) -> None:
    """Raises `TooLarge`; a result is a handoff's, or an effect's."""
    _check(size_bytes, limits.max_result_bytes, "result", "A result", _KEEP_ELSEWHERE)


def check_details(size_bytes: int, limits: Limits) -> None:
    """Raises `TooLarge`; details are what a person is asked about."""
    _check(size_bytes, limits.max_details_bytes, "details", "Details", _KEEP_ELSEWHERE)


def check_payloads(request: Request, limits: Limits) -> None:
    """Raises `TooLarge` where a payload of this request is too long, whatever else there is to say of it."""
    match request:
        case Dispatch():
            check_intent(intent_bytes(request), limits)
        case Checkpoint():
            check_state(len(bytes(request.state)), limits)
        case Complete() | EffectDone():
            check_result(len(bytes(request.result)), limits)
        case ApprovalRequest():
            check_details(len(bytes(request.details)), limits)


def _check(size_bytes: int, limit: int, member: str, what: str, hint: str) -> None:
    if size_bytes > limit:
        sentence = f"{what} may have {limit} bytes: {hint}."
        raise TooLarge(sentence, member=member, limit=limit, size=size_bytes)
