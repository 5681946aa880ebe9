"""A long line of a bundle is made in steps, between which others have their turn."""

import asyncio

import pytest

from dhp_protocol.bundle import PIECE_BYTES, BundleWriter
from dhpd.store import exporting


@pytest.mark.parametrize("text", [b"a", b'\\"'], ids=["as text", "as Base64"])
async def test_while_a_long_line_is_made_others_have_their_turns(text: bytes) -> None:
    payload = b'"' + text * (20 * PIECE_BYTES // len(text)) + b'"'
    turns = 0

    async def another() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(another())
    line = await exporting._in_steps(BundleWriter(1, "0").record_pieces({"n": 1}, "0" * 64, payload))
    assert turns >= 40 // exporting.PIECES_OF_A_STEP, "each piece was looked at once, and made once"
    assert line == BundleWriter(1, "0").record({"n": 1}, "0" * 64, payload)
    task.cancel()
