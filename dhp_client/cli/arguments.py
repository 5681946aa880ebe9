"""What a person types, as values: JSON, labels, ids.

Owns their reading and the usage errors; each function is a click callback. Does not know what a daemon makes of them.
"""

import difflib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dhp_client.budgets import CAPS
from dhp_protocol.errors import InvalidRequest
from dhp_protocol.intent import parse_exact

MIN_PREFIX_CHARS = 8
MIN_OWN_CHARS = 4
"""Of an approval's own part, so that its handoff's digits alone never name one."""


def json_text(ctx: click.Context, param: click.Parameter, value: str) -> Any:
    """JSON as it stands, from a file (`@FILE`), or from standard input (`-`)."""
    if value == "-":
        return _value(sys.stdin.buffer.read())
    if value.startswith("@"):
        return _value(_content(value[1:]))
    try:
        return _value(value.encode(errors="surrogateescape"))
    except click.BadParameter:
        if os.path.isfile(value):
            raise click.BadParameter(f"{value} is a file: write @{value} for what it holds.") from None
        raise


def json_object(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """As `json_text`, an object; None when none is given."""
    if value is None:
        return None
    found = json_text(ctx, param, value)
    if not isinstance(found, dict):
        raise click.BadParameter("That is no JSON object.")
    return found


def json_file(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """The JSON in a file; None when none is given."""
    return None if value is None else _value(_content(value))


def labels(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> dict[str, str]:
    """Labels, each as `name=value`."""
    for text in value:
        label(ctx, param, text)
    return {name: content for name, _, content in (text.partition("=") for text in value)}


def label(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """One label as it stands."""
    if value is not None and "=" not in value[1:]:
        raise click.BadParameter(f"{value!r} is no label: write name=value.")
    return value


def handoff_id(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An id, or at least its first 8 hex digits."""
    if value is None:
        return None
    if not re.fullmatch(rf"[0-9a-fA-F]{{{MIN_PREFIX_CHARS},64}}", value):
        raise click.BadParameter(
            f"{value!r} is no handoff's id: give its 64 hex digits, or at least the first {MIN_PREFIX_CHARS}."
        )
    return value.lower()


def approval_id(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """An approval's id: its handoff's, or at least 8 digits of that, a hyphen, and at least 4 digits of its own."""
    if not re.fullmatch(rf"[0-9a-f]{{{MIN_PREFIX_CHARS},64}}-[0-9a-f]{{{MIN_OWN_CHARS},16}}", value.lower()):
        raise click.BadParameter(
            f"{value!r} is no approval's id: give it whole, or at least {MIN_PREFIX_CHARS} digits before the hyphen and "
            f"{MIN_OWN_CHARS} behind it. `dhp approvals` shows them."
        )
    return value.lower()


def budget(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Caps as a JSON object; None when none is given."""
    found = json_object(ctx, param, value)
    for name in found or ():
        _check_cap(name)
    return found


def amounts(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> dict[str, Any]:
    """Amounts by cap, each as `cap=amount`; money stays the text that was typed."""
    found: dict[str, Any] = {}
    for text in value:
        name, equals, amount = text.partition("=")
        if not name or not equals or name in found:
            raise click.BadParameter(f"{text!r}: write each cap once, as in max_usd=0.50.")
        _check_cap(name)
        try:
            found[name] = amount if name == "max_usd" else int(amount)
        except ValueError:
            raise click.BadParameter(f"{text!r}: {name} takes a whole number.") from None
    return found


def _check_cap(name: str) -> None:
    if name not in CAPS:
        like = next((cap for cap in CAPS if name.lower() in (cap.removeprefix("max_"), cap.removesuffix("_ms"))), None)
        like = like or next(iter(difflib.get_close_matches(name, CAPS, n=1)), None)
        perhaps = f"; {like}?" if like else "."
        raise click.BadParameter(f"There is no cap {name!r}{perhaps} The caps are {', '.join(CAPS)}.")


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise click.BadParameter(f"{path} can't be read: {error.strerror}.") from None


def _value(text: bytes) -> Any:
    try:
        return parse_exact(text.decode().encode(), member="That")
    except UnicodeDecodeError:
        raise click.BadParameter("That isn't UTF-8.") from None
    except InvalidRequest as error:
        hint = '; write an object such as \'{"name": "Ada"}\'' if error.message.endswith("is no JSON.") else ""
        raise click.BadParameter(f"{error.message.removesuffix('.')}{hint}.") from None
