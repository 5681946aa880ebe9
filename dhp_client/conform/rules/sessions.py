"""Sessions: what becomes of leases when connections end, and who hears what (SPEC.md, sections 6 and 9)."""

from ...clock import monotonic_ms
from ..bench import Bench, rest
from ..judging import holds, same
from ..peer import Held, Peer
from ..points import Rules

rules = Rules("sessions", "6 Leases and sessions")


def _soon_orphaned(bench: Bench, held: Held) -> None:
    other = bench.peer()
    reply = other.call("recover", worker="other", handoff=held.handoff, wait_ms=600_000)
    holds(reply["was"] == "orphaned" and reply["fence"] > held.fence, "the orphaned work, a higher fence", reply)
    same("failures", other.status(held.handoff)["failures"], 1)
    held.peer = other
    held.lost("superseded")


@rules.point
def a_broken_connection_ends_its_leases_within_the_grace(bench: Bench) -> None:
    """When a session's last connection ends without goodbye, its leases end within the disconnect grace, not their ttl."""
    worker = bench.peer(session=bench.session())
    held = worker.held(claim={"ttl_ms": bench.terms.lease["max_ttl_ms"]})
    worker.close()
    _soon_orphaned(bench, held)


@rules.point
def a_half_closed_connection_counts_as_gone(bench: Bench) -> None:
    """A half-closed connection counts as gone for its session at once."""
    worker = bench.peer(session=bench.session())
    held = worker.held(claim={"ttl_ms": bench.terms.lease["max_ttl_ms"]})
    worker.wire.end_input()
    _soon_orphaned(bench, held)


@rules.point
def a_connection_without_hello_is_a_session_of_its_own(bench: Bench) -> None:
    """What a connection without hello claimed ends with it, within the grace."""
    bench.without_hello()
    worker = bench.peer()
    held = worker.held(claim={"ttl_ms": bench.terms.lease["max_ttl_ms"]})
    worker.close()
    _soon_orphaned(bench, held)


@rules.point
def a_session_that_comes_back_in_time_keeps_its_leases(bench: Bench) -> None:
    """A hello with the same session within the grace restores its leases."""

    def attempt() -> bool:
        worker, back = bench.peer(session=bench.session("back")), bench.peer()
        held = worker.held()
        gone_ms = monotonic_ms()
        worker.close()
        back.call("hello", session=bench.session("back"))
        if monotonic_ms() - gone_ms > bench.terms.lease["disconnect_grace_ms"] * 0.8:
            return False
        rest(bench.terms.lease["disconnect_grace_ms"] + 200)
        same("the status after the grace", held_by(back, held).status()["status"], "running")
        held_by(back, held).checkpoint(1)
        return True

    bench.attempts(attempt)


def held_by(peer: Peer, held: Held) -> Held:
    """The same hold over another connection."""
    return Held(peer, held.handoff, held.fence)


@rules.point
def a_session_lives_while_one_of_its_connections_does(bench: Bench) -> None:
    """Where another connection of the session is open, the end of one costs nothing."""
    one, two = bench.peer(session=bench.session()), bench.peer(session=bench.session())
    held = one.held()
    one.close()
    rest(bench.terms.lease["disconnect_grace_ms"] + 200)
    same("the status", two.status(held.handoff)["status"], "running")
    held_by(two, held).checkpoint(1)


@rules.point
def a_detached_claim_hangs_on_no_session(bench: Bench) -> None:
    """A claim with detached: true outlives its connection, for its ttl."""
    worker, other = bench.peer(session=bench.session()), bench.peer()
    held = worker.held(claim={"detached": True})
    worker.close()
    rest(bench.terms.lease["disconnect_grace_ms"] + 200)
    same("the status", other.status(held.handoff)["status"], "running")
    held_by(other, held).checkpoint(1)


@rules.point
def goodbye_releases_the_sessions_leases(bench: Bench) -> None:
    """goodbye hands back at once what the session holds, and costs no attempt; claims that wait end empty first."""
    worker, other = bench.peer(session=bench.session()), bench.peer()
    held = worker.held()
    waiting = worker.send("claim", worker="w", kinds=[bench.kind], wait_ms=600_000)
    worker.call("goodbye")
    same("what the waiting claim ended with", worker.granted(waiting)["handoff"], None)
    status = other.status(held.handoff)
    for name, value in (("status", "pending"), ("reason", "goodbye"), ("failures", 0), ("holder", None)):
        same(name, status[name], value)
    held.lost("released")
    same("duplicate", held.call("release")["duplicate"], True)


@rules.point
def a_later_hello_takes_the_leases_along(bench: Bench) -> None:
    """A hello that names a session moves the connection there, and its old session's leases with it."""
    bench.without_hello()
    one, two = bench.peer(), bench.peer(session=bench.session())
    held = one.held()
    one.call("hello", session=bench.session())
    one.close()
    rest(bench.terms.lease["disconnect_grace_ms"] + 200)
    same("the status", two.status(held.handoff)["status"], "running")


@rules.in_section("9 Events")
def every_connection_of_the_session_hears_its_events(bench: Bench) -> None:
    """cancelled, with fence and reason, comes to each connection of the session that holds the work, and to no other."""
    one, two, other = (bench.peer(session=bench.session(name)) for name in ("a", "a", "b"))
    held = one.held()
    other.call("cancel", handoff=held.handoff, reason="enough")
    for peer in (one, two):
        event = peer.event("cancelled")
        for name, value in (("handoff", held.handoff), ("fence", held.fence), ("reason", "enough")):
            same(name, event[name], value)
    other.pings()
    same("what another session heard", other.events, [])


@rules.in_section("9 Events")
def an_event_has_neither_id_nor_ok(bench: Bench) -> None:
    """An event has neither id nor ok, and the form of the connection's last good frame."""
    for counted in (True, False):
        peer = bench.peer(session=bench.session(), counted=counted)
        held = peer.held()
        peer.send("cancel", handoff=held.handoff)
        lines = [peer.next_line(), peer.next_line()]
        events = [line for line in lines if "event" in line.value]
        holds(len(events) == 1, "one event and one reply", [line.text for line in lines])
        holds("id" not in events[0].value and "ok" not in events[0].value, "neither id nor ok", events[0].text)
        holds(events[0].counted == counted, "the form of the last good frame", events[0].text)
