"""The listening sockets that a service manager opened before this process was there, and keeps open when it ends.

Owns taking them over: nobody else gets them. Does not own what is served on them (`dhpd.server.listeners`).
"""

import os
import socket
from collections.abc import MutableMapping

from dhpd.config import ConfigError

FIRST = 3


def handed_sockets(environment: MutableMapping[str, str]) -> list[tuple[str, socket.socket]]:
    """Each with the name that the manager gave it; raises `ConfigError` for what can't be listened on.

    The variables are taken out of `environment`, and children don't inherit the descriptors.
    """
    for_whom, count, names = (environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    if for_whom != str(os.getpid()) or not count.isdecimal():
        return []
    descriptors = range(FIRST, FIRST + int(count))
    named = names.split(":") if names else []
    return [_taken(descriptor, named[n] if n < len(named) else "unknown") for n, descriptor in enumerate(descriptors)]


def _taken(descriptor: int, name: str) -> tuple[str, socket.socket]:
    try:
        os.set_inheritable(descriptor, False)
        sock = socket.socket(fileno=descriptor)
    except OSError as error:
        raise ConfigError(
            f"Descriptor {descriptor} ({name}) was handed over, but is no socket: {error.strerror}."
        ) from None
    stream = sock.type == socket.SOCK_STREAM and sock.family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
    if not stream or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise ConfigError(
            f"Descriptor {descriptor} ({name}) was handed over, but nobody can connect to it: use ListenStream= and Accept=no."
        )
    sock.setblocking(False)
    return name, sock
