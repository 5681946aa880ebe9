"""How much memory the daemon takes, and how much at most.

Owns the sum that a machine is sized by (docs/operating.md): what the settings allow, and what was measured of the parts that
have no setting. The helper processes for schemas have bounds of their own and aren't in it.
"""

import os
from pathlib import Path

from dhpd.config import Config

from .answers import PAGES_AT_ONCE, SMALL_AT_ONCE
from .importing import WHOLE_AT_ONCE
from .room import FREE_BYTES

MIB = 1024 * 1024
BASE_BYTES = 64 * MIB
"""The interpreter, the program, SQLite's caches, and the newest records that watchers are shown from memory."""
CONNECTION_BYTES = 8 * 1024 + 2 * FREE_BYTES
"""Of which some 5 KiB are always there."""
TLS_BYTES = 96 * 1024
"""Of a connection that speaks it, beside those; some 17 KiB are always there, and the rest once much has come and gone."""
PLACE_BYTES = 1024
"""Of a request that waits, or of each kind of a claim that does."""
HANDOFF_BYTES = 2560
"""Of a live one: some 1.3 KiB of facts and places in the indexes, and as much again of a lease with a nonce. Its payloads are on disk;
labels, effects, approvals and the nonces of its spending come on top, as long as they are."""


def bound_bytes(config: Config, live_handoffs: int) -> int:
    """The most that the process takes with so many live handoffs, whatever its peers do."""
    in_the_making = (PAGES_AT_ONCE + SMALL_AT_ONCE) * max(config.max_state_bytes, config.max_result_bytes, MIB)
    connection_bytes = CONNECTION_BYTES + (0 if config.tls_cert is None else TLS_BYTES)
    held = config.max_buffered_bytes + config.max_queued_bytes + in_the_making
    return (
        BASE_BYTES
        + config.max_connections * connection_bytes
        + 2 * held  # Each is there twice for a moment: as it came and taken apart, or as it was read and as it leaves.
        + config.max_unsent_bytes_in_all
        + config.max_waiting_in_all * PLACE_BYTES
        + 2 * WHOLE_AT_ONCE * config.max_bundle_bytes
        + live_handoffs * HANDOFF_BYTES
    )


def taken_bytes() -> int:
    """What the process takes at this moment; 0 where the system doesn't tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
