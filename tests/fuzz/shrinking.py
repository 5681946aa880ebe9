"""A failing input, made smaller for as long as it fails in the same way."""

from collections.abc import Callable

MOST_TRIES = 3_000


def shrunk(data: bytes, fails: Callable[[bytes], bool], most_tries: int = MOST_TRIES) -> bytes:
    """A part of `data`, some of its bytes made plain, for which `fails` still holds."""
    tries = 0

    def still(smaller: bytes) -> bool:
        nonlocal tries
        tries += 1
        return tries <= most_tries and fails(smaller)

    size = len(data) // 2 or 1
    while size and tries <= most_tries:
        at = 0
        while at < len(data):
            smaller = data[:at] + data[at + size :]
            if still(smaller):
                data = smaller
            else:
                at += size
        size //= 2
    for at, byte in enumerate(data):
        for plain in b"a0":
            if byte != plain and still(data[:at] + bytes((plain,)) + data[at + 1 :]):
                data = data[:at] + bytes((plain,)) + data[at + 1 :]
                break
    return data
