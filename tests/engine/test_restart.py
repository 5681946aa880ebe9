"""A start finds everything as it was; a lease gets one extension, whatever else restarts."""

import random

from msgspec import Raw
from msgspec.structs import replace

from dhp_protocol.messages import Ack, Checkpoint, Claim, Complete, Fail, Heartbeat, LeaseRef, Release, WorkError
from dhpd.engine.ledger import MAX_COLD_HANDOFFS
from dhpd.engine.operations import Engine
from tests.support.engine_world import TTL_MS, World, memory


def heartbeat(handoff: str, fence: int) -> Heartbeat:
    return Heartbeat(leases=[LeaseRef(handoff=handoff, fence=fence)])


# --- leases ---------------------------------------------------------------------------------------------------------


def test_a_lease_that_lived_gets_a_full_ttl_from_the_start() -> None:
    world = World()
    handoff, fence = world.held()
    world.advance(5_999)
    world.restart(after_ms=60_000)
    assert world.deadline_ms(handoff) == TTL_MS
    world.advance(TTL_MS - 1)
    assert world.run(Checkpoint(handoff=handoff, fence=fence, state=Raw(b"1"))).seq == 1


def test_nobody_who_does_not_come_back_is_kept_longer() -> None:
    world = World()
    handoff, _ = world.held()
    world.restart()
    world.advance(TTL_MS)
    assert world.facts(handoff).status == "orphaned"


def test_five_restarts_in_a_row_do_not_move_the_deadline() -> None:
    world = World()
    handoff, _ = world.held()
    for _ in range(5):
        world.restart(after_ms=1_000)
    assert world.deadline_ms(handoff) == TTL_MS - 4_000
    world.advance(TTL_MS - 4_000)
    assert world.facts(handoff).status == "orphaned"


def test_a_crash_loop_keeps_nobody_alive() -> None:
    world = World()
    handoff, _ = world.held()
    for _ in range(20):
        world.restart(after_ms=1_000)
        world.tick()
        world.commit()
    assert world.facts(handoff).status == "orphaned"


def test_the_first_renewal_frees_the_next_extension() -> None:
    world = World()
    handoff, fence = world.held()
    for _ in range(5):
        world.restart(after_ms=5_000)
        assert world.run(heartbeat(handoff, fence)).renewed == [handoff]
    world.restart(after_ms=5_000)
    assert world.deadline_ms(handoff) == TTL_MS


def test_a_renewal_is_written_once() -> None:
    world = World()
    handoff, fence = world.held()
    world.restart()
    world.send(heartbeat(handoff, fence))
    assert world.engine.wants_commit(world.now)
    world.commit()
    world.send(heartbeat(handoff, fence))
    assert not world.engine.wants_commit(world.now)


def test_a_renewal_that_could_not_be_written_is_written_later() -> None:
    world = World()
    handoff, fence = world.held()
    world.restart()
    world.send(heartbeat(handoff, fence))
    world.fail_commit()
    world.commit()
    world.restart(after_ms=5_000)
    assert world.deadline_ms(handoff) == TTL_MS


def test_a_renewal_before_the_extension_itself_is_on_disk_frees_the_next_one_too() -> None:
    world = World()
    handoff, fence = world.held()
    world.start()
    world.send(heartbeat(handoff, fence))
    world.commit()
    world.restart(after_ms=5_000)
    assert world.deadline_ms(handoff) == TTL_MS


def test_an_extension_that_could_not_be_written_is_written_again() -> None:
    world = World()
    handoff, _ = world.held()
    world.start()
    world.fail_commit()
    world.commit()
    world.restart(after_ms=2_000)
    assert world.deadline_ms(handoff) == TTL_MS - 2_000


def test_a_new_hold_gets_an_extension_of_its_own() -> None:
    world = World()
    handoff, fence = world.held()
    world.restart()
    world.run(Release(handoff=handoff, fence=fence))
    world.advance(5_000)
    world.claim(handoff)
    world.restart()
    assert world.deadline_ms(handoff) == TTL_MS


def test_a_wall_clock_that_was_set_back_gives_no_more_than_a_ttl() -> None:
    world = World()
    handoff, _ = world.held()
    world.restart()
    world.restart(after_ms=1_000, wall_ms=-3_600_000)
    assert world.deadline_ms(handoff) == TTL_MS
    world.advance(TTL_MS)
    assert world.facts(handoff).status == "orphaned"


