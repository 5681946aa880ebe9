"""The limits measure what they say: every frame is echoed, and every row is in the file."""

import socket
import sqlite3
from pathlib import Path

from bench import limits
from tests.support.wire_client import open_socket


def received(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = connection.recv(length - len(data))
        assert piece, "closed early"
        data += piece
    return data


def test_each_frame_is_answered_however_it_is_cut() -> None:
    frame = b'18 {"op":"checkpoint"\n'
    assert len(frame) == 22
    with limits.echo_server() as address, open_socket(address) as connection:
        connection.settimeout(30)
        connection.sendall(frame * 2 + frame[:1])
        assert received(connection, 2 * len(limits.FRAMED_ANSWER)) == limits.FRAMED_ANSWER * 2
        connection.sendall(frame[1:10])
        connection.sendall(frame[10:])
        assert received(connection, len(limits.FRAMED_ANSWER)) == limits.FRAMED_ANSWER


def test_rows_are_committed_so_many_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    assert limits.commit_for(file, rows=8, payload_bytes=1024, seconds=0.01) > 0
    with sqlite3.connect(file) as db:
        rows, least = db.execute("select count(*), min(length(payload)) from journal").fetchone()
    db.close()
    assert rows >= 8
    assert rows % 8 == 0
    assert least == 1024


def test_a_measurement_leaves_nothing_behind(tmp_path: Path) -> None:
    assert limits.sqlite_alone(tmp_path, 4, 1024, 0.01) > 0
    assert limits.fdatasync_alone(tmp_path, 1024, 0.01) > 0
    assert list(tmp_path.iterdir()) == []
