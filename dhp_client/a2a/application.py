"""The ASGI application: the agent card and the JSON-RPC endpoint, for A2A 1.0 and 0.3.

Owns the routes. Serving them is `cli.http_serving`'s.
"""

from a2a.server.context import ServerCallContext
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.types import AgentCard
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request

from .bounds import BoundedRequests
from .bridge import Bridge
from .handler import RECEIVE, HandoffRequestHandler

OPEN_PATHS = (AGENT_CARD_WELL_KNOWN_PATH,)
"""A caller learns from the card that a token is wanted, so the card asks for none."""
PING_EVERY_S = 3
"""A stream on which nothing happens: many HTTP clients, the SDK's own by default, give up after five seconds of silence."""


class _CallContextBuilder(DefaultServerCallContextBuilder):
    """Also hands on what tells that the caller has gone."""

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state[RECEIVE] = request.receive
        return context


def application(bridge: Bridge, card: AgentCard) -> Starlette:
    """The server of `bridge`'s tasks, which says of itself what `card` does."""
    EventSourceResponse.DEFAULT_PING_INTERVAL = PING_EVERY_S  # The SDK passes none on. The process serves nothing else.
    endpoint = create_jsonrpc_routes(
        HandoffRequestHandler(bridge), "/", context_builder=_CallContextBuilder(), enable_v0_3_compat=True
    )
    routes = [*create_agent_card_routes(card), *endpoint]
    return Starlette(routes=routes, middleware=[Middleware(BoundedRequests)])
