"""Changing one member of a JSON text, and nothing else: not a blank, and no comment.

Owns reading JSON as editors write it (comments, commas at ends) with the place of each member, and putting one in or taking one out.
Pure. Raises `NotChanged` where the text isn't such JSON.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from .refusals import NotChanged

MAX_DEPTH = 100
_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"')
_OTHER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_INDENT = re.compile(r'\n([ \t]+)"')
_BYTE_ORDER_MARK = "\ufeff"


class Member(Struct):
    """One member of an object: where its name begins, and its comma stands (None: there is none)."""

    name: str
    start: int
    node: "Node"
    comma: int | None = None


class Node(Struct):
    """One value: its place, what it is, and, of an object, its members."""

    start: int
    end: int
    value: Any
    members: list[Member] | None = None

    def member(self, name: str) -> Member | None:
        found = [member for member in self.members or () if member.name == name]
        if len(found) > 1:
            raise NotChanged(f"{name} stands there twice")
        return found[0] if found else None


def read(text: str) -> Any:
    """What the text holds; None where it is blank."""
    root = _root(text)
    return None if root is None else root.value


def with_value(text: str, path: Sequence[str], value: Any) -> str:
    """The text, in which the member at `path` is `value`; the objects on the way there are made where they are missing."""
    root = _root(text)
    if root is None:
        whole: Any = value
        for name in reversed(path):
            whole = {name: whole}
        return f"{text}{json.dumps(whole, indent=2, ensure_ascii=False)}\n"
    node, depth = root, 0
    while True:
        if node.members is None:
            raise NotChanged(f"{'.'.join(path[:depth]) or 'the whole'} is no object")
        member = node.member(path[depth])
        if member is None:
            break
        node, depth = member.node, depth + 1
        if depth == len(path):
            if node.value == value:
                return text
            indent = _indent_of(text, member.start)
            return text[: node.start] + _dumped(value, text, indent) + text[node.end :]
    for name in reversed(path[depth + 1 :]):
        value = {name: value}
    return _put_first(text, node, path[depth], value)


def without(text: str, path: Sequence[str]) -> str:
    """The text without the member at `path`."""
    root = _root(text)
    node, member = root, None
    for name in path:
        member = None if node is None else node.member(name)
        if member is None or node is None:
            return text
        parent, node = node, member.node
    assert member is not None, "the path names a member"
    return _taken_out(text, parent, member)


def _put_first(text: str, parent: Node, name: str, value: Any) -> str:
    """First, since behind the last one a comma or a comment may stand."""
    assert parent.members is not None
    opened = parent.start + 1
    closing = parent.end - 1
    first = parent.members[0] if parent.members else None
    named = f"{json.dumps(name, ensure_ascii=False)}: "
    if first is not None and "\n" not in text[opened : first.start]:
        compact = json.dumps(value, ensure_ascii=False)
        return f"{text[:opened]}{named}{compact}, {text[opened:].lstrip(' ')}"
    outer = _indent_of(text, parent.start)
    indent = _indent_of(text, first.start) if first is not None else outer + _unit(text)
    newline = _newline(text)
    put = f"{newline}{indent}{named}{_dumped(value, text, indent)}"
    if first is not None:
        return f"{text[:opened]}{put},{text[opened:]}"
    blank = not text[opened:closing].strip()
    rest = f"{newline}{outer}{text[closing:]}" if blank else text[opened:]
    return f"{text[:opened]}{put}{rest}"


def _taken_out(text: str, parent: Node, member: Member) -> str:
    assert parent.members is not None
    index = parent.members.index(member)
    if member.comma is not None:
        start, end = member.start, member.comma + 1
        line_start, line_end = text.rfind("\n", 0, start) + 1, text.find("\n", end)
        following = parent.members[index + 1].start if index + 1 < len(parent.members) else parent.end - 1
        if line_end >= 0 and not (text[line_start:start] + text[end:line_end]).strip():
            start, end = line_start, line_end + 1
        elif not text[end:following].strip():
            end = following
        return text[:start] + text[end:]
    if index == 0:
        blank = not (text[parent.start + 1 : member.start] + text[member.node.end : parent.end - 1]).strip()
        start, end = (parent.start + 1, parent.end - 1) if blank else (member.start, member.node.end)
        return text[:start] + text[end:]
    comma = parent.members[index - 1].comma
    assert comma is not None, "a comma stands between two members"
    between = text[comma + 1 : member.start]
    return text[:comma] + (between if between.strip() else "") + text[member.node.end :]


def _root(text: str) -> Node | None:
    start = _BLANK.match(text, len(_BYTE_ORDER_MARK) if text.startswith(_BYTE_ORDER_MARK) else 0)
    assert start is not None, "it matches nothing at all, too"
    if start.end() == len(text):
        return None
    node = _node(text, start.end(), 0)
    if _skip(text, node.end) != len(text):
        raise _wrong(text, node.end)
    return node


def _node(text: str, at: int, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise NotChanged("it is nested too deeply")
    character = text[at : at + 1]
    if character == "{":
        return _object(text, at, depth)
    if character == "[":
        return _array(text, at, depth)
    match = _STRING.match(text, at) or _OTHER.match(text, at)
    if match is None:
        raise _wrong(text, at)
    try:
        return Node(at, match.end(), json.loads(match[0]))
    except ValueError:
        raise NotChanged("it holds a number of thousands of digits") from None


def _object(text: str, start: int, depth: int) -> Node:
    members: list[Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        if members and members[-1].comma is None:
            raise _wrong(text, at)
        name = _STRING.match(text, at)
        if name is None:
            raise _wrong(text, at)
        colon = _skip(text, name.end())
        if text[colon : colon + 1] != ":":
            raise _wrong(text, colon)
        node = _node(text, _skip(text, colon + 1), depth + 1)
        member = Member(json.loads(name[0]), at, node)
        members.append(member)
        at = _skip(text, node.end)
        if text[at : at + 1] == ",":
            member.comma = at
            at = _skip(text, at + 1)
    return Node(start, at + 1, {member.name: member.node.value for member in members}, members)


def _array(text: str, start: int, depth: int) -> Node:
    values: list[Any] = []
    at, comma = _skip(text, start + 1), True
    while text[at : at + 1] != "]":
        if not comma:
            raise _wrong(text, at)
        node = _node(text, at, depth + 1)
        values.append(node.value)
        at = _skip(text, node.end)
        comma = text[at : at + 1] == ","
        if comma:
            at = _skip(text, at + 1)
    return Node(start, at + 1, values)


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    assert blank is not None, "it matches nothing at all, too"
    return blank.end()


def _wrong(text: str, at: int) -> NotChanged:
    return NotChanged(f"it is no JSON: see line {text.count(chr(10), 0, at) + 1}")


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found is not None else "  "


def _indent_of(text: str, at: int) -> str:
    """What the line begins with in which `at` lies."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _dumped(value: Any, text: str, indent: str) -> str:
    unit = _unit(text)
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return f"{_newline(text)}{indent}".join(lines)
