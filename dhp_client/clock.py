"""The only place in the client that reads a clock.

Leases run on the monotonic clock; what is pure takes the time as an argument.
"""

import time


def monotonic_ms() -> float:
    """Milliseconds on the monotonic clock."""
    return time.monotonic() * 1000
