"""Talks to a daemon by bytes, with nothing of our own code in between: a socket, frames, and the dialogues' matching.

Owns reading and writing frames, and what the words of `dialogues.json` mean ($get:X and the like).
"""

import json
import re
import socket
from collections.abc import Callable
from hashlib import sha256
from types import TracebackType
from typing import Any

JSON = Any
TIMEOUT_S = 30.0
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def connect(address: str) -> socket.socket:
    """A socket connected to an address as the daemon prints it."""
    if address.startswith("unix:"):
        unix = socket.socket(socket.AF_UNIX)
        unix.settimeout(TIMEOUT_S)
        unix.connect(address.removeprefix("unix:"))
        return unix
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT_S)


class Line:
    """One received frame: its form, its body as text, and as JSON."""

    def __init__(self, raw: bytes) -> None:
        head, space, rest = raw.partition(b" ")
        self.counted = head.isdigit() and space == b" "
        body = rest if self.counted else raw
        assert not self.counted or (len(body) == int(head) and head == str(len(body)).encode()), raw
        assert b"\r" not in body
        self.text = body.decode()
        self.value: JSON = json.loads(self.text)
        assert isinstance(self.value, dict)


class Wire:
    """One connection. Gives what comes as lines, each of which must be a frame."""

    def __init__(self, address: str) -> None:
        self.socket = connect(address)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def end_input(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def receive(self) -> Line | None:
        """The next frame; None at the end."""
        raw = self._file.readline()
        assert not raw or raw.endswith(b"\n"), f"the connection ended inside of a frame: {raw[:200]!r}"
        return Line(raw[:-1]) if raw else None

    def close(self) -> None:
        self._file.close()
        self.socket.close()


class Conversation:
    """Plays one dialogue against the daemon at `address`, all frames in one form."""

    def __init__(self, address: str, run: str, *, counted: bool) -> None:
        self._address = address
        self._run = run
        self._counted = counted
        self._saved: dict[str, JSON] = {}
        self._wires: dict[str, Wire] = {}
        self._unread: dict[str, list[Line]] = {}
        self._ids: dict[tuple[str, str], JSON] = {}
        self._last_id = 0

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for wire in self._wires.values():
            wire.close()

    def play(self, step: dict[str, JSON]) -> None:
        """Carries out one step; AssertionError where the daemon does otherwise."""
        on = step["on"]
        if "close" in step:
            self._wires.pop(on).close()
            return
        if "event" in step:
            line = self._next(on, lambda body: "event" in body)
            self._match(self._fill(step["event"]), line.value, line.text)
            return
        if "reply" in step:
            self._expect(on, self._ids.pop((on, step["reply"])), step)
            return
        request_id = self._send(on, step)
        if "later" in step:
            self._ids[on, step["later"]] = request_id
        else:
            self._expect(on, request_id, step)

    def _send(self, on: str, step: dict[str, JSON]) -> JSON:
        self._last_id += 1
        if "send_text" in step:
            request_id: JSON = f"r{self._last_id}"
            text = step["send_text"].replace("$id", request_id).replace("$run", self._run)
            body = re.sub(r"\$get:([a-z0-9]+)", lambda match: str(self._saved[match[1]]), text)
        else:
            request = self._fill(step["send"])
            request_id = request.setdefault("id", self._last_id)
            body = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
        data = body.encode()
        self._wire(on).send(b"%d %b\n" % (len(data), data) if self._counted else data + b"\n")
        return request_id

    def _expect(self, on: str, request_id: JSON, step: dict[str, JSON]) -> None:
        expected = self._fill(step["expect"])
        wanted = None if expected.get("id") == "$absent" else request_id
        line = self._next(on, lambda body: "event" not in body and body.get("id") == wanted)
        assert line.counted == self._counted, "a reply has the form of its request"
        self._match(expected, line.value, line.text)
        if "holds" in step:
            assert step["holds"] in line.text, line.text

    def _wire(self, on: str) -> Wire:
        if on not in self._wires:
            self._wires[on] = Wire(self._address)
            self._unread[on] = []
        return self._wires[on]

    def _next(self, on: str, wanted: Any) -> Line:
        """The next frame on this connection that is `wanted`; others are kept for later steps."""
        unread = self._unread[on]
        for index, line in enumerate(unread):
            if wanted(line.value):
                return unread.pop(index)
        while True:
            line_or_end = self._wires[on].receive()
            assert line_or_end is not None, "the daemon ended the connection"
            if wanted(line_or_end.value):
                return line_or_end
            unread.append(line_or_end)

    def _fill(self, value: JSON) -> JSON:
        """`value` with what was saved and the run's text put in."""
        if isinstance(value, dict):
            return {name: self._fill(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self._fill(item) for item in value]
        if not isinstance(value, str):
            return value
        if value.startswith("$get:"):
            return self._saved[value[5:]]
        if value.startswith("$text:"):
            return "x" * int(value[6:])
        return value.replace("$run", self._run)

    def _match(self, expected: JSON, got: JSON, where: str) -> None:
        problem = self._problem(expected, got, "")
        assert problem is None, f"{problem} in {where[:2000]}"

    def _problem(self, expected: JSON, got: JSON, path: str) -> str | None:
        """What doesn't match, and where; None if all does."""
        if isinstance(expected, dict):
            if not isinstance(got, dict):
                return f"{path or 'the body'} is no object"
            for name, member in expected.items():
                here = f"{path}.{name}".lstrip(".")
                if member == "$absent":
                    if name in got:
                        return f"{here} is there"
                elif name not in got:
                    return f"{here} is missing"
                elif (problem := self._problem(member, got[name], here)) is not None:
                    return problem
            return None
        if isinstance(expected, list):
            if not isinstance(got, list) or len(got) != len(expected):
                return f"{path} isn't a list of {len(expected)}"
            pairs = enumerate(zip(expected, got, strict=True))
            return next((p for i, (e, g) in pairs if (p := self._problem(e, g, f"{path}[{i}]")) is not None), None)
        if isinstance(expected, str) and expected.startswith("$"):
            return self._word(expected, got, path)
        same = type(expected) is type(got) and expected == got
        return None if same else f"{path} is {got!r}, not {expected!r}"

    def _word(self, word: str, got: JSON, path: str) -> str | None:
        name, _, argument = word.partition(":")
        if name == "$set":
            self._saved[argument] = got
            return None
        words: dict[str, Callable[[], bool]] = {
            "$any": lambda: True,
            "$integer": lambda: type(got) is int and got >= 0,
            "$time": lambda: isinstance(got, str) and _TIME.fullmatch(got) is not None,
            "$above": lambda: type(got) is int and got > self._saved[argument],
            "$sha256": lambda: bool(got == sha256(argument.format_map(self._saved).encode()).hexdigest()),
        }
        return None if words[name]() else f"{path} is {got!r}, not {word}"
