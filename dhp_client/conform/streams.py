"""Plays streams of bytes: what is sent, in pieces, and all that comes until the daemon ends the connection.

Owns sending while answers come (over TLS before they are read), and comparing with the `answers` of `frames.json`.
"""

import threading

from .judging import JSON, Unlike, shown
from .vectors import Case, spelled
from .wire import Line, Wire


def play_stream(case: Case, wire: Wire) -> None:
    """Plays one case of `frames.json`; `Unlike` where the answers are others than those that it names."""
    closes = any(event.get("closes") and "at_end" not in event for event in case["events"])
    left = said(wire, [spelled(chunk) for chunk in case["chunks"]], end_input=not closes)
    for answer in case["answers"]:
        found = next((line for line in left if _answers(answer, line)), None)
        if found is None:
            raise Unlike(f"an answer {shown(answer)}", shown([line.text for line in left]))
        left.remove(found)
    if left:
        raise Unlike("nothing more", shown([line.text for line in left]))


def said(wire: Wire, chunks: list[bytes], *, end_input: bool) -> list[Line]:
    """All that comes after these chunks. Where the daemon is to close by itself, the input isn't ended."""

    def send() -> None:
        try:
            for chunk in chunks:
                wire.send(chunk)
            if end_input:
                wire.end_input()
        except OSError:  # The daemon has closed: what it said before tells whether it should have.
            pass

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    if wire.encrypted:  # Python's TLS isn't for two threads at once: what is sent meanwhile may be lost without a word.
        sender.join()
    lines = []
    while (line := wire.receive()) is not None:
        lines.append(line)
    sender.join()
    return lines


def _answers(answer: dict[str, JSON], line: Line) -> bool:
    reply = answer["reply"]
    return line.counted == answer["counted"] and fits(reply, line.value) and ("id" in reply) == ("id" in line.value)


def fits(expected: JSON, came: JSON) -> bool:
    """Whether `came` has at least the members of `expected`."""
    if isinstance(expected, dict):
        return isinstance(came, dict) and all(name in came and fits(expected[name], came[name]) for name in expected)
    return type(expected) is type(came) and bool(expected == came)
