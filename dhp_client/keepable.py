"""The writes that may be kept while nobody answers: from what is kept of one to the write itself.

Owns how a checkpoint, an amount spent, an effect's end and a result are said, whether they come from the worker just now or
from a spool file. Sending them in order is `hold`'s and `spooling`'s.
"""

from typing import TYPE_CHECKING

from dhp_protocol.errors import CheckpointConflict, DHPError
from dhp_protocol.messages import Checkpoint, Complete, EffectDone, Request, Spend
from dhp_protocol.replies import CheckpointReply, CompleteReply, EffectDoneReply, SpendReply

from .exceptions import IntegrityError
from .spool_lines import Contents, Entry, KeptCheckpoint, KeptEffect, KeptResult, KeptSpend
from .writes import Write

if TYPE_CHECKING:
    from .hold import Hold


class Checkpointed(CheckpointReply, frozen=True, kw_only=True):
    """A checkpoint was taken. `spooled`: by the spool alone, since nobody answers; no daemon has it, and `seq` is what it is meant to get."""

    spooled: bool = False


class Spent(SpendReply, frozen=True, kw_only=True):
    """What counts against the handoff's caps so far. `spooled`: nobody answers; these are the sums of what waits in the spool alone."""

    spooled: bool = False


def write_of(
    hold: "Hold", entry: Entry
) -> "Write[Checkpointed] | Write[Spent] | Write[EffectDoneReply] | Write[CompleteReply]":
    """The write that `entry` is kept of."""
    match entry:
        case KeptCheckpoint():
            return checkpoint(hold, entry)
        case KeptSpend():
            return spend(hold, entry)
        case KeptEffect():
            return effect_done(hold, entry)
        case KeptResult():
            return complete(hold, entry)


def checkpoint(hold: "Hold", entry: KeptCheckpoint) -> Write[Checkpointed]:
    text, sha256 = bytes(entry.state), entry.sha256

    def request() -> Request:
        hold.unanswered[sha256] = text
        return Checkpoint(
            handoff=hold.lease.handoff,
            fence=hold.lease.fence,
            state=entry.state,
            seq=hold.seq + 1,
            sha256=sha256,
            steps=entry.steps,
            usd=entry.usd,
            activity=entry.activity,
        )

    def stored(reply: CheckpointReply) -> None:
        if reply.sha256 != sha256:
            raise IntegrityError(f"Checkpoint {reply.seq} was stored under another hash than it was sent with.")
        hold.stored(reply.seq, sha256, text)

    def corrects(error: DHPError) -> bool:
        # Its number is taken by one that was given up, on an error that left open whether it counts.
        if not isinstance(error, CheckpointConflict) or error.details.get("seq") != hold.seq + 1:
            return False
        found = str(error.details.get("expected"))
        given_up = hold.unanswered.get(found)
        if given_up is None or found == sha256:
            return False
        hold.stored(hold.seq + 1, found, given_up)
        return True

    def kept(spooled: Contents) -> Checkpointed:
        seq = spooled.seq + spooled.checkpoints
        return Checkpointed(seq=seq, sha256=sha256, duplicate=False, spooled=True)

    return Write(request, Checkpointed, stored, corrects=corrects, spends=True, entry=entry, kept=kept)


def spend(hold: "Hold", entry: KeptSpend) -> Write[Spent]:
    def request() -> Request:
        return Spend(
            handoff=hold.lease.handoff, fence=hold.lease.fence, usd=entry.usd, steps=entry.steps, nonce=entry.nonce
        )

    def kept(spooled: Contents) -> Spent:
        return Spent(usd=spooled.usd, steps=spooled.steps, spooled=True)

    return Write(request, Spent, spends=True, entry=entry, kept=kept)


def effect_done(hold: "Hold", entry: KeptEffect) -> Write[EffectDoneReply]:
    def request() -> Request:
        return EffectDone(handoff=hold.lease.handoff, fence=hold.lease.fence, step=entry.step, result=entry.result)

    return Write(
        request, EffectDoneReply, insists=True, entry=entry, kept=lambda spooled: EffectDoneReply(duplicate=False)
    )


def complete(hold: "Hold", entry: KeptResult) -> Write[CompleteReply]:
    """A result that is kept isn't accepted yet, so whoever gave it waits on."""

    def request() -> Request:
        return Complete(handoff=hold.lease.handoff, fence=hold.lease.fence, result=entry.result)

    return Write(request, CompleteReply, ending="completed", entry=entry)
