"""Both clients compute the vectors' ids, send them along, and the daemon agrees."""

import json
from typing import Any

import pytest

import dhp_client
from dhp_client import sync
from dhp_protocol.errors import DHPError
from tests.protocol.vectors import load

INTENTS: list[tuple[str, dict[str, Any], str]] = [
    *((case["name"], case["intent"], case["id"]) for case in load("ids")),
    *((case["name"], json.loads(case["intent"]), case["id"]) for case in load("intents") if "id" in case),
]
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("2^53 + 1", {"kind": "k", "inputs": {"n": 2**53 + 1}}),
    ("a kind with a space", {"kind": "a b", "inputs": {}}),
    ("a key that is too long", {"kind": "k", "inputs": {}, "key": "k" * 257}),
    ("inputs that are a list", {"kind": "k", "inputs": []}),
    ("a lone surrogate", {"kind": "k", "inputs": {"t": "\ud800"}}),
    ("an infinity", {"kind": "k", "inputs": {"n": float("inf")}}),
    ("a cap that there isn't", {"kind": "k", "inputs": {}, "budget": {"max_dollars": 1}}),
    ("a cap below nothing", {"kind": "k", "inputs": {}, "budget": {"max_usd": -1}}),
    ("capabilities that are no lists", {"kind": "k", "inputs": {}, "capabilities": {"fs": "*"}}),
]


async def test_the_async_client_passes_the_ids(address: str) -> None:
    async with await dhp_client.connect(address) as client:
        for name, intent, identity in INTENTS:
            assert (await client.dispatch(**intent)).handoff == identity, name


def test_the_sync_client_passes_the_ids(address: str) -> None:
    with sync.connect(address) as client:
        for name, intent, identity in INTENTS:
            assert client.dispatch(**intent).handoff == identity, name


async def test_the_async_client_refuses_what_has_no_id(address: str) -> None:
    async with await dhp_client.connect(address) as client:
        for _, intent in REFUSED:
            with pytest.raises((DHPError, ValueError)):
                await client.dispatch(**intent)
        await client.ping()


def test_the_sync_client_refuses_what_has_no_id(address: str) -> None:
    with sync.connect(address) as client:
        for _, intent in REFUSED:
            with pytest.raises((DHPError, ValueError)):
                client.dispatch(**intent)
        client.ping()


async def test_what_a_claim_gives_back_is_the_same_intent(address: str) -> None:
    async with await dhp_client.connect(address) as client:
        for name, intent, identity in INTENTS:
            await client.dispatch(**intent)
            async with client.claim(identity) as task:
                given = json.loads(task.intent)
                assert given.keys() == {"kind", "inputs", "output_schema", "budget", "capabilities", "key"}
                again = await client.dispatch(**{**given, "inputs": task.inputs})
                assert (again.handoff, again.created) == (identity, False), name
                await task.release()
