"""The only place in the client that reads a clock.

Leases run on the monotonic clock; what is pure takes the time as an argument. The wall clock is for people.
"""

import time
from datetime import UTC, datetime


def monotonic_ms() -> float:
    """Milliseconds on the monotonic clock."""
    return time.monotonic() * 1000


def wall_time() -> str:
    """Now, RFC 3339 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
