"""From what LangGraph saves to what is written of it, and back.

Owns the serialiser and which types it may make of what is stored: none but the known harmless ones and those that were allowed.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from ..exceptions import ClientError
from .entries import ChannelValue, Put, Value, Write, Writes
from .thread import Thread

AllowedModules = Iterable[tuple[str, ...] | type]


class TypeNotAllowed(ClientError, TypeError):
    """The graph's state holds a type that may not be made of stored data, since nobody has allowed it."""

    def __init__(self, where: str, types: Sequence[tuple[str, str]]) -> None:
        names = ", ".join(".".join(each) for each in types)
        super().__init__(
            f"{where} holds {names}, which a standby could not restore: "
            f"allow it, DHPSaver(..., allowed_msgpack_modules={list(types)!r})."
        )


_blocked: "ContextVar[list[tuple[str, str]] | None]" = ContextVar("blocked", default=None)
"""What the serialiser refuses to make, while somebody wants to know."""


def _note(event: SerdeEvent) -> None:
    blocked = _blocked.get()
    if blocked is not None and event["kind"] == "msgpack_blocked":
        blocked.append((event["module"], event["name"]))


register_serde_event_listener(_note)


def safe_serializer(allowed: AllowedModules | None) -> JsonPlusSerializer:
    """LangGraph's own, as strict as with `LANGGRAPH_STRICT_MSGPACK=true`, whatever the environment says."""
    return JsonPlusSerializer(allowed_msgpack_modules=allowed)


@contextlib.contextmanager
def _refusing(where: str) -> Iterator[None]:
    """LangGraph's serialiser gives a bare dict for what it may not make. A node would then get that, so this raises instead."""
    blocked: list[tuple[str, str]] = []
    token = _blocked.set(blocked)
    try:
        yield
    finally:
        _blocked.reset(token)
    if blocked:
        raise TypeNotAllowed(where, list(dict.fromkeys(blocked)))


def save(serde: SerializerProtocol, value: Any, where: str) -> Value:
    """`value` as it is written. Raises `TypeNotAllowed` now rather than to a standby that reads it.

    What the serialiser can't write at all raises TypeError.
    """
    try:
        made = Value(*serde.dumps_typed(value))
    except TypeError as error:
        raise TypeError(f"{where} can't be saved: {error}.") from error
    with _refusing(where):
        serde.loads_typed((made.type, made.data))
    return made


def load(serde: SerializerProtocol, value: Value, where: str) -> Any:
    """What was saved. Raises `TypeNotAllowed`."""
    with _refusing(where):
        return serde.loads_typed((value.type, value.data))


def put_entry(
    serde: SerializerProtocol,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> Put:
    """The entry for one checkpoint; `config` tells the namespace and the one before."""
    configurable = config["configurable"]
    bare = cast(dict[str, Any], checkpoint.copy())
    values: dict[str, Any] = bare.pop("channel_values")
    return Put(
        namespace=configurable.get("checkpoint_ns", ""),
        id=checkpoint["id"],
        parent=configurable.get("checkpoint_id"),
        checkpoint=save(serde, bare, "The checkpoint"),
        metadata=save(serde, get_checkpoint_metadata(config, metadata), "The metadata"),
        changed=[
            ChannelValue(name, version, save(serde, values[name], f"Channel {name!r}") if name in values else None)
            for name, version in new_versions.items()
        ],
    )


def writes_entry(
    serde: SerializerProtocol, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str
) -> Writes:
    """The entry for what one task has written."""
    configurable = config["configurable"]
    return Writes(
        namespace=configurable.get("checkpoint_ns", ""),
        id=configurable["checkpoint_id"],
        task=task,
        path=path,
        writes=[
            Write(channel, WRITES_IDX_MAP.get(channel, number), save(serde, value, f"Channel {channel!r}"))
            for number, (channel, value) in enumerate(writes)
        ],
    )


def metadata_of(serde: SerializerProtocol, put: Put) -> CheckpointMetadata:
    """A checkpoint's metadata."""
    return cast(CheckpointMetadata, load(serde, put.metadata, "The metadata"))


def checkpoint_tuple(serde: SerializerProtocol, thread: Thread, thread_id: str, put: Put) -> CheckpointTuple:
    """A checkpoint as LangGraph takes it."""
    bare: dict[str, Any] = load(serde, put.checkpoint, "The checkpoint")
    found = {name: thread.value(put.namespace, name, version) for name, version in bare["channel_versions"].items()}
    values = {name: load(serde, value, f"Channel {name!r}") for name, value in found.items() if value is not None}
    return CheckpointTuple(
        config=config_of(thread_id, put.namespace, put.id),
        checkpoint=cast(Checkpoint, {**bare, "channel_values": values}),
        metadata=metadata_of(serde, put),
        parent_config=config_of(thread_id, put.namespace, put.parent) if put.parent else None,
        pending_writes=[
            (write.task, write.channel, load(serde, write.value, f"Channel {write.channel!r}"))
            for write in thread.pending_writes(put)
        ],
    )


def config_of(thread_id: str, namespace: str, id: str) -> RunnableConfig:
    """The config that names one checkpoint."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": id}}