def test_a_lease_that_ended_while_nobody_ran_ends_at_the_first_tick() -> None:
    world = World()
    handoff, fence = world.held()
    world.restart()
    world.restart(after_ms=TTL_MS)
    assert world.run(heartbeat(handoff, fence)).renewed == []
    assert world.run(heartbeat(handoff, fence)).lost == [handoff]
    assert world.facts(handoff).status == "orphaned"


def test_extensions_of_what_no_longer_runs_are_swept() -> None:
    world = World()
    handoff, fence = world.held()
    world.restart()
    assert set(world.disk.extensions) == {handoff}
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    world.restart()
    assert world.disk.extensions == {}


# --- sessions -------------------------------------------------------------------------------------------------------


def test_a_session_that_comes_back_and_is_lost_again_keeps_what_runs_on_its_extension() -> None:
    world = World()
    handoff = world.dispatch()
    world.claim(handoff, on=world.connect("mine"))
    world.restart()
    world.disconnect(world.connect("mine"))
    assert world.deadline_ms(handoff) == TTL_MS
    world.advance(TTL_MS)
    assert world.facts(handoff).status == "orphaned"


def test_what_was_renewed_since_the_start_ends_by_the_grace() -> None:
    world = World()
    handoff = world.dispatch()
    fence = world.claim(handoff, on=world.connect("mine"))
    world.restart()
    mine = world.connect("mine")
    world.run(heartbeat(handoff, fence), on=mine)
    world.disconnect(mine)
    assert world.deadline_ms(handoff) == 250


def test_a_detached_lease_hangs_on_nothing_afterwards_either() -> None:
    world = World()
    handoff = world.dispatch()
    world.claim(handoff, on=world.connect("mine"), detached=True)
    world.restart()
    world.disconnect(world.connect("mine"))
    assert world.deadline_ms(handoff) == TTL_MS


# --- facts ----------------------------------------------------------------------------------------------------------


def test_delays_outlive_a_restart() -> None:
    world = World()
    handoff = world.dispatch(delay_ms=5_000)
    world.restart(after_ms=4_999)
    call = world.send(Claim(worker="bob", kinds=["work"], wait_ms=60_000))
    assert not call.answered
    world.advance(1)
    assert call.result().handoff == handoff


def test_fences_go_on_from_where_they_were() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Release(handoff=handoff, fence=fence))
    world.restart()
    assert world.claim(handoff) == fence + 2


def test_what_left_memory_is_as_it_was_when_it_is_asked_for() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b'"done"')))
    world.advance(2_000)
    world.restart()
    assert world.engine.ledger.get(handoff) is None
    assert world.status(handoff).status == "completed"
    world.run(Ack(handoff=handoff))
    world.restart()
    assert world.status(handoff).acked


def test_a_start_with_more_ended_ones_in_the_tail_than_memory_keeps() -> None:
    """Their facts are in the table, and newer records of theirs stand behind it in the journal."""
    world = World()
    handoffs = [world.dispatch() for _ in range(MAX_COLD_HANDOFFS + 50)]
    for handoff in handoffs:
        world.send(Complete(handoff=handoff, fence=world.claim(handoff), result=Raw(b"1")))
    world.advance(10_000)
    assert world.disk.covered == world.engine.journal.durable
    for handoff in handoffs:
        world.run(Ack(handoff=handoff))
    world.restart()
    assert world.engine.ledger.counts["completed"] == len(handoffs)
    assert all(world.status(handoff).acked for handoff in handoffs)


def test_a_start_from_a_table_that_is_partly_ahead_of_what_it_covers() -> None:
    world = World()
    handoffs = [world.dispatch() for _ in range(MAX_COLD_HANDOFFS + 300)]
    for handoff in handoffs:
        world.run(Complete(handoff=handoff, fence=world.claim(handoff), result=Raw(b"1")))
    world.jump(1_000)
    for _ in range(4):
        world.take()
        world.finish()
    assert 0 < len(world.disk.facts) < len(handoffs)
    world.restart()
    assert world.engine.ledger.counts["completed"] == len(handoffs)
    world.advance(20_000)
    assert len(world.engine.ledger) <= MAX_COLD_HANDOFFS, "what has ended and is on disk leaves memory"
    assert world.disk.covered == world.engine.journal.durable


