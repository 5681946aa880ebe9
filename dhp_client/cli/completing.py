"""What a shell offers when Tab is pressed: scripts for it, and what a daemon knows that fits.

Owns the command `completion`, and the completion of ids and kinds. Commands, options and fixed choices are click's own. Where no daemon
answers soon, nothing is offered and nothing is said: a person is typing.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from dhp_protocol.messages import FINAL
from dhp_protocol.printable import harmless

from .printing import HANDOFF_ID_CHARS, SHORT_ID_CHARS, json_line, short_approval
from .settings import Settings, with_json

if TYPE_CHECKING:
    from dhp_client import Client
    from dhp_protocol.replies import StatusReply

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_DHP_COMPLETE"
"""What the scripts say what they ask for in; the name is click's."""

ANSWERED_WITHIN_MS = 800
OFFERED_AT_MOST = 200
_PREFIX_CHARS = 4

_WANTED = {"redrive": ("dead",), "resume": ("suspended",), "ack": FINAL, "forget": FINAL}
"""What a command can do anything about; others take any handoff."""

Asking = Callable[["Client"], Awaitable[list[CompletionItem[str]]]]


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@with_json
def completion(shell: str) -> None:
    """Write the script by which a shell completes dhp.

    Tab offers commands, options, and, where a daemon answers, ids and kinds.

    \b
    bash, in ~/.bashrc:                  eval "$(dhp completion bash)"
    zsh, in ~/.zshrc, below compinit:    eval "$(dhp completion zsh)"
    fish:  dhp completion fish > ~/.config/fish/completions/dhp.fish
    """
    context = click.get_current_context()
    made = get_completion_class(shell)
    assert made is not None, f"click knows {shell}"
    script = made(context.find_root().command, {}, "dhp", VARIABLE).source().strip()
    settings = context.ensure_object(Settings)
    click.echo(json_line({"shell": shell, "script": script}) if settings.as_json else script)


def handoff_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Ids that begin so, the newest first: as short as `dhp list` shows them, or whole where more than that was typed."""
    begun = incomplete.lower()

    async def ask(client: "Client") -> list[CompletionItem[str]]:
        prefix = begun if len(begun) >= _PREFIX_CHARS else None
        statuses: tuple[str | None, ...] = _WANTED.get(ctx.info_name or "", (None,))
        found: list[StatusReply] = []
        for status in statuses:
            page = await client.list(status=status, prefix=prefix, newest_first=True, limit=OFFERED_AT_MOST)
            found += [one for one in page.handoffs if one.handoff.startswith(begun)]
        chars = SHORT_ID_CHARS if len(begun) <= SHORT_ID_CHARS else HANDOFF_ID_CHARS
        return [CompletionItem(one.handoff[:chars], help=f"{one.kind} {one.status}") for one in found]

    return _offered(ctx, ask)


def approval_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Open questions whose ids begin so, with what is asked."""
    begun = incomplete.lower()

    async def ask(client: "Client") -> list[CompletionItem[str]]:
        page = await client.approvals(status="open", limit=OFFERED_AT_MOST)
        ids = [(short_approval(one.approval), one) for one in page.approvals]
        return [
            CompletionItem(short if short.startswith(begun) else one.approval, help=harmless(one.action))
            for short, one in ids
            if short.startswith(begun) or one.approval.startswith(begun)
        ]

    return _offered(ctx, ask)


def kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Kinds of what was dispatched lately, and of what has waited longest, that begin so."""

    async def ask(client: "Client") -> list[CompletionItem[str]]:
        newest = await client.list(newest_first=True, limit=OFFERED_AT_MOST)
        waiting = await client.list(status="pending", limit=OFFERED_AT_MOST)
        found = {one.kind for one in (*newest.handoffs, *waiting.handoffs)}
        return [CompletionItem(kind) for kind in sorted(found) if kind.startswith(incomplete)]

    return _offered(ctx, ask)


def _offered(ctx: click.Context, ask: Asking) -> list[CompletionItem[str]]:
    """What `ask` gives; nothing, where anything at all is in its way."""
    logging.disable()
    try:
        with contextlib.suppress(Exception):
            return asyncio.run(_answered(ctx.ensure_object(Settings), ask))
        return []
    finally:
        logging.disable(logging.NOTSET)


async def _answered(settings: Settings, ask: Asking) -> list[CompletionItem[str]]:
    import dhp_client
    from dhp_client.addresses import DirectoryAddress, parse_addresses
    from dhp_client.embedded import locate

    addresses = [  # A directory's daemon is asked where it runs, but not started.
        str(locate(one.directory) if isinstance(one, DirectoryAddress) else one)
        for one in parse_addresses(settings.connect)
    ]
    async with asyncio.timeout(ANSWERED_WITHIN_MS / 1000):
        connecting = dhp_client.connect(addresses, connect_timeout_ms=ANSWERED_WITHIN_MS, **settings.credentials())
        async with connecting as client:
            return await ask(client)


@add_completion_class
class _Bash(BashComplete):
    """Bash takes a word to end at a colon, as in `tcp://…`: so the line is read as it stands, and a word's end is offered alone."""

    source_template = BashComplete.source_template.replace(
        "env COMP_WORDS=", 'env COMP_LINE="${COMP_LINE:0:$COMP_POINT}" COMP_WORDS='
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)
        incomplete = "" if not words or line[-1:].isspace() else words.pop()
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        _, incomplete = self.get_completion_args()
        before, colon, _ = incomplete.rpartition(":")
        return f"{item.type},{item.value.removeprefix(before + colon) if item.type == 'plain' else item.value}"
