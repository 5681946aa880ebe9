"""What a holder says that it does: what is new, and what goes round in circles.

Owns the count of repeats under one fence. An activity said before is no news however long the circle is, A B A B as little as A A;
but where something new comes in between, work moves on (edit, test, edit, test), and the count of repeats begins anew.
Pure; lives with the lease, so a restart of the daemon begins anew too.
"""

import hashlib

MAX_KNOWN = 64
"""Circles up to this long are seen."""


class Activities:
    __slots__ = ("_repeats", "said_at_ms")

    def __init__(self) -> None:
        self._repeats: dict[bytes, int] = {}  # By a digest of a bounded size, the one said last at the end.
        self.said_at_ms = 0

    @property
    def repeats(self) -> int | None:
        """What `say` gave last; None: nothing was said yet."""
        return next(reversed(self._repeats.values()), None)

    def say(self, digest: str, now_ms: int) -> int:
        """How often `digest` was said again since there was anything new; 0: it is new itself."""
        self.said_at_ms = now_ms
        key = hashlib.blake2b(digest.encode(), digest_size=16).digest()
        said = self._repeats.pop(key, None)
        if said is not None:
            self._repeats[key] = said + 1
            return said + 1
        self._repeats = dict.fromkeys(self._repeats, 0)
        if len(self._repeats) == MAX_KNOWN:
            del self._repeats[next(iter(self._repeats))]
        self._repeats[key] = 0
        return 0
