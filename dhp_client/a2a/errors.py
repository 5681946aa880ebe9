"""Refusals, as A2A says them.

Owns the table, and that nothing of this program's own mistakes goes out.
"""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from a2a.types import InternalError, InvalidParamsError, TaskNotFoundError, UnsupportedOperationError
from a2a.utils.errors import A2AError

import dhp_client

log = logging.getLogger("dhp_client")

OF_DHP: dict[type[Exception], type[A2AError]] = {
    dhp_client.NotFound: TaskNotFoundError,
    dhp_client.InvalidRequest: InvalidParamsError,
    dhp_client.SchemaInvalid: InvalidParamsError,
    dhp_client.TooLarge: InvalidParamsError,
    dhp_client.FrameTooLarge: InvalidParamsError,
    dhp_client.WrongState: UnsupportedOperationError,
    dhp_client.AlreadyDecided: UnsupportedOperationError,
    dhp_client.ApprovalExpired: UnsupportedOperationError,
}
"""What isn't named here is the server's own trouble, and an internal error: the message says what it is, `data` whether to ask again."""


def a2a_error(error: dhp_client.DHPError | dhp_client.ClientError) -> A2AError:
    """A refusal of the daemon's or the client's, in A2A's words."""
    found = next((its for ours, its in OF_DHP.items() if isinstance(error, ours)), InternalError)
    if isinstance(error, dhp_client.DHPError):
        data: dict[str, Any] = {"code": error.code, "retry": error.retry}
        if error.after_ms is not None:
            data["after_ms"] = error.after_ms
    else:
        away = isinstance(error, dhp_client.NotConnected | dhp_client.ConnectionLost)
        data = {"code": "not_connected" if away else "internal", "retry": "later" if away else "no"}
        if away:
            return InternalError("The daemon can't be reached: ask again.", data)
    return found(str(error), data)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Raises what comes out of its body as A2A's errors; a mistake of our own is noted down, and told without detail."""
    try:
        yield
    except A2AError:
        raise
    except (dhp_client.DHPError, dhp_client.ClientError) as error:
        raise a2a_error(error) from error
    except Exception as error:
        log.exception("A request over A2A failed")
        raise InternalError("This server has failed; its log tells more.") from error