def test_one_that_has_ended_stays_in_memory_until_its_newest_facts_are_on_disk() -> None:
    world = World()
    handoff, fence = world.held()
    world.run(Complete(handoff=handoff, fence=fence, result=Raw(b"1")))
    world.advance(2_000)
    world.run(Ack(handoff=handoff))
    world.jump(1_000)
    world.take()  # Its facts are on their way.
    for number in range(MAX_COLD_HANDOFFS + 1):  # Others that have ended are read meanwhile.
        world.engine.admit(replace(world.facts(handoff), id=f"{number:064x}"), world.now)
    assert world.engine.ledger.get(handoff) is not None
    world.finish()


def random_history(world: World, rng: random.Random, steps: int) -> None:
    """Work as it comes: everything is committed, but the table of facts lags at random."""
    fences: dict[str, int] = {}
    handoffs: list[str] = []
    for _ in range(steps):
        action = rng.choice(["dispatch", "claim", "claim", "checkpoint", "checkpoint", "end", "wait", "ack", "restart"])
        held = [handoff for handoff in handoffs if world.engine.ledger.get(handoff) is not None]
        running = [h for h in held if world.facts(h).status == "running" and world.deadline_ms(h) > 0]
        if action == "dispatch":
            parent = rng.choice([handoff for handoff in held if not world.facts(handoff).final] or [""])
            members = {"parent": parent} if parent and rng.random() < 0.3 else {}
            delay_ms = rng.choice([0, 0, 2_000])
            handoffs.append(world.dispatch(priority=rng.randrange(10), delay_ms=delay_ms, **members))
        elif action == "claim":
            request = Claim(worker=rng.choice("abc"), kinds=["work"], nonce=f"n{rng.randrange(10**9)}")
            granted = world.run(request)
            if granted.handoff is not None:
                fences[granted.handoff] = granted.fence
        elif action == "checkpoint" and running:
            handoff = rng.choice(running)
            state = b"%d" % rng.randrange(10**9)
            world.run(Checkpoint(handoff=handoff, fence=fences[handoff], state=Raw(state), steps=rng.randrange(5)))
        elif action == "end" and running:
            handoff = rng.choice(running)
            end = rng.randrange(3)
            if end == 0:
                world.run(Complete(handoff=handoff, fence=fences[handoff], result=Raw(b"1")))
            elif end == 1:
                world.run(Release(handoff=handoff, fence=fences[handoff], reason="tired"))
            else:
                retry = rng.random() < 0.7
                world.run(
                    Fail(handoff=handoff, fence=fences[handoff], error=WorkError(type="E"), retry=retry, delay_ms=0)
                )
        elif action == "wait":
            world.advance(rng.choice([10, 500, 1_500, 7_000]))
        elif action == "ack" and (ended := [handoff for handoff in held if world.facts(handoff).final]):
            world.run(Ack(handoff=rng.choice(ended)))
        elif action == "restart" and rng.random() < 0.2:
            world.restart(after_ms=rng.randrange(3_000))


def test_random_histories_load_as_they_were(rng: random.Random) -> None:
    for _ in range(25):
        world = World()
        random_history(world, rng, 120)
        before = memory(world.engine)
        world.restart()
        after = memory(world.engine)
        # What has ended need not be in memory; the rest is exactly as before, and all of it counts.
        for handoff, facts in before["facts"].items():
            if handoff in after["facts"]:
                assert after["facts"][handoff] == facts
            else:
                assert world.engine.ledger.get(handoff) is None
                assert facts[2] in ("completed", "cancelled", "dead")
                assert world.status(handoff).position == facts[5]
        for name in ("counts", "claimable", "first", "leases", "position"):
            now = after[name]
            if name == "first":
                now = {kind: after["first"].get(kind) for kind in before["first"]}
            assert now == before[name], name


def test_a_position_that_the_table_covers_is_not_given_out_again() -> None:
    """A row that could not be stored took its position with it; the table of facts went past it."""
    world = World()
    engine = Engine(world.engine.settings, lambda: "name")
    engine.load([], [], {}, {}, {}, head=67, covered=68, now=world.now)
    assert engine.journal.position == 68
