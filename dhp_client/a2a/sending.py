"""A message that asks for work, as the dispatch that it is.

Owns which kind is meant, and what makes a message that is sent twice the same task. Pure.
"""

import hashlib
import json
from collections.abc import Sequence

from a2a.types import InvalidParamsError, Message, SendMessageRequest

from dhp_protocol.limits import MAX_KEY_CHARS

KIND_MEMBER = "kind"
"""In the metadata of a request, or of its message."""


def kind_meant(params: SendMessageRequest, kinds: Sequence[str]) -> str:
    """The kind that the metadata names, or the only one there is. Raises `InvalidParamsError`."""
    named = [
        metadata[KIND_MEMBER] for metadata in (params.metadata, params.message.metadata) if KIND_MEMBER in metadata
    ]
    kind = named[0] if named else kinds[0] if len(kinds) == 1 else None
    if kind not in kinds:
        wanted = f"There is no {kind!r} here" if isinstance(kind, str) else "It isn't said what is to be done"
        raise InvalidParamsError(f"{wanted}: name a skill in metadata.{KIND_MEMBER}, one of {', '.join(kinds)}.")
    return str(kind)


def key_of(message: Message) -> str:
    """The intent's key: the same message in the same context is the same task, however often it is sent. Raises `InvalidParamsError`."""
    key = json.dumps(["a2a", message.context_id, message.message_id], ensure_ascii=False, separators=(",", ":"))
    if len(key) > MAX_KEY_CHARS:
        around = len(key) - len(message.context_id) - len(message.message_id)
        raise InvalidParamsError(
            f"contextId and messageId may have {MAX_KEY_CHARS - around} characters together: choose shorter ones."
        )
    return key


def context_meant(message: Message) -> str:
    """The context that the message names; of one that names none, one that is the same whenever it is sent again."""
    return message.context_id or f"context-{hashlib.sha256(key_of(message).encode()).hexdigest()[:32]}"
