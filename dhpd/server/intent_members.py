"""What preparing a request needs of an intent, read from its canonical bytes without looking at the rest."""

import msgspec
from msgspec import Raw, Struct


class _Members(Struct):
    output_schema: Raw = Raw(b"null")
    capabilities: Raw = Raw(b"{}")


_members_of = msgspec.json.Decoder(_Members).decode


def output_schema_of(intent: bytes) -> bytes:
    """The output schema; of use only where there is one."""
    return bytes(_members_of(intent).output_schema)


def capabilities_in(intent: bytes) -> Raw:
    """The capabilities."""
    return _members_of(intent).capabilities
