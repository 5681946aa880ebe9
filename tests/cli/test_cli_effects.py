"""A person looks at effects, and settles a doubt that no program can."""

import pytest

import dhp_client
import dhp_client.sync

from .conftest import Dhp


def leave_in_doubt(client: dhp_client.sync.Client, handoff: str) -> None:
    def charge(key: str) -> None:
        raise ConnectionError("the line went dead")

    def attempt() -> None:
        with client.claim(handoff) as task:
            task.effect("reserve", lambda key: "shelf 3")
            task.effect("charge", charge)

    with pytest.raises(ConnectionError):
        attempt()


def test_a_person_says_that_an_effect_in_doubt_did_happen(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = dhp("dispatch", "cli.doubt").out.strip()
    leave_in_doubt(client, handoff)
    lines = dhp("effects", handoff[:12]).out.splitlines()
    (claimed,) = (record for record in client.history(handoff).records if record["type"] == "claimed")
    fence = str(claimed["fence"])  # Not 1 where anything was forgotten in this store.
    assert [line.split() for line in lines] == [
        ["STATE", "FENCE", "STEP"],
        ["done", fence, "reserve"],
        ["begun", fence, "charge"],
    ]
    settled = dhp("effect-done", handoff[:12], "charge", "--result", '{"receipt": 17}')
    assert (settled.code, settled.out, settled.err) == (0, "done\n", "")
    assert [effect["state"] for effect in dhp("effects", handoff, "--json").json_lines] == ["done", "done"]
    status = client.status(handoff)
    assert (status.status, status.failures) == ("pending", 1)
    with client.claim(handoff, wait_ms=60_000) as task:
        assert task.effect("charge", lambda key: pytest.fail("charged twice")) == {"receipt": 17}
        task.complete(None)


def test_only_what_is_in_doubt_is_settled(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = dhp("dispatch", "cli.no-doubt").out.strip()
    leave_in_doubt(client, handoff)
    for step, told in (("reserve", "is done already"), ("mail", "was never begun")):
        refused = dhp("effect-done", handoff, step)
        assert (refused.code, refused.out, told in refused.err) == (1, "", True)


def test_work_that_somebody_has_is_waited_for(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = dhp("dispatch", "cli.held-doubt").out.strip()
    leave_in_doubt(client, handoff)
    with client.claim(handoff, wait_ms=60_000):
        refused = dhp("effect-done", handoff, "charge", "--wait-ms", "50")
        assert (refused.code, refused.out, "raise --wait-ms" in refused.err) == (1, "", True)


def test_dead_work_is_told_to_be_so(dhp: Dhp, client: dhp_client.sync.Client) -> None:
    handoff = dhp("dispatch", "cli.dead-doubt", "--max-attempts", "1").out.strip()
    leave_in_doubt(client, handoff)
    refused = dhp("effect-done", handoff, "charge")
    assert (refused.code, refused.out, "dead" in refused.err) == (1, "", True)
    assert dhp("redrive", handoff).code == 0
    assert dhp("effect-done", handoff, "charge").code == 0
