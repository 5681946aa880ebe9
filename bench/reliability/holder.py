"""A worker that holds handoffs, as a process: `python -m bench.reliability.holder ADDRESS TTL_MS MANNER HANDOFF…`.

Claims each of the handoffs by its id (TTL_MS 0: with the default), checkpoints once, and holds them until it is ended.
MANNER is `idle`, where nothing but heartbeats happens, or `busy`, where the body computes without ever giving the event loop a
turn. Prints `held` once it holds all of them, and `lost WHY` for each that it is told to have lost.
"""

import asyncio
import hashlib
import sys

import dhp_client


async def main(address: str, ttl_ms: str, manner: str, *handoffs: str) -> None:
    async with dhp_client.connect(address) as client:
        held = []
        for handoff in handoffs:
            task = await client.claim(handoff, ttl_ms=int(ttl_ms) or None, wait_ms=60_000, on_lost=_tell)
            assert task is not None, f"{handoff} couldn't be claimed"
            await task.checkpoint({"held": True})
            held.append(task)
        print("held", flush=True)
        if manner == "busy":
            _compute()
        await asyncio.Event().wait()


def _tell(task: dhp_client.Task) -> None:
    print("lost", task.handoff, flush=True)


def _compute() -> None:
    """For ever, in Python: the interpreter's lock is only had between two of its steps."""
    digest = b""
    while True:
        digest = hashlib.sha256(digest).digest()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
