"""Inputs that once showed a fault: each is checked in every run. `make fuzz` prints new ones in this form."""

from tests.protocol.vectors import load

_BUNDLE = next(case["lines"] for case in load("bundles") if case["name"] == "completed work")
_ENVELOPE = _BUNDLE[0].encode()
_CHAIN = b"0" * 64

REGRESSIONS: tuple[tuple[str, bytes], ...] = (
    # Bytes of a lone surrogate in a record, which from a file nobody had looked at before.
    ("bundles", b'%b\n{"record":{"a":"\xed\xa0\x80","\xc3\xa9":0},"chain":"%b"}' % (_ENVELOPE, _CHAIN)),
)
"""The target's name, and the input."""
