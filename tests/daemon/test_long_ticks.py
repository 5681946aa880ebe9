"""A tick that ends a great many leases holds up nobody."""

import asyncio

from dhp_protocol.messages import Claim, Heartbeat, LeaseRef
from dhpd.server.clock import Clock
from dhpd.server.ticker import Ticker
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
    ticker = Ticker(world.engine, clock, lambda: None, failures.append)
    ticker.start()
    ticker.reconsider()
    loop.call_soon(took_a_turn)
    await done.wait()
    ticker.stop()
    assert failures == []
    assert len({ended for ended, _ in seen}) > 5, "the loop had turns while leases ended"
    assert len({lease_ms for _, lease_ms in seen}) == 1
    assert [beat.result().renewed for beat in beats] == [[other]] * len(beats), "it isn't due at that reading"
