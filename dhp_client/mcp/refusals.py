"""What went wrong, as an agent is told: a code to go by, one sentence, the facts, and what to do next. Pure.

Owns that text. The codes are the protocol's (`dhp_protocol.errors`), and for what the client itself raises the names of its
exceptions (`dhp_client.exceptions`) in the same form.
"""

import re

from pydantic import ValidationError

from dhp_protocol.errors import DHPError

from ..exceptions import ClientError
from ..payload import encode

MAX_DETAILS_CHARS = 2_000

_STOP = "Stop this work now and write nothing more for it: somebody else may be at it. Claim other work, or recover this one."

_NEXT = {
    "already_claimed": "If it was you who claimed it, recover gives it back. Else claim with wait_ms, or claim other work.",
    "approval_expired": "It isn't a no: ask again with approval_request if it is still wanted.",
    "already_decided": "Call approval_wait: it tells the decision.",
    "bad_address": "Tell the person who runs this server: its --connect names no place where a daemon can be.",
    "budget_exceeded": "The work is dead with all that it has. Tell the person: `dhp redrive` with more budget brings it back.",
    "checkpoint_conflict": "Call status: somebody else writes to this work, or the same call was made twice.",
    "daemon_not_started": "Tell the person: no daemon could be started there; the sentence tells why.",
    "draining": "The daemon takes no new work: try again later, and finish what you hold.",
    "effect_conflict": "Another result is on record and stands: effect_begin tells it.",
    "forbidden": "This server's token may not do that, and asking again doesn't help. Tell the person.",
    "in_doubt": "Whether it counts isn't known. Call heartbeat, then the same again.",
    "invalid_request": "Mend the arguments as the sentence says, and call again.",
    "lease_lost": _STOP,
    "not_claimable": "Call status: it is final, suspended, or not due yet.",
    "not_connected": "The daemon isn't reached. Try again in a while; if it stays so, tell the person.",
    "not_found": "Check the id: list shows those there are.",
    "result_invalid": "The work is still yours while `left` isn't 0: mend the result as path and rule say, and call complete again.",
    "schema_invalid": "Mend the output_schema as path and rule say, and dispatch again.",
    "task_ended": "There is nothing more to say about it: claim other work.",
    "too_large": "Send less: keep what is large elsewhere, and where it is in the state.",
    "unauthenticated": "This server has no good token: tell the person who runs it, who gives it one and starts it anew.",
    "unknown_handle": "Call recover without it: that shows what you hold and what can be had again. With the handoff's id it takes that one.",
    "untrusted": "Tell the person who runs this server.",
    "wrong_state": "Call status, and see whether it is still wanted.",
}
_NEXT_BY_RETRY = {
    "no": "The same call will be refused again: change it, or tell the person.",
    "now": "Call again.",
    "later": "Call again in a while.",
}


class UnknownHandle(ClientError):
    """This server's record has no such handle, or its work has ended."""


def told(error: Exception) -> str | None:
    """The text; None where it is a mistake of this program's own, which no agent can do anything about."""
    if isinstance(error, DHPError):
        after = "" if error.after_ms is None else f" It may do in {error.after_ms} ms."
        return _text(error.code, error.message, _next(error.code, error.retry) + after, error.details)
    if isinstance(error, ClientError):
        code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
        return _text(code, str(error), _next(code, "no"), {})
    if isinstance(error, ValidationError):  # Its own text is long, and repeats what was sent.
        wrong = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_input=False))
        return _text("invalid_request", f"{'; '.join(wrong)[:MAX_DETAILS_CHARS]}.", _NEXT["invalid_request"], {})
    if isinstance(error, TypeError | ValueError):
        return _text("invalid_request", str(error), _NEXT["invalid_request"], {})
    return None


def _next(code: str, retry: str) -> str:
    return _NEXT.get(code) or _NEXT_BY_RETRY[retry]


def _text(code: str, sentence: str, what_next: str, details: dict[str, object]) -> str:
    shown = {name: value for name, value in details.items() if value not in (None, "", [], {})}
    facts = f"\ndetails: {encode(shown, member='details').decode()[:MAX_DETAILS_CHARS]}" if shown else ""
    return f"{code}: {sentence}{facts}\nNext: {what_next}"
