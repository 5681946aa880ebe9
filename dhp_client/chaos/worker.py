"""A worker of the chaos, as a process: claims, works, checkpoints after each step, and keeps a book of what it was told.

It may be killed, stopped or cut off anywhere. What it was told is in its book before it goes on; a loss it doesn't believe:
it writes once more under the lost fence, past the client, as a worker would that knows nothing yet.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

import dhp_client
from dhp_client.addresses import TcpAddress, parse_address

from .books import Accepted, Acknowledged, Begun, Claimed, Late, Lost, Surprise, Writer
from .plan import TTL_MS
from .work import KIND, Inputs, State, next_state, result_of

CLAIM_WAIT_MS = 10_000
RETRY_MS = 120_000
"""How long a call bears that nobody answers: longer than any fault lasts."""
LATE_WITHIN_S = 5.0
EXPLAINED = (dhp_client.NotConnected, dhp_client.ConnectionLost, dhp_client.InDoubt)
"""What the faults may come to, besides a lost lease."""


async def work_until_told(address: str, name: str, book: Writer) -> None:
    """Claims one handoff after the other, until the process is ended."""
    connecting = dhp_client.connect(address, name=name, connect_timeout_ms=RETRY_MS, retry_ms=RETRY_MS)
    async with connecting as client:
        print(msgspec.json.encode({"event": "ready"}).decode(), flush=True)
        while True:
            try:
                task = await client.claim(kinds=KIND, worker=name, wait_ms=CLAIM_WAIT_MS, ttl_ms=TTL_MS)
            except EXPLAINED:
                continue
            if task is not None:
                await _hold(task, name, address, book)


async def _hold(task: dhp_client.Task, name: str, address: str, book: Writer) -> None:
    state: State | None = task.state
    handoff, fence = task.handoff, task.fence
    book.write(Claimed(handoff=handoff, fence=fence, seq=task.seq, chain=state["chain"] if state else ""))
    try:
        async with task:
            await _work(task, state, book)
    except dhp_client.LeaseLost as loss:
        why, now = str(loss.details.get("why")), int(loss.details.get("fence", 0))
        book.write(Lost(handoff=handoff, fence=task.fence, why=why))
        if now > task.fence:
            await _write_late(handoff, task.fence, address, book)
    except EXPLAINED:
        pass
    except (dhp_client.DHPError, dhp_client.ClientError) as error:
        said = f"{type(error).__name__}: {error}"
        book.write(Surprise(handoff=handoff, fence=task.fence, error=said))


async def _work(task: dhp_client.Task, state: State | None, book: Writer) -> None:
    inputs: Inputs = task.inputs
    done = state["step"] if state else 0
    for step in range(done + 1, inputs["steps"] + 1):
        book.write(Begun(handoff=task.handoff, fence=task.fence, step=step), synced=False)
        await asyncio.sleep(inputs["step_ms"] / 1000)
        state = next_state(inputs["number"], state)
        reply = await task.checkpoint(state)
        book.write(Acknowledged(handoff=task.handoff, fence=task.fence, seq=reply.seq, sha256=reply.sha256))
    result = result_of(state)
    await task.complete(result)
    book.write(Accepted(handoff=task.handoff, fence=task.fence, chain=result["chain"]))


async def _write_late(handoff: str, fence: int, address: str, book: Writer) -> None:
    """A checkpoint and a result under a fence that is lost: both wrong, so that they would be seen if they got through."""
    poison = {"step": 1_000_000, "chain": f"written under the lost fence {fence}"}
    for op, members in (("checkpoint", {"state": poison}), ("complete", {"result": poison})):
        request = {"op": op, "handoff": handoff, "fence": fence, **members}
        try:
            answer = await asyncio.wait_for(_asked(request, address), LATE_WITHIN_S)
        except (OSError, EOFError, TimeoutError):
            continue  # The network is hurt: nobody answers, so nothing is known.
        code = "accepted" if answer.get("ok") else answer["error"]["code"]
        book.write(Late(handoff=handoff, fence=fence, op=op, answer=code))


async def _asked(request: dict[str, object], address: str) -> dict[str, dict[str, str]]:
    """One bare line on a connection of its own, and its answer."""
    place = parse_address(address)
    assert isinstance(place, TcpAddress)
    reader, writer = await asyncio.open_connection(place.host, place.port)
    try:
        writer.write(msgspec.json.encode(request) + b"\n")
        line = await reader.readuntil(b"\n")
    finally:
        writer.close()
    return msgspec.json.decode(line, type=dict)


async def main(address: str, name: str, book_path: str) -> None:
    """Ends by SIGTERM, or with its standard input: when whoever started it is gone."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    loop.add_reader(sys.stdin.fileno(), lambda: os.read(sys.stdin.fileno(), 1) or task.cancel())
    with Writer(Path(book_path)) as book:
        try:
            await work_until_told(address, name, book)
        except asyncio.CancelledError:
            return


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
