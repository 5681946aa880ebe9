"""The rules of held, in doubt, ended and lost, with time as an argument."""

import pytest

from dhp_client.leases import Lease, LeaseTable, Loss, Phase, loss_from_error, loss_from_status
from dhp_protocol.errors import LeaseLost
from dhp_protocol.messages import LeaseRef
from dhp_protocol.replies import StatusReply

A, B = "a" * 64, "b" * 64
EXPIRED = Loss("expired", 2, "orphaned")


def lease(handoff: str = A, *, fence: int = 1, sent_ms: float = 0, ttl_ms: int = 6_000) -> Lease:
    return Lease(
        handoff=handoff,
        fence=fence,
        ttl_ms=ttl_ms,
        heartbeat_ms=ttl_ms / 3,
        in_doubt_ms=60_000,
        deadline_ms=sent_ms + ttl_ms,
    )


def table(*leases: Lease, jitter: float = 1.0) -> LeaseTable:
    made = LeaseTable(uniform=lambda low, high: jitter)
    for held in leases:
        made.add(held)
    return made


def status(word: str, fence: int, reason: str | None = None) -> StatusReply:
    return StatusReply(
        handoff=A,
        kind="k",
        status=word,
        holder=None,
        fence=fence,
        attempt=1,
        seq=0,
        steps=0,
        usd=0.0,
        failures=0,
        stalls=0,
        budget={},
        reason=reason,
        parent=None,
        labels={},
        priority=5,
        created_at="",
        claimed_at=None,
        updated_at="",
        lease_left_ms=None,
        acked=False,
        position=1,
    )


def test_a_lease_is_held_until_its_deadline_and_in_doubt_from_there() -> None:
    held = lease()
    assert held.phase(5_999) is Phase.HELD
    assert held.phase(6_000) is Phase.IN_DOUBT
    assert held.next_look_ms(1) == 6_000
    assert held.next_look_ms(6_000) == held.give_up_at_ms == 66_000


def test_a_renewal_counts_from_its_sending_and_not_from_its_answer() -> None:
    held = lease()
    leases = table(held)
    leases.renewed(A, 1, sent_ms=2_000, now_ms=5_000)
    assert held.deadline_ms == 8_000


def test_an_old_answer_never_shortens_a_lease() -> None:
    held = lease()
    leases = table(held)
    leases.renewed(A, 1, sent_ms=4_000, now_ms=4_100)
    leases.renewed(A, 1, sent_ms=2_000, now_ms=4_200)
    assert held.deadline_ms == 10_000


def test_a_renewal_ends_doubt_and_tells_so_once() -> None:
    told: list[str] = []
    held = lease()
    held.notify = lambda: told.append("changed")
    leases = table(held)
    leases.renewed(A, 1, sent_ms=6_500, now_ms=7_000)
    assert held.phase(7_000) is Phase.HELD
    leases.renewed(A, 1, sent_ms=8_000, now_ms=8_100)
    assert told == ["changed"]


def test_an_answer_for_another_fence_changes_nothing() -> None:
    held = lease(fence=3)
    leases = table(held)
    leases.renewed(A, 1, sent_ms=5_000, now_ms=5_000)
    leases.report(A, 1, Loss("superseded", 2, "running"))
    assert held.deadline_ms == 6_000
    assert held.phase(0) is Phase.HELD


def test_one_heartbeat_serves_all_leases_and_is_due_for_the_most_urgent() -> None:
    leases = table(lease(A), lease(B, ttl_ms=600))
    assert leases.next_beat_ms() == 200
    assert leases.beat(200) == [LeaseRef(A, 1), LeaseRef(B, 1)]
    assert leases.next_beat_ms() == 400


