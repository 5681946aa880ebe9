"""Plays the dialogues of `dialogues.json`, over connections of their own.

Owns what the words of that file mean ($get:X and the like), and which connection says what. Every daemon is played to by
this one player: tests', and whoever's `dhp conform` is pointed at.
"""

import json
import re
from collections.abc import Callable
from hashlib import sha256
from types import TracebackType

from .judging import JSON, Members, Unlike, is_same, shown
from .wire import Line, Wire, framed

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Words:
    """The words of one dialogue: what they stand for in what is sent, and what they ask of what comes."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._saved: dict[str, JSON] = {}

    def fill(self, value: JSON) -> JSON:
        """`value` with what was saved and the run's text put in."""
        if isinstance(value, dict):
            return {name: self.fill(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if not isinstance(value, str):
            return value
        if value.startswith("$get:"):
            return self._saved[value[5:]]
        if value.startswith("$text:"):
            return "x" * int(value[6:])
        return value.replace("$run", self._run)

    def fill_text(self, text: str, request_id: str) -> str:
        """A body as text with its id, what was saved and the run's text put in."""
        text = text.replace("$id", request_id).replace("$run", self._run)
        return re.sub(r"\$get:([a-z0-9]+)", lambda match: str(self._saved[match[1]]), text)

    def problem(self, expected: JSON, came: JSON, path: str = "") -> str | None:
        """What doesn't match, and where; None if all does."""
        if isinstance(expected, dict):
            if not isinstance(came, dict):
                return f"{path or 'the body'} is no object"
            for name, member in expected.items():
                here = f"{path}.{name}".lstrip(".")
                if member == "$absent":
                    if name in came:
                        return f"{here} is there"
                elif name not in came:
                    return f"{here} is missing"
                elif (problem := self.problem(member, came[name], here)) is not None:
                    return problem
            return None
        if isinstance(expected, list):
            if not isinstance(came, list) or len(came) != len(expected):
                return f"{path} isn't a list of {len(expected)}"
            pairs = enumerate(zip(expected, came, strict=True))
            return next((p for i, (e, c) in pairs if (p := self.problem(e, c, f"{path}[{i}]")) is not None), None)
        if isinstance(expected, str) and expected.startswith("$"):
            return self._word(expected, came, path)
        return None if is_same(expected, came) else f"{path} is {shown(came)}, not {shown(expected)}"

    def _word(self, word: str, came: JSON, path: str) -> str | None:
        name, _, argument = word.partition(":")
        if name == "$set":
            self._saved[argument] = came
            return None
        words: dict[str, Callable[[], bool]] = {
            "$any": lambda: True,
            "$integer": lambda: type(came) is int and came >= 0,
            "$time": lambda: isinstance(came, str) and _TIME.fullmatch(came) is not None,
            "$above": lambda: type(came) is int and came > self._saved[argument],
            "$sha256": lambda: bool(came == sha256(argument.format_map(self._saved).encode()).hexdigest()),
        }
        return None if words[name]() else f"{path} is {shown(came)}, not {word}"


class Conversation:
    """Plays one dialogue, all frames in one form. `open_wire` gives the connection of that name, opened anew."""

    def __init__(self, open_wire: Callable[[str], Wire], run: str, *, counted: bool) -> None:
        self._open_wire = open_wire
        self._words = Words(run)
        self._counted = counted
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
        """Carries out one step; `Unlike` where the daemon does otherwise."""
        on = step["on"]
        if "close" in step:
            self._wires.pop(on).close()
            return
        if "event" in step:
            self._match(step["event"], self._next(on, lambda body: "event" in body))
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
            body = self._words.fill_text(step["send_text"], request_id)
        else:
            request = self._words.fill(step["send"])
            request_id = request.setdefault("id", self._last_id)
            body = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
        self._wire(on).send(framed(body.encode(), counted=self._counted))
        return request_id

    def _expect(self, on: str, request_id: JSON, step: dict[str, JSON]) -> None:
        wanted = None if step["expect"].get("id") == "$absent" else request_id
        line = self._next(on, lambda body: "event" not in body and body.get("id") == wanted)
        if line.counted != self._counted:
            raise Unlike("the reply in the form of its request", shown(line.text))
        self._match(step["expect"], line)
        if "holds" in step and step["holds"] not in line.text:
            raise Unlike(f"a body that holds {step['holds']}", line.text)

    def _match(self, expected: JSON, line: Line) -> None:
        filled = self._words.fill(expected)
        problem = self._words.problem(filled, line.value)
        if problem is not None:
            raise Unlike(f"{shown(filled)}", f"{line.text[:400]}: {problem}")

    def _wire(self, on: str) -> Wire:
        if on not in self._wires:
            self._wires[on] = self._open_wire(on)
            self._unread[on] = []
        return self._wires[on]

    def _next(self, on: str, is_wanted: Callable[[Members], bool]) -> Line:
        """The next frame on this connection that is wanted; others are kept for later steps."""
        unread = self._unread.setdefault(on, [])
        for index, line in enumerate(unread):
            if is_wanted(line.value):
                return unread.pop(index)
        while True:
            came = self._wire(on).receive()
            if came is None:
                raise Unlike("an answer", f"the daemon ended the connection after {[one.text for one in unread]}")
            if is_wanted(came.value):
                return came
            unread.append(came)
