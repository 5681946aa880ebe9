"""A reading of the clocks, as rules take it.

Owns nothing but the shape. `lease_ms` runs on the lease clock (monotonic, less the time that the daemon itself lost);
`wall_ms` is Unix time, for what must outlive a reboot. A decision takes one reading.
"""

from msgspec import Struct


class Now(Struct, frozen=True, gc=False):
    lease_ms: int
    wall_ms: int
