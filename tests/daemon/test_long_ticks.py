"""A tick that ends a great many leases holds up nobody, and ends none whose renewal stands in line."""

import asyncio
from collections.abc import Callable

from dhp_protocol.messages import Claim, Heartbeat, LeaseRef
from dhpd.server.clock import Clock, monotonic_s
from dhpd.server.ticker import Ticker
from dhpd.server.turns import Turns
from tests.support.engine_world import World

LEASES = 2_000
TTL_MS = 500


async def test_while_a_tick_ends_many_leases_others_have_their_turns_and_time_stands_still() -> None:
    world, clock = World(), Clock()
    claims = []
    for _ in range(LEASES):
        handoff = world.dispatch()
        claims.append(world.send(Claim(worker="ada", handoff=handoff, ttl_ms=60_000)))
    world.commit()
    world.now = clock.now()
    for claim in claims:  # All due at one moment, whatever it took to get here.
        lease = world.engine.leases.get(claim.result().handoff, claim.result().fence)
        assert lease is not None
        lease.ttl_ms = TTL_MS
        world.engine.leases.renew(lease, world.now.lease_ms)
        world.engine.leases.mind_again(lease)
    other = world.dispatch()
    fence = world.claim(other, ttl_ms=TTL_MS + 200)

    done = asyncio.Event()
    failures: list[Exception] = []
    seen: list[tuple[int, int]] = []
    beats = []

    def took_a_turn() -> None:
        ended = LEASES + 1 - world.engine.ledger.counts["running"]
        if ended >= LEASES:
            done.set()
        elif ended:
            world.now = clock.now()
            seen.append((ended, world.now.lease_ms))
            beats.append(world.send(Heartbeat(leases=[LeaseRef(other, fence)])))
        if not done.is_set():
            loop.call_soon(took_a_turn)

    loop = asyncio.get_running_loop()
    ticker = Ticker(world.engine, clock, Turns(monotonic_s, loop.call_soon), lambda: None, failures.append)
    ticker.start()
    ticker.reconsider()
    loop.call_soon(took_a_turn)
    await done.wait()
    ticker.stop()
    assert failures == []
    assert len({ended for ended, _ in seen}) > 5, "the loop had turns while leases ended"
    assert len({lease_ms for _, lease_ms in seen}) == 1
    assert [beat.result().renewed for beat in beats] == [[other]] * len(beats), "it isn't due at that reading"


async def test_a_renewal_that_was_read_but_stands_in_line_is_in_time() -> None:
    world, clock = World(), Clock()
    world.now = clock.now()
    handoff = world.dispatch()
    fence = world.claim(handoff, ttl_ms=TTL_MS)
    lease = world.engine.leases.get(handoff, fence)
    assert lease is not None
    lease.ttl_ms = 50
    world.engine.leases.renew(lease, world.now.lease_ms)
    world.engine.leases.mind_again(lease)
    ended = asyncio.Event()
    failures: list[Exception] = []
    passes: list[Callable[[], None]] = []
    turns = Turns(monotonic_s, passes.append)
    beats = []

    class Worker:
        def take_turn(self, is_over: Callable[[], bool]) -> None:
            world.now = clock.now()
            beats.append(world.send(Heartbeat(leases=[LeaseRef(handoff, fence)])))

    def ticked() -> None:
        if not world.engine.ledger.counts["running"]:
            ended.set()

    ticker = Ticker(world.engine, clock, turns, ticked, failures.append)
    ticker.start()
    while clock.lease.next_tick_ms < lease.deadline_ms:
        await asyncio.sleep(0)
    turns.line_up(Worker())
    while not ticker._ticking:
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert world.engine.ledger.counts["running"] == 1
    passes.pop()()
    assert beats[0].result().renewed == [handoff]
    await ended.wait()
    assert len(beats) == 1, "it ended when nobody renewed it any more"
    ticker.stop()
    assert failures == []
