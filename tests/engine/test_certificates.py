"""Callers with certificates: bound to one worker, with the roles of their token at every moment."""

import pytest

from dhp_protocol.errors import Forbidden
from dhpd.engine.roles import ADMIN, Caller, check_worker
from dhpd.engine.sessions import Sessions


def test_a_tokens_roles_are_those_of_each_of_its_certificates() -> None:
    token = Caller("t", ["worker"])
    ada, bob = token.as_worker("ada"), token.as_worker("bob")
    assert token.as_worker("ada") is ada
    assert (ada.token, ada.worker, bob.worker, token.worker) == ("t", "ada", "bob", None)
    token.roles = frozenset(["reader"])
    assert ada.roles == bob.roles == frozenset(["reader"])
    assert ada.may_ask == token.may_ask
    token.roles = frozenset()
    assert not ada.roles


def test_certificates_that_nobody_uses_any_more_arent_kept() -> None:
    token = Caller("t", ["worker"])
    for number in range(100):
        token.as_worker(f"w{number}")
    assert len(token._workers) == 0


def test_a_caller_claims_as_its_certificates_worker_and_without_one_as_anybody() -> None:
    ada = Caller("t", ["worker"]).as_worker("ada")
    check_worker("ada", ada)
    check_worker("anybody", ADMIN)
    with pytest.raises(Forbidden, match="Your certificate is ada's") as refused:
        check_worker("Ada", ada)
    assert refused.value.details["worker"] == "ada"


def test_a_session_is_its_certificates() -> None:
    names = iter("abcdefgh")
    sessions = Sessions(lambda: next(names))
    sessions.open(1)
    sessions.hello(1, "s", "t", "ada")
    for connection, token, worker in ((2, "t", "bob"), (3, "u", "ada")):
        sessions.open(connection)
        with pytest.raises(Forbidden):
            sessions.hello(connection, "s", token, worker)
    sessions.open(4)
    sessions.hello(4, "s", "t", "ada")
