"""The rules of framing once more, written the slow way: one byte after the other, straight from SPEC.md's table.

Owns nothing but that: what the quick framer says is compared with it, whatever the bytes are and however they are cut.
"""

Told = tuple[object, ...]
"""A frame: its body and whether it is counted. A fault: its code, whether its answer is counted, whether it closes."""


def frames_in(stream: bytes, max_frame_bytes: int) -> list[Told]:
    """What SPEC.md says of a whole stream of bytes, its end included."""
    told: list[Told] = []
    counted = False
    at = 0
    while at < len(stream):
        first = stream[at]
        if first == 0x0A:
            at += 1
        elif stream[at : at + 2] == b"\r\n":
            at += 2
        elif first == 0x7B:
            end = stream.find(b"\n", at)
            body = stream[at:] if end < 0 else stream[at:end]
            if len(body.removesuffix(b"\r")) > max_frame_bytes:
                return [*told, ("frame_too_large", False, True)]
            if end < 0:
                return [*told, ("bad_frame", counted, True)]
            told.append((body.removesuffix(b"\r"), False))
            counted = False
            at = end + 1
        elif 0x30 <= first <= 0x39:
            at, one = _counted(stream, at, max_frame_bytes, told, counted)
            if one is not None:
                return [*told, one]
            counted = True
        elif stream[at:] == b"\r":
            return [*told, ("bad_frame", counted, True)]
        else:
            told.append(("bad_frame", counted, False))
            end = stream.find(b"\n", at)
            if end < 0:
                return told
            at = end + 1
    return told


def _counted(stream: bytes, at: int, limit: int, told: list[Told], counted: bool) -> tuple[int, Told | None]:
    """Where a counted frame at `at` ends, which is added to `told`; or what is told instead, and ends the stream."""
    length = b""
    while at < len(stream) and 0x30 <= stream[at] <= 0x39:
        length += stream[at : at + 1]
        at += 1
        if len(length) == 11:
            return at, ("bad_frame", counted, True)
    if at == len(stream):  # A leading zero is told as soon as it is known to be one.
        return at, ("bad_frame", counted, True)
    if stream[at] != 0x20 or (length[0] == 0x30 and len(length) > 1):
        return at, ("bad_frame", counted, True)
    size = int(length)
    end = at + 1 + size
    if size > limit:
        told.append(("frame_too_large", True, False))
        return end + 1, None if stream[end : end + 1] == b"\n" else ("bad_frame", True, True)
    if stream[end : end + 1] != b"\n":
        return end, ("bad_frame", counted, True)
    told.append((stream[at + 1 : end], True))
    return end + 1, None
