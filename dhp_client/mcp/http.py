"""Serving many agents over streamable HTTP: the application, at `/mcp`.

Owns the SDK's own checks of `Host` and `Origin`, beside those of whatever serves it. Sockets and tokens are `cli.http_serving`'s.
"""

from collections.abc import Collection

from mcp.server.transport_security import TransportSecuritySettings

from ..http_guard import MAX_BODY_BYTES, Application
from .server import Server

PATH = "/mcp"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def application(server: Server, *, hosts: Collection[str] | None) -> Application:
    """`hosts`: what callers may call this machine by, besides the names of loopback (None: anything, since they show a token)."""
    names = [] if hosts is None else [*LOOPBACK, *(f"[{host}]" if ":" in host else host for host in hosts)]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=hosts is not None,
        allowed_hosts=[form for name in names for form in (name, f"{name}:*")],
        allowed_origins=[
            f"{scheme}://{name}{port}" for scheme in ("http", "https") for name in names for port in ("", ":*")
        ],
    )
    return server.streamable_http_app(
        streamable_http_path=PATH, max_request_body_size=MAX_BODY_BYTES, transport_security=security
    )
