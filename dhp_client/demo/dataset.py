"""What the demo makes of pages: one row each, the table of them as CSV, and the schema of the result.

Pure. Does not fetch, and knows nothing of handoffs.
"""

import csv
import hashlib
import io
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any, TypedDict


class Row(TypedDict):
    """What is kept of one page; `bytes` and `sha256` are those of its body, `links` counts what it links to.

    `status` is the answer's, or 0 where there was none: `title` says why then.
    """

    url: str
    status: int
    bytes: int
    sha256: str
    title: str
    links: int


class Result(TypedDict):
    """What the handoff is completed with."""

    pages: int
    bytes: int
    links: int
    csv_sha256: str
    rows: list[Row]


_ROW_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": list(Row.__annotations__),
    "additionalProperties": False,
    "properties": {
        "url": {"type": "string", "minLength": 1},
        "status": {"type": "integer", "minimum": 0, "maximum": 599},
        "bytes": {"type": "integer", "minimum": 0},
        "sha256": {"type": "string", "minLength": 64, "maxLength": 64},
        "title": {"type": "string", "maxLength": 200},
        "links": {"type": "integer", "minimum": 0},
    },
}


def result_schema(pages: int) -> dict[str, Any]:
    """The JSON Schema of the result for so many pages."""
    return {
        "type": "object",
        "required": list(Result.__annotations__),
        "additionalProperties": False,
        "properties": {
            "pages": {"const": pages},
            "bytes": {"type": "integer", "minimum": 0},
            "links": {"type": "integer", "minimum": 0},
            "csv_sha256": {"type": "string", "minLength": 64, "maxLength": 64},
            "rows": {"type": "array", "minItems": pages, "maxItems": pages, "items": _ROW_SCHEMA},
        },
    }


def row_of(url: str, status: int, body: bytes) -> Row:
    """The row for one answered request."""
    reader = _PageReader()
    reader.feed(body.decode("utf-8", errors="replace"))
    reader.close()
    return Row(
        url=url,
        status=status,
        bytes=len(body),
        sha256=hashlib.sha256(body).hexdigest(),
        title=" ".join("".join(reader.title).split())[:200],
        links=reader.links,
    )


def row_without_answer(url: str, why: str) -> Row:
    """The row for a page that couldn't be had."""
    return Row(url=url, status=0, bytes=0, sha256=hashlib.sha256(b"").hexdigest(), title=why[:200], links=0)


def result_of(rows: Sequence[Row]) -> Result:
    """The result that these rows add up to."""
    return Result(
        pages=len(rows),
        bytes=sum(row["bytes"] for row in rows),
        links=sum(row["links"] for row in rows),
        csv_sha256=hashlib.sha256(csv_of(rows)).hexdigest(),
        rows=list(rows),
    )


def csv_of(rows: Sequence[Row]) -> bytes:
    """The table as CSV (RFC 4180) in UTF-8, with a line of names first."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(Row.__annotations__))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


class _PageReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.title: list[str] = []
        self.links = 0
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a" and any(name == "href" for name, _ in attrs):
            self.links += 1
        elif tag == "title" and not self.title:
            self._in_title = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
