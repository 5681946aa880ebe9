"""What a caller gives, looked at before it is sent.

Owns the mistakes whose refusal by the daemon would speak of the wire and not of the call: another type than the one
asked for, and a kind where an id is wanted. Bounds are the daemon's to check.
"""

import re
from collections.abc import Mapping
from typing import Any

from dhp_protocol.errors import InvalidRequest
from dhp_protocol.intent import HANDOFF_PATTERN

MAX_SHOWN_CHARS = 80

_HANDOFF = re.compile(HANDOFF_PATTERN)


def check_text(**given: Any) -> None:
    """Raises TypeError, naming the parameter, for anything but str."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a str, not {_shown(value)}.")


def check_whole(**given: Any) -> None:
    """Raises TypeError, naming the parameter, for anything but int."""
    for name, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool):
            unit = " of milliseconds" if name.endswith("_ms") else ""
            raise TypeError(f"{name} must be an int{unit}, not {_shown(value)}.")


def check_labels(labels: Mapping[Any, Any]) -> None:
    """Raises TypeError unless names and texts are str."""
    for name, text in labels.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(f"labels must be str for str, not {_shown(text)} for {_shown(name)}.")


def check_id(handoff: Any, *, member: str = "handoff", hint: str = "") -> None:
    """Raises TypeError for anything but str, and `InvalidRequest` for text that is no handoff id."""
    check_text(**{member: handoff})
    if not _HANDOFF.match(handoff):
        sentence = f"{_shown(handoff)} is no handoff id, which has 64 hex digits{hint}."
        raise InvalidRequest(sentence, member=member)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"