def test_the_jitter_only_makes_heartbeats_earlier() -> None:
    drawn: list[tuple[float, float]] = []

    def draw(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    leases = LeaseTable(uniform=draw)
    leases.add(lease())
    assert leases.next_beat_ms() == 400
    leases.beat(400)
    assert leases.next_beat_ms() == 2_000
    leases.beat(2_000, first=True)
    assert leases.next_beat_ms() == 2_400
    assert drawn == [(0.2, 1.0), (0.8, 1.0), (0.2, 1.0)]


def test_an_expiry_that_left_it_unclaimed_is_an_end_and_not_a_loss() -> None:
    held = lease()
    leases = table(held)
    leases.report(A, 1, EXPIRED)
    assert held.phase(0) is Phase.ENDED
    assert leases.next_beat_ms() is None
    assert leases.beat(0) == []


def test_once_ended_only_claiming_again_decides() -> None:
    held = lease()
    leases = table(held)
    leases.report(A, 1, EXPIRED)
    leases.report(A, 1, Loss("superseded", 3, "running"))  # It may be our own new claim that is seen there.
    assert held.phase(0) is Phase.ENDED
    leases.give_up(held, Loss("superseded", 3, "running"))
    assert held.phase(0) is Phase.LOST


@pytest.mark.parametrize(
    "loss",
    [
        Loss("superseded", 3, "running"),
        Loss("cancelled", 2, "cancelled"),
        Loss("expired", 2, "dead"),
        Loss("expired", 4, "orphaned"),
        Loss("released", 2, "pending"),
    ],
)
def test_anything_else_is_a_loss(loss: Loss) -> None:
    held = lease()
    leases = table(held)
    leases.report(A, 1, loss)
    assert held.phase(0) is Phase.LOST
    leases.report(A, 1, EXPIRED)
    assert held.lost == loss, "the first word counts"


def test_what_is_told_while_an_ending_write_is_under_way_waits_for_its_answer() -> None:
    held = lease()
    leases = table(held)
    leases.settle(held)
    leases.report(A, 1, Loss("completed", 1, "completed"))
    assert held.phase(0) is Phase.HELD
    assert held.told is not None
    leases.settled(held)
    assert held.told is None
    leases.report(A, 1, EXPIRED)
    assert held.phase(0) is Phase.ENDED


def test_a_lease_that_was_claimed_again_counts_from_that_claim() -> None:
    held = lease()
    leases = table(held)
    leases.report(A, 1, EXPIRED)
    leases.reclaimed(held, 3, sent_ms=20_000)
    assert (held.fence, held.deadline_ms, held.phase(25_999)) == (3, 26_000, Phase.HELD)
    assert leases.next_beat_ms() == 22_000


def test_when_nobody_renews_any_more_everything_is_in_doubt() -> None:
    told: list[str] = []
    held = lease()
    held.notify = lambda: told.append("changed")
    leases = table(held)
    leases.doubt_all(1_000)
    assert held.phase(1_000) is Phase.IN_DOUBT
    assert told == ["changed"]


def test_a_newer_lease_on_the_same_handoff_supersedes_the_older_one() -> None:
    older, newer = lease(fence=1), lease(fence=3)
    leases = table(older, newer)
    assert older.phase(0) is Phase.LOST
    leases.drop(older)
    assert leases.beat(0) == [LeaseRef(A, 3)]


def test_a_forgotten_lease_is_left_out_of_the_heartbeats_but_released_at_the_end_while_it_lasts() -> None:
    forgotten, other = lease(A), lease(B)
    leases = table(forgotten, other)
    leases.forget(forgotten)
    assert leases.take_forgotten(0) == [forgotten]
    assert leases.take_forgotten(0) == []
    assert leases.beat(0) == [LeaseRef(B, 1)]
    assert leases.held(5_999) == [forgotten, other]
    assert leases.held(6_000) == []


def test_forgetting_a_lease_that_was_superseded_leaves_the_newer_one() -> None:
    older, newer = lease(fence=1), lease(fence=3)
    leases = table(older, newer)
    leases.forget(older)
    assert leases.take_forgotten(0) == []
    assert leases.beat(0) == [LeaseRef(A, 3)]


@pytest.mark.parametrize(
    ("found", "why", "free"),
    [
        (status("orphaned", 2), "expired", True),
        (status("orphaned", 2, "orphaned: expired"), "expired", True),
        (status("orphaned", 2, "orphaned: stalled"), "stalled", False),
        (status("orphaned", 4), "superseded", False),
        (status("running", 3), "superseded", False),
        (status("pending", 2), "released", False),
        (status("pending", 4), "superseded", False),
        (status("completed", 1), "completed", False),
        (status("cancelled", 2), "cancelled", False),
        (status("dead", 2), "dead", False),
    ],
)
def test_a_status_tells_why_a_lease_is_gone(found: StatusReply, why: str, free: bool) -> None:
    loss = loss_from_status(found, 1)
    assert loss.why == why
    assert loss.leaves_it_free(1) is free


def test_a_refused_write_tells_the_same_as_the_error_that_it_becomes() -> None:
    loss = loss_from_error(LeaseLost("no", why="superseded", fence=7, status="running"))
    assert loss == Loss("superseded", 7, "running")
    assert loss.error().details == {"why": "superseded", "fence": 7, "status": "running"}
