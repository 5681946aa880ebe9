"""Commands by name that are imported only when they are called, or shown.

Owns the way from a line of a group's table to the command. Does not know any command.
"""

import importlib
from collections.abc import Iterator, Mapping, MutableMapping

import click


class LazyCommands(MutableMapping[str, click.Command]):
    """What a `click.Group` takes as its `commands`, made of a table: each one's name, and where it is, as `module:attribute`.

    A group's help imports all of them, for the first line of each: what is dear to import, and one command's own need,
    belongs inside of its function.
    """

    def __init__(self, table: Mapping[str, str]) -> None:
        self._table: dict[str, str | click.Command] = dict(table)

    def __getitem__(self, name: str) -> click.Command:
        found = self._table[name]
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            self._table[name] = found = getattr(importlib.import_module(module), attribute)
        assert isinstance(found, click.Command), f"{found} is no command"
        return found

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._table[name] = command

    def __delitem__(self, name: str) -> None:
        del self._table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)
