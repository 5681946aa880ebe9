"""`dhp conform`: which points, against which daemon, and how the report looks. The checks are `dhp_client.conform`'s."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ..addresses import DirectoryAddress, SocketAddress, parse_addresses
from ..connecting import token_from, token_in
from ..embedded import locate
from .settings import FAILED, OK, UNREACHABLE, Settings, SettingsCommand, warn, with_settings

if TYPE_CHECKING:
    from ..conform.run import Outcome


class NoSuchDaemon(click.ClickException):
    """Nobody answers there."""

    exit_code = UNREACHABLE


@click.command("conform", cls=SettingsCommand)
@click.pass_obj
@click.argument("address", required=False)
@with_settings
@click.option(
    "--approver-token-file",
    metavar="FILE",
    help="Holds the token of who decides on approvals, since with tokens nobody decides on what they asked for.",
)
@click.option("--only", "patterns", metavar="PATTERN", multiple=True, help="Only points so named; may be given again.")
@click.option("--list", "lists", is_flag=True, help="Only name the points.")
@click.option("--drain", "drains", is_flag=True, help="Drain the daemon at the end, which it doesn't come back from.")
@click.option(
    "--answer-within-ms",
    type=click.IntRange(min=100),
    default=20_000,
    show_default=True,
    help="An answer that takes longer is missing.",
)
def conform(
    settings: Settings,
    address: str | None,
    approver_token_file: str | None,
    patterns: tuple[str, ...],
    lists: bool,
    drains: bool,
    answer_within_ms: int,
) -> int:
    """Check a daemon against dhp/1, point by point, from outside.

    ADDRESS is tcp://HOST:PORT, tls://HOST:PORT or unix:/PATH of any implementation of the protocol, or a directory where a daemon runs. Each point is a
    rule of SPEC.md, or one of the vectors that come with it. Exit code 1 if one isn't kept.

    It may be asked of a daemon that others use: what it makes is of kinds of its own, and removed afterwards, which needs an
    admin. PATTERN is the beginning of a point's name, or holds wildcards: leases, 'fences/late:*'.
    """
    from ..conform.bench import Target, learn_terms
    from ..conform.catalogue import chosen
    from ..conform.judging import NotChecked, Unlike
    from ..conform.run import outcomes

    points = chosen(patterns)
    if not points:
        raise click.UsageError("No point is named so: --list names them all.")
    if lists:
        for point in points:
            told = {"name": point.name, "section": point.section, "rule": point.rule}
            settings.show(told, [f"{point.name}  ({point.section})", f"    {point.rule}"])
        return OK
    target = Target(
        address=_socket_address(address or settings.connect, settings),
        token=token_from(None, settings.token_file),
        approver_token=None if approver_token_file is None else token_in(approver_token_file),
        answer_within_ms=answer_within_ms,
    )
    try:
        terms = learn_terms(target)
    except OSError as error:
        raise NoSuchDaemon(f"{target.address} doesn't answer: {error}.") from None
    except (Unlike, NotChecked) as error:
        warn(f"{target.address} can't be asked: {error}.")
        return FAILED
    if "admin" not in terms.roles:
        warn("this token may not forget, so handoffs that have ended are left behind.")

    found = []
    for outcome in outcomes(points, target, terms, drains=drains, all_points=not patterns):
        found.append(outcome)
        settings.show(outcome, _lines(outcome))
    _summarise(settings, found)
    return FAILED if any(outcome.outcome == "failed" for outcome in found) else OK


def _socket_address(given: str | None, settings: Settings) -> SocketAddress:
    address = parse_addresses(given, trust=settings.trust())[0]
    if not isinstance(address, DirectoryAddress):
        return address
    try:
        return locate(address.directory)
    except OSError as error:
        raise NoSuchDaemon(f"{error}: start one, or name its address.") from None


def _lines(outcome: "Outcome") -> Iterator[str]:
    shown = {"ok": "ok     ", "failed": "FAILED ", "skipped": "skipped"}[outcome.outcome]
    reason = f": {outcome.reason}" if outcome.outcome == "skipped" else ""
    yield f"{shown}  {outcome.name}{reason}"
    if outcome.outcome == "failed":
        yield f"         SPEC.md {outcome.section}: {outcome.rule}"
        yield f"         expected {outcome.expected}"
        yield f"         came     {outcome.came}"


def _summarise(settings: Settings, found: "list[Outcome]") -> None:
    counts = {name: sum(outcome.outcome == name for outcome in found) for name in ("ok", "failed", "skipped")}
    left = sorted({handoff for outcome in found for handoff in outcome.left})
    lines = [f"{counts['ok']} ok, {counts['failed']} failed, {counts['skipped']} skipped."]
    settings.show({**counts, "left": left}, lines)
    if left:
        warn(
            f"{len(left)} handoffs couldn't be removed, {left[0][:12]} among them; they have ended, or will be cancelled by nobody."
        )
