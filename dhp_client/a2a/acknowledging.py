"""Taking note of how tasks have ended: A2A has no word for it, and what nobody takes note of is kept for ever.

Owns when: once a caller was shown the end of a task that was sent here. Work that others dispatched is theirs to acknowledge.
"""

import contextlib

import dhp_client

from .bridge import Bridge
from .states import FINAL, OF_STATUS
from .tasks import CONTEXT_LABEL


async def take_note(bridge: Bridge, task: str) -> None:
    """Acknowledges the handoff, if it has ended and was sent here. What goes wrong then is left for the next who looks."""
    with contextlib.suppress(dhp_client.DHPError, dhp_client.ClientError):
        status = await bridge.client.status(task)
        if OF_STATUS[status.status] in FINAL and CONTEXT_LABEL in status.labels and not status.acked:
            await bridge.client.ack(task)
