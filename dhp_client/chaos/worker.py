"""A worker of the chaos, as a process: claims, works, checkpoints after each step, and keeps a book of what it was told.

It may be killed, stopped or cut off anywhere. What it was told is in its book before it goes on. Twice it does, past the client,
what the client wouldn't: awake after it was stopped, it writes before anybody can tell it of a loss; and a loss that it
is told of it doesn't believe, and writes once more.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

import dhp_client
from dhp_client.addresses import TcpAddress, parse_address

from .. import payload
from ..clock import monotonic_ms
from .books import Accepted, Acknowledged, Begun, Claimed, Late, Lost, Surprise, Writer
from .plan import TTL_MS
from .work import KIND, Inputs, State, next_state, result_of

CLAIM_WAIT_MS = 10_000
RETRY_MS = 120_000
"""How long a call bears that nobody answers: longer than any fault lasts."""
ANSWERED_WITHIN_S = 5.0
ACCEPTED = "accepted"
EXPLAINED = (dhp_client.NotConnected, dhp_client.ConnectionLost, dhp_client.InDoubt)
"""What the faults may come to, besides a lost lease."""


async def work_until_told(address: str, name: str, book: Writer) -> None:
    """Claims one handoff after the other, until the process is ended. Says so when it has the first."""
    connecting = dhp_client.connect(address, name=name, connect_timeout_ms=RETRY_MS, retry_ms=RETRY_MS)
    async with connecting as client:
        told = False
        while True:
            try:
                task = await client.claim(kinds=KIND, worker=name, wait_ms=CLAIM_WAIT_MS, ttl_ms=TTL_MS)
            except EXPLAINED:
                continue
            if task is None:
                continue
            if not told:
                told = True
                print(msgspec.json.encode({"event": "claimed"}).decode(), flush=True)
            await _hold(task, name, address, book)


async def _hold(task: dhp_client.Task, name: str, address: str, book: Writer) -> None:
    state: State | None = task.state
    handoff, fence = task.handoff, task.fence
    book.write(Claimed(handoff=handoff, fence=fence, seq=task.seq, chain=state["chain"] if state else ""))
    try:
        async with task:
            await _work(task, state, address, book)
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


async def _work(task: dhp_client.Task, state: State | None, address: str, book: Writer) -> None:
    inputs: Inputs = task.inputs
    done = state["step"] if state else 0
    for step in range(done + 1, inputs["steps"] + 1):
        book.write(Begun(handoff=task.handoff, fence=task.fence, step=step), synced=False)
        began_ms = monotonic_ms()
        await asyncio.sleep(inputs["step_ms"] / 1000)
        state = next_state(inputs["number"], state)
        if monotonic_ms() - began_ms > inputs["step_ms"] + TTL_MS:
            await _write_unaware(task, state, address, book)
        reply = await task.checkpoint(state)
        book.write(Acknowledged(handoff=task.handoff, fence=task.fence, seq=reply.seq, sha256=reply.sha256))
    result = result_of(state)
    await task.complete(result)
    book.write(Accepted(handoff=task.handoff, fence=task.fence, chain=result["chain"]))


async def _write_unaware(task: dhp_client.Task, state: State, address: str, book: Writer) -> None:
    """The checkpoint of who was stopped and doesn't know what happened since: right, and taken if the lease lives after all."""
    text = payload.encode(state, member="state")
    seq, fence, sha256 = task.seq + 1, task.fence, payload.sha256_hex(text)
    code = await _answer("checkpoint", task.handoff, fence, address, seq=seq, state=msgspec.Raw(text))
    if code == ACCEPTED:
        book.write(Acknowledged(handoff=task.handoff, fence=fence, seq=seq, sha256=sha256))
    elif code is not None:
        book.write(Late(handoff=task.handoff, fence=fence, op="checkpoint", answer=code))


async def _write_late(handoff: str, fence: int, address: str, book: Writer) -> None:
    """A checkpoint and a result under a fence that is lost: both wrong, so that they would be seen if they got through."""
    poison = {"step": 1_000_000, "chain": f"written under the lost fence {fence}"}
    for op, member in (("checkpoint", "state"), ("complete", "result")):
        code = await _answer(op, handoff, fence, address, **{member: poison})
        if code is not None:
            book.write(Late(handoff=handoff, fence=fence, op=op, answer=code))


async def _answer(op: str, handoff: str, fence: int, address: str, **members: Any) -> str | None:
    """What is answered to one request past the client: the error's code, or `ACCEPTED`; None if nobody answers."""
    request = {"op": op, "handoff": handoff, "fence": fence, **members}
    try:
        answer = await asyncio.wait_for(_asked(request, address), ANSWERED_WITHIN_S)
    except (OSError, EOFError, TimeoutError):
        return None  # The network is hurt: nothing is known.
    return ACCEPTED if answer["ok"] else str(answer["error"]["code"])


async def _asked(request: dict[str, Any], address: str) -> dict[str, Any]:
    """One bare line on a connection of its own, and its answer."""
    place = parse_address(address)
    assert isinstance(place, TcpAddress)
    reader, writer = await asyncio.open_connection(place.host, place.port)
    try:
        writer.write(msgspec.json.encode(request) + b"\n")
        line = await reader.readuntil(b"\n")
    finally:
        writer.close()
    return msgspec.json.decode(line, type=dict[str, Any])


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
