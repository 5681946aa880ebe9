"""How many files the process may have open: each connection is one.

Owns that it may have as many as it is set up to, or else is set up for what it may have. Without that a peer too many
would be left waiting, rather than told.
"""

import logging
import resource

from msgspec.structs import replace

from dhpd.config import Config

RESERVED_FILES = 64
"""The store's, the listeners', the loop's; and a few peers who are about to be told that there is no room."""

_log = logging.getLogger(__name__)


def fitted_to_open_files(config: Config) -> Config:
    """Raises the process's soft limit as far as the settings want it; gives them with as many connections as it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = config.max_connections + RESERVED_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return config
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    except (OSError, ValueError):  # Some systems have a lower bound than the one they tell.
        raised = soft
    allowed = max(1, raised - RESERVED_FILES)
    if allowed >= config.max_connections:
        return config
    _log.warning(
        "only %d of max_connections = %d: this process may have %d files open (ulimit -n)",
        allowed,
        config.max_connections,
        raised,
    )
    return replace(config, max_connections=allowed)
