"""The error registry: every code once, and an error is the same on both sides of the wire."""

import msgspec
import pytest

from dhp_protocol.errors import (
    ERROR_BY_CODE,
    DHPError,
    ErrorBody,
    Internal,
    LeaseLost,
    error_body,
    error_from_body,
)
from dhp_protocol.replies import ReplyHead, error_reply_body

CODES = frozenset(
    (
        "bad_frame",
        "bad_json",
        "frame_too_large",
        "invalid_request",
        "unknown_op",
        "unauthenticated",
        "forbidden",
        "not_found",
        "identity_mismatch",
        "schema_invalid",
        "result_invalid",
        "already_claimed",
        "not_claimable",
        "wrong_state",
        "lease_lost",
        "checkpoint_conflict",
        "out_of_order",
        "effect_conflict",
        "budget_exceeded",
        "approval_expired",
        "already_decided",
        "too_large",
        "overloaded",
        "draining",
        "not_primary",
        "store_unavailable",
        "internal",
    )
)


def test_the_registry_holds_every_code_of_the_protocol_and_no_other() -> None:
    assert ERROR_BY_CODE.keys() == CODES


def test_each_code_has_a_class_of_its_own() -> None:
    assert len(set(ERROR_BY_CODE.values())) == len(ERROR_BY_CODE)
    assert all(cls.code == code and cls.__doc__ for code, cls in ERROR_BY_CODE.items())


def test_a_code_can_not_be_taken_twice() -> None:
    with pytest.raises(AssertionError, match="lease_lost"):
        type("Second", (DHPError,), {}, code="lease_lost")
    assert ERROR_BY_CODE["lease_lost"] is LeaseLost


@pytest.mark.parametrize("code", sorted(CODES))
def test_an_error_is_the_same_on_the_other_side(code: str) -> None:
    sent = ERROR_BY_CODE[code]("Do this.", after_ms=5, why="expired", fence=7, nothing=None)
    reply = msgspec.json.decode(error_reply_body("r1", sent))
    assert reply == {
        "id": "r1",
        "ok": False,
        "error": {
            "code": code,
            "message": "Do this.",
            "retry": sent.retry,
            "after_ms": 5,
            "details": {"why": "expired", "fence": 7, "nothing": None},
        },
    }
    head = msgspec.json.decode(error_reply_body("r1", sent), type=ReplyHead)
    assert isinstance(head.error, ErrorBody)
    received = error_from_body(head.error)
    assert type(received) is type(sent)
    assert (received.message, received.retry, received.after_ms, received.details) == (
        sent.message,
        sent.retry,
        sent.after_ms,
        sent.details,
    )


def test_a_retry_that_differs_from_the_codes_own_is_carried_over() -> None:
    sent = ERROR_BY_CODE["not_claimable"]("It has ended.", status="dead")
    sent.retry = "no"
    assert error_from_body(error_body(sent)).retry == "no"
    assert ERROR_BY_CODE["not_claimable"].retry == "later"


def test_a_code_of_a_later_version_becomes_internal_and_stays_readable() -> None:
    received = error_from_body(ErrorBody(code="new_code", message="Do that.", retry="now", details={"a": 1}))
    assert type(received) is Internal
    assert received.message == "new_code: Do that."
    assert (received.retry, received.details) == ("now", {"a": 1})


def test_an_error_without_a_time_or_facts_says_neither() -> None:
    body = msgspec.json.decode(error_reply_body(msgspec.UNSET, ERROR_BY_CODE["bad_frame"]("No frame.")))
    assert body == {"ok": False, "error": {"code": "bad_frame", "message": "No frame.", "retry": "no"}}
