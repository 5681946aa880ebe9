"""The rules once more, as simply as they can be said: what the engine is compared with.

Owns handoffs, leases, waiting claims, and which answers may have left; written from the protocol's text, and sharing nothing
with the engine. A commit is a copy of everything; an undo is that copy again. An answer is a tuple.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

Answer = tuple[Any, ...]
MAX_ATTEMPTS = 2
UNAVAILABLE: Answer = ("store_unavailable",)
FINAL = ("completed", "cancelled", "dead")


@dataclass(frozen=True)
class Piece:
    """One handoff. `commit` is that which its newest change goes with, `turn` that of its newest one but a checkpoint."""

    number: int
    kind: str
    priority: int
    commit: int
    turn: int = 0
    status: str = "pending"
    fence: int = 0
    claims: int = 0
    failures: int = 0
    states: tuple[bytes, ...] = ()
    worker: str = ""
    held: int = 0  # The fence of the newest claim.
    was: str = ""
    ended: str | None = None
    not_before_ms: int = 0
    ripe: bool = True
    result: bytes | None = None
    acked: bool = False


@dataclass
class Call:
    """A request. It waits while it has no answer; it has left when `commit` is on disk."""

    key: Hashable
    answer: Answer | None = None
    commit: int = 0
    place: int = 0
    end_ms: int = 0
    wants: Callable[[str, Piece], bool] = lambda name, piece: False
    on_end: Callable[[str, Piece], Answer | None] = lambda name, piece: None
    name: str | None = None
    claim: Answer = ()  # worker, nonce, ttl of a claim that waits.
    goes_back: bool = False


class Model:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.pieces: dict[str, Piece] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.ttls: dict[tuple[str, int], int] = {}
        self.nonces: dict[Answer, tuple[str, int, int]] = {}
        self.calls: list[Call] = []
        self.freed: list[str] = []
        self.commit = 1  # The one that gathers.
        self.on_disk = 0
        self.newest = 0  # The commit of the newest change of all.
        self.kept: dict[str, Piece] = {}
        self.flying: dict[str, Piece] = {}
        self.places = 0

    # --- changes and answers -----------------------------------------------------------------------------------------

    def change(self, name: str, piece: Piece, **members: Any) -> Piece:
        turn = piece.turn if "states" in members else self.commit
        after = self.pieces[name] = replace(piece, commit=self.commit, turn=turn, **members)
        self.newest = self.commit
        if self.claimable(after):
            self.freed.append(name)
        if after.status in FINAL and piece.status not in FINAL:
            for call in self.waiting():
                if call.name == name and (answer := call.on_end(name, after)) is not None:
                    self.say(call, answer, after.commit)
        return after

    def say(self, call: Call, answer: Answer, commit: int) -> None:
        call.answer, call.commit = answer, commit

    def waiting(self) -> list[Call]:
        return sorted((call for call in self.calls if call.answer is None), key=lambda call: call.place)

    def wait(self, call: Call, wait_ms: int, place: int = 0) -> None:
        self.places += 1
        call.place, call.end_ms, call.goes_back = place or self.places, self.now_ms + wait_ms, True

    def end_wait(self, call: Call) -> None:
        call.goes_back = False
        if call.claim:
            self.say(call, ("nothing",), self.newest)
        else:
            piece = self.pieces[call.name or ""]
            self.say(call, ("result", piece.status, piece.result), piece.commit)

    # --- time --------------------------------------------------------------------------------------------------------

    def lives(self, name: str, piece: Piece) -> bool:
        return piece.status == "running" and self.now_ms < self.ends[name, piece.held]

    def look(self, name: str) -> Piece | None:
        piece = self.pieces.get(name)
        if piece is not None and piece.status == "running" and not self.lives(name, piece):
            return self.fails(name, piece, "orphaned", "expired")
        return piece

    def fails(self, name: str, piece: Piece, status: str, ended: str, not_before_ms: int = 0) -> Piece:
        failures = piece.failures + 1
        dead = failures >= MAX_ATTEMPTS or status == "dead"
        return self.change(
            name,
            piece,
            status="dead" if dead else status,
            fence=piece.fence + 1 + dead,
            failures=failures,
            ended=ended,
            not_before_ms=not_before_ms,
            ripe=not_before_ms <= self.now_ms,
        )

    def ripen(self) -> None:
        for name, piece in self.pieces.items():
            if piece.status == "pending" and not piece.ripe and piece.not_before_ms <= self.now_ms:
                self.pieces[name] = replace(piece, ripe=True)
                self.freed.append(name)

    def due_ms(self) -> int | None:
        """When something is due next."""
        moments = [self.ends[name, p.held] for name, p in self.pieces.items() if p.status == "running"]
        moments += [call.end_ms for call in self.waiting()]
        moments += [p.not_before_ms for p in self.pieces.values() if p.status == "pending" and not p.ripe]
        return min(moments, default=None)

    def tick(self) -> None:
        for name in list(self.pieces):
            self.look(name)
        for call in self.waiting():
            if call.end_ms <= self.now_ms:
                self.end_wait(call)
        self.ripen()
        self.serve()

    # --- claims ------------------------------------------------------------------------------------------------------

    def claimable(self, piece: Piece) -> bool:
        return piece.status == "orphaned" or (piece.status == "pending" and piece.ripe)

    def best(self, names: Iterable[str]) -> list[str]:
        def order(name: str) -> Answer:
            piece = self.pieces[name]
            return -piece.priority, piece.status != "orphaned", piece.number

        return sorted((name for name in names if self.claimable(self.pieces[name])), key=order)

    def grant(self, call: Call, name: str) -> None:
        piece = self.pieces[name]
        worker, nonce, ttl_ms = call.claim
        fence = piece.fence + 1
        piece = self.change(
            name,
            piece,
            status="running",
            fence=fence,
            held=fence,
            claims=piece.claims + 1,
            worker=worker,
            was=piece.status,
            ended=None,
        )
        self.ends[name, fence], self.ttls[name, fence] = self.now_ms + ttl_ms, ttl_ms
        if nonce is not None:
            self.nonces[worker, nonce] = (name, fence, self.commit)
        self.say(call, granted(name, piece), piece.commit)

    def serve(self) -> None:
        freed, self.freed = self.freed, []
        for name in self.best({name for name in freed if name in self.pieces}):
            fitting = [call for call in self.waiting() if call.wants(name, self.pieces[name])]
            if fitting:
                self.grant(fitting[0], name)

    def serve_all(self) -> None:
        for call in self.waiting():
            fitting = [name for name in self.best(self.pieces) if call.wants(name, self.pieces[name])]
            if fitting:
                self.grant(call, fitting[0])

    # --- the disk ----------------------------------------------------------------------------------------------------

    def take(self) -> None:
        self.flying, self.commit = dict(self.pieces), self.commit + 1

    def arrived(self) -> None:
        self.kept, self.on_disk = self.flying, self.commit - 1

    def lost(self, *, kept: bool) -> None:
        for call in self.calls:
            if call.answer is not None and call.commit > self.on_disk and not call.goes_back:
                self.say(call, UNAVAILABLE, 0)
        if kept:
            self.arrived()
        else:
            self.undo()
        self.tick()
        self.serve_all()

    def undo(self) -> None:
        changed = [name for name, piece in self.pieces.items() if self.kept.get(name) is not piece]
        self.pieces = dict(self.kept)
        self.newest = self.on_disk
        self.nonces = {key: grant for key, grant in self.nonces.items() if grant[2] <= self.on_disk}
        for call in self.calls:
            if call.goes_back and (call.answer is None or call.commit > self.on_disk):
                call.answer = None
                if call.name is not None and call.name not in self.pieces:
                    self.say(call, UNAVAILABLE, 0)
        self.freed = [name for name in changed if name in self.pieces and self.claimable(self.pieces[name])]


def granted(name: str, piece: Piece) -> Answer:
    return "granted", name, piece.held, piece.claims, piece.was, len(piece.states)


def lease_lost(piece: Piece, fence: int) -> Answer:
    if piece.held == 0 or fence > piece.held:
        why = "never_claimed"
    else:
        why = "superseded" if fence < piece.held else piece.ended or "expired"
    return "lease_lost", why, piece.fence, piece.status
