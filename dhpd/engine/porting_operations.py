"""Operations that move a handoff from one daemon to another: export, import."""

from typing import NamedTuple

from msgspec import UNSET

from dhp_protocol.errors import InvalidRequest
from dhp_protocol.messages import Export, Import
from dhp_protocol.replies import ImportReply

from .apply import apply
from .facts import Handoff
from .lookups import ExportLookup
from .moments import Now
from .porting import Plan, decide_export, decide_imported
from .records import Entry
from .retention import replaced_seq
from .roles import check_export
from .settling import Settling
from .waiting import Address


def export(core: Settling, request: Export, to: Address, now: Now) -> None:
    facts = core.looked_at = core.look(request.handoff, now)
    check_export(facts, to.caller)
    if request.after is not UNSET:
        core.reply(to, _further(facts, request.after), facts)
        return
    changes = decide_export(facts, core.settings.limits, now)
    if changes:
        facts = core.end_hold(facts.id, facts, changes, now)
    # Pages show what was there up to the `exported` record, whatever has happened since.
    core.reply(to, _page(facts, facts.n, 0, 0, ""), facts)


def _further(facts: Handoff, place: str) -> ExportLookup:
    number, n, after, lines, chain = place.split("-")
    if int(number) != facts.number or not 0 < int(after) <= int(n) <= facts.n:
        raise InvalidRequest(
            "This is no place in a bundle of this handoff: export it from the beginning.", member="after"
        )
    return _page(facts, int(n), int(after), int(lines), chain)


def _page(facts: Handoff, n: int, after: int, lines: int, chain: str) -> ExportLookup:
    return ExportLookup(
        handoff=facts.id,
        number=facts.number,
        head=facts.position,
        n=n,
        after=after,
        lines=lines,
        chain=chain,
        replaced_seq=replaced_seq(facts),
        seq=facts.seq,
        steps=facts.steps,
        usd_nano=facts.usd_nano,
    )


class Arrived(NamedTuple):
    """A bundle that has come in whole: whose it is, and what is to become of it (None: the handoff is left as it is)."""

    handoff: str
    plan: Plan | None


def import_(core: Settling, request: Import, arrived: Arrived, to: Address, now: Now) -> None:
    """What was planned, whole, while the handoff is as it was then."""
    handoff, plan = arrived
    if plan is None:
        facts = core.looked_at = core.look(handoff, now)
        core.reply(to, ImportReply(handoff=handoff, created=False, taken=0), facts)
        return
    present = core.looked_at = core.find(handoff)
    assert (0 if present is None else present.position) == plan.position, "the plan is of this moment"
    entries, facts = plan.placed(present, core.journal.position)
    closing = decide_imported(plan, facts, core.purged_fence, now)
    last = Entry(facts.position + 1, handoff, facts.position, facts.anchor, closing.record, None)
    facts = core.adopt(present, [*entries, last], apply(facts, last), now)
    core.reply(to, ImportReply(handoff=handoff, created=present is None, taken=len(entries)), facts)
