"""What a thread's entries add up to.

Owns the fold, and finding in it what LangGraph asks for. Pure, and ignorant of what the values say.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from .entries import Entry, Put, Value, Writes


class PendingWrite(NamedTuple):
    """In the order in which LangGraph applies those of one step."""

    path: str
    task: str
    number: int
    channel: str
    value: Value


class Thread:
    """One thread: `add` its entries in order, which is that of time.

    That of the checkpoints' ids need not be: they begin with the time, by the clock of the machine that made each.
    """

    def __init__(self) -> None:
        self._puts: dict[str, dict[str, Put]] = {}
        self._values: dict[tuple[str, str, str | int | float], Value | None] = {}
        self._writes: dict[tuple[str, str], dict[tuple[str, int], PendingWrite]] = {}

    def add(self, entry: Entry) -> None:
        """Takes in the next entry."""
        if isinstance(entry, Put):
            for each in entry.changed:
                self._values[entry.namespace, each.channel, each.version] = each.value
            puts = self._puts.setdefault(entry.namespace, {})
            puts.pop(entry.id, None)
            puts[entry.id] = entry
        else:
            self._add_writes(entry)

    def _add_writes(self, entry: Writes) -> None:
        known = self._writes.setdefault((entry.namespace, entry.id), {})
        for write in entry.writes:
            pending = PendingWrite(entry.path, entry.task, write.number, write.channel, write.value)
            if write.number < 0:  # An error, an interrupt, a resumption: the newest counts.
                known[entry.task, write.number] = pending
            else:  # A task that ran twice has written the same twice.
                known.setdefault((entry.task, write.number), pending)

    def find(self, namespace: str, id: str | None) -> Put | None:
        """The checkpoint `id`, or the newest one."""
        puts = self._puts.get(namespace, {})
        return puts.get(id) if id else next(reversed(puts.values()), None)

    def newest_first(self, namespace: str | None, before: str | None = None) -> Iterator[Put]:
        """The checkpoints of one namespace, or (None) of one namespace after the other; only those before the one with the id `before`."""
        for name in list(self._puts) if namespace is None else [namespace]:
            puts = self._puts.get(name, {})
            if before is None:
                yield from reversed(puts.values())
            elif before in puts:
                older = itertools.dropwhile(lambda put: put.id != before, reversed(puts.values()))
                yield from itertools.islice(older, 1, None)
            else:  # It's elsewhere: clocks alone can tell.
                yield from (put for put in reversed(puts.values()) if put.id < before)

    def value(self, namespace: str, channel: str, version: str | int | float) -> Value | None:
        """A channel's value at a version; None: it was empty, or never saved."""
        return self._values.get((namespace, channel, version))

    def pending_writes(self, put: Put) -> list[PendingWrite]:
        """What was written after that checkpoint, in the order in which a run applies it."""
        return sorted(self._writes.get((put.namespace, put.id), {}).values(), key=lambda write: write[:3])
