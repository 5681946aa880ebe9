"""How long a payload may be: one bound and one sentence for each.

Owns what is said of one that is too long. Pure.
"""

from dhp_protocol.errors import TooLarge
from dhp_protocol.limits import Limits
from dhp_protocol.messages import ApprovalRequest, Checkpoint, Complete, Dispatch, EffectDone, Request, intent_bytes


def check_intent(size_bytes: int, limits: Limits) -> None:
    """Raises `TooLarge`; an intent is all that names a handoff."""
    hint = "put large inputs elsewhere and name them."
    _check(size_bytes, limits.max_intent_bytes, "inputs", f"An intent may have {limits.max_intent_bytes} bytes: {hint}")


def check_state(size_bytes: int, limits: Limits) -> None:
    """Raises `TooLarge`; a state is what a checkpoint keeps."""
    hint = "keep large data elsewhere and name it."
    _check(size_bytes, limits.max_state_bytes, "state", f"A state may have {limits.max_state_bytes} bytes: {hint}")


def check_result(size_bytes: int, limits: Limits) -> None:
    """Raises `TooLarge`; a result is a handoff's, or an effect's."""
    hint = "keep large data elsewhere and name it."
    _check(size_bytes, limits.max_result_bytes, "result", f"A result may have {limits.max_result_bytes} bytes: {hint}")


def check_details(size_bytes: int, limits: Limits) -> None:
    """Raises `TooLarge`; details are what a person is asked about."""
    hint = "keep large data elsewhere and name it."
    _check(
        size_bytes, limits.max_details_bytes, "details", f"Details may have {limits.max_details_bytes} bytes: {hint}"
    )


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


def _check(size_bytes: int, limit: int, member: str, sentence: str) -> None:
    if size_bytes > limit:
        raise TooLarge(sentence, member=member, limit=limit, size=size_bytes)
