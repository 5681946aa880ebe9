"""What is written of a thread: the entries of its journal.

Owns their form in JSON: Structs of plain data, with what LangGraph saves as the typed bytes that its serialiser makes
(base64). A checkpoint has only the channels that changed, as LangGraph says; the others are in earlier entries.
"""

import msgspec


class Value(msgspec.Struct, frozen=True, array_like=True):
    """What a serialiser made of one value, and the name by which it knows that form."""

    type: str
    data: bytes


class ChannelValue(msgspec.Struct, frozen=True, array_like=True):
    """A channel at one version; without a value it is empty."""

    channel: str
    version: str | int | float
    value: Value | None


class Write(msgspec.Struct, frozen=True, array_like=True):
    """What a node's task has written to one channel. `number` tells it from the task's others; see `WRITES_IDX_MAP`."""

    channel: str
    number: int
    value: Value


class Put(msgspec.Struct, frozen=True, tag_field="langgraph", tag="put"):
    """One checkpoint of the graph, without its channels' values but for those of `changed`; `parent` is the id of the one before."""

    namespace: str
    id: str
    parent: str | None
    checkpoint: Value
    metadata: Value
    changed: list[ChannelValue]


class Writes(msgspec.Struct, frozen=True, tag_field="langgraph", tag="writes"):
    """What one task has written after the checkpoint `id`, before the next one."""

    namespace: str
    id: str
    task: str
    path: str
    writes: list[Write]


Entry = Put | Writes
