"""The network between a worker and the daemon does what is done to it, and nothing else."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from dhp_client.addresses import TcpAddress, parse_address
from dhp_client.chaos.network import Line
from dhp_client.chaos.plan import CUT, DELAY, HOLD_ANSWERS, HOLD_REQUESTS, TRICKLE

HELD_FOR_S = 0.2


class Echo:
    """What stands behind the line: it keeps what arrives, in pieces as they came, and sends it back."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.arrived = asyncio.Event()
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                self.pieces.append(data)
                self.arrived.set()
                writer.write(data)
        except ConnectionError:
            pass
        self.ended.set()
        writer.close()


@pytest.fixture
async def echo() -> Echo:
    return Echo()


@pytest.fixture
async def line(echo: Echo) -> AsyncIterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            path = str(Path(folder) / "s")
            server = await asyncio.start_unix_server(echo.serve, path)
            stack.callback(server.close)
            line = Line(path)
            await line.open()
            stack.callback(line.close)
            yield line


async def connected(line: Line) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    place = parse_address(line.address)
    assert isinstance(place, TcpAddress)
    return await asyncio.open_connection(place.host, place.port)


async def test_bytes_and_the_end_of_input_pass_both_ways(line: Line, echo: Echo) -> None:
    reader, writer = await connected(line)
    writer.write(b"hello")
    writer.write_eof()
    assert await reader.read() == b"hello"
    await echo.ended.wait()
    writer.close()


async def test_a_cut_ends_what_there_is_and_lets_nobody_in_until_it_is_healed(line: Line, echo: Echo) -> None:
    reader, writer = await connected(line)
    writer.write(b"x")
    assert await reader.readexactly(1) == b"x"
    line.hurt(CUT)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    await echo.ended.wait()
    again, writer = await connected(line)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await again.readexactly(1)
    line.heal(CUT, releases=False)
    again, writer = await connected(line)
    writer.write(b"y")
    assert await again.readexactly(1) == b"y"
    writer.close()


async def test_requests_that_are_held_back_arrive_late_if_they_are_released(line: Line, echo: Echo) -> None:
    reader, writer = await connected(line)
    line.hurt(HOLD_REQUESTS)
    writer.write(b"late")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(echo.arrived.wait(), HELD_FOR_S)
    line.heal(HOLD_REQUESTS, releases=True)
    assert await reader.readexactly(4) == b"late"
    writer.close()


async def test_requests_that_are_held_back_never_arrive_if_they_are_not(line: Line, echo: Echo) -> None:
    reader, writer = await connected(line)
    line.hurt(HOLD_REQUESTS)
    writer.write(b"never")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(echo.arrived.wait(), HELD_FOR_S)
    line.heal(HOLD_REQUESTS, releases=False)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    await echo.ended.wait()
    assert echo.pieces == []


async def test_answers_are_held_back_while_requests_arrive(line: Line, echo: Echo) -> None:
    reader, writer = await connected(line)
    line.hurt(HOLD_ANSWERS)
    writer.write(b"asked")
    await echo.arrived.wait()
    answer = asyncio.create_task(reader.readexactly(5))
    done, _ = await asyncio.wait({answer}, timeout=HELD_FOR_S)
    assert not done
    line.heal(HOLD_ANSWERS, releases=True)
    assert await answer == b"asked"
    writer.close()


async def test_one_byte_at_a_time_is_slower_and_the_same(line: Line, echo: Echo) -> None:
    reader, writer = await connected(line)
    line.hurt(TRICKLE)
    writer.write(b"abcdefgh" * 8)
    assert await reader.readexactly(64) == b"abcdefgh" * 8
    assert len(echo.pieces) > 1
    line.heal(TRICKLE, releases=True)
    writer.close()


async def test_a_delay_holds_nothing_back_for_good(line: Line) -> None:
    reader, writer = await connected(line)
    line.hurt(DELAY)
    writer.write(b"slow")
    answer = asyncio.create_task(reader.readexactly(4))
    done, _ = await asyncio.wait({answer}, timeout=0.1)
    assert not done
    assert await answer == b"slow"
    writer.close()
