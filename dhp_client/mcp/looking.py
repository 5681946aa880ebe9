"""The tools that only look: status, list, last_checkpoint, health; and a handoff as a resource."""

from typing import Annotated

from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from pydantic import Field

from dhp_protocol.errors import DHPError, NotFound

from ..exceptions import ClientError
from ..payload import encode
from .answers import Health, LastCheckpoint, Status, StatusPage, health_of, status_of, stored_of
from .arguments import After, Handoff, Limit
from .bridge import Call, client_of
from .refusals import told


async def status(call: Call, handoff: Handoff) -> Status:
    """How a handoff stands: who holds it, how far it is, what it has used up, and why it isn't going on."""
    return status_of(await (await client_of(call)).status(handoff))


async def list_handoffs(
    call: Call,
    status: Annotated[
        str | None, Field(description="pending, running, suspended, orphaned, completed, cancelled or dead.")
    ] = None,
    kind: str | None = None,
    label: Annotated[str | None, Field(description="name=value")] = None,
    worker: Annotated[str | None, Field(description="Who holds it.")] = None,
    after: After = 0,
    limit: Limit = 20,
) -> StatusPage:
    """A page of handoffs, in the order of dispatch."""
    client = await client_of(call)
    page = await client.list(status=status, kind=kind, label=label, worker=worker, after=after, limit=limit)
    return StatusPage(handoffs=[status_of(one) for one in page.handoffs], next=page.next)


async def last_checkpoint(call: Call, handoff: Handoff) -> LastCheckpoint:
    """The newest checkpoint of a handoff, with its state; anybody may look. To go on from it, claim or recover."""
    found = await (await client_of(call)).last_checkpoint(handoff)
    return LastCheckpoint(handoff=handoff, checkpoint=None if found is None else stored_of(found))


async def health(call: Call) -> Health:
    """Whether the daemon and its store are well."""
    return health_of(await (await client_of(call)).health())


async def handoff_resource(call: Call, id: str) -> str:
    """How a handoff stands, and its last checkpoint, as JSON."""
    try:
        client = await client_of(call)
        found, stored = await client.status(id), await client.last_checkpoint(id)
    except NotFound as error:
        raise ResourceNotFoundError(told(error)) from None
    except (DHPError, ClientError) as error:
        raise ResourceError(told(error)) from None
    shown = {
        "status": status_of(found).model_dump(),
        "checkpoint": None if stored is None else stored_of(stored).model_dump(),
    }
    return encode(shown, member="handoff").decode()
