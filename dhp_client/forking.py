"""What becomes of a client in a forked child: it holds nothing there.

Owns the hook. A child must not write on its parent's connections, nor keep them open when the parent dies; and it must
not unregister them from an epoll that it shares. So descriptors are replaced, raw, without a word to the event loop.
"""

import os
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """Something that must let go of what it inherited."""

    def after_fork_in_child(self) -> None:
        """Runs in the child, where only the forking thread goes on; takes no lock."""


_aware: "weakref.WeakSet[ForkAware]" = weakref.WeakSet()


def on_fork_in_child(holder: ForkAware) -> None:
    """Has `holder.after_fork_in_child` called in every child that is forked while `holder` lives."""
    _aware.add(holder)


def close_raw(descriptor: int) -> None:
    """Closes what `descriptor` stands for in this process, but keeps its number taken.

    The objects that own the number will close it again some day; then it mustn't be somebody else's by now.
    """
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), descriptor, inheritable=False)


def _let_go() -> None:
    for holder in list(_aware):
        holder.after_fork_in_child()


if hasattr(os, "register_at_fork"):  # Not on Windows, which doesn't fork.
    os.register_at_fork(after_in_child=_let_go)
