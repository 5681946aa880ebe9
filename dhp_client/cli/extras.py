"""What a command needs besides the base installation.

Owns saying which extra to install. Nothing of it is imported for that.
"""

import importlib.util

import click

from .settings import USAGE

MODULES = {
    "a2a": ("a2a", "starlette", "sse_starlette", "uvicorn"),
    "mcp": ("mcp", "uvicorn"),
    "rich": ("rich",),
}
"""By extra: the modules that come with it."""


class NotInstalled(click.ClickException):
    """The command's extra isn't there."""

    exit_code = USAGE


def check_extra(name: str) -> None:
    """Raises `NotInstalled` where a module of that extra is missing."""
    if any(importlib.util.find_spec(module) is None for module in MODULES[name]):
        raise NotInstalled(f"This command needs the extra {name}: pip install 'dhpd[{name}]'")
