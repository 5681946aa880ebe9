"""Output schemas: checked when dispatched, and results against them.

Owns how a JSON Schema becomes a verdict. A plain check: references stay inside the schema (nothing is fetched), `format` is
annotation, defaults are not written into results. Does not own when a result is judged.
"""

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import fastjsonschema

from dhp_protocol.errors import ResultInvalid, SchemaInvalid

MAX_COMPILED = 256

Validator = Callable[[Any], Any]


class Schemas:
    """Compiled schemas, the recently used ones, by handoff."""

    def __init__(self) -> None:
        self._compiled: OrderedDict[str, Validator] = OrderedDict()

    def known(self, handoff: str) -> bool:
        """Whether the handoff's schema is at hand."""
        return handoff in self._compiled

    def take_up(self, handoff: str, schema: bytes) -> None:
        """Compiles the handoff's schema; raises `SchemaInvalid` (details: `path`, `rule`)."""
        self._compiled[handoff] = _compile(schema)
        while len(self._compiled) > MAX_COMPILED:
            self._compiled.popitem(last=False)

    def judge(self, handoff: str, result: bytes) -> ResultInvalid | None:
        """What the handoff's schema, which is `known`, says of `result`; None: it fits."""
        validate = self._compiled[handoff]
        self._compiled.move_to_end(handoff)
        try:
            value = json.loads(result)
        except (ValueError, RecursionError):
            return ResultInvalid(
                "The result can't be read as JSON values: mend it and send it again.", path="", rule="json"
            )
        try:
            validate(value)
        except fastjsonschema.JsonSchemaValueException as error:
            path = "".join(f"/{_escaped(str(step))}" for step in error.path[1:])
            return ResultInvalid(f"The result doesn't fit: {_short(error.message)}.", path=path, rule=error.rule or "")
        except Exception:  # A compiled schema raises a dozen foreign exceptions; none of them is a verdict of "fits".
            return ResultInvalid("The output schema can't be applied to this result.", path="", rule="schema")
        return None


def _compile(schema: bytes) -> Validator:
    value = json.loads(schema)
    _refuse_remote(value, "")
    try:
        compiled: Validator = fastjsonschema.compile(
            value,
            handlers=dict.fromkeys(("", "http", "https", "ftp", "file", "data"), _no_fetching),
            use_default=False,
            use_formats=False,
        )
    except Exception as error:  # It raises whatever its code generator stumbles over.
        raise SchemaInvalid(f"The output schema can't be used: {_short(str(error))}.", path="", rule="schema") from None
    return compiled


def _no_fetching(uri: str) -> None:
    raise SchemaInvalid(
        f"The output schema refers to {uri[:100]}: nothing is fetched, put it into $defs.", path="", rule="$ref"
    )


def _refuse_remote(value: Any, path: str) -> None:
    """References may only point into the schema itself."""
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            sentence = f"The output schema refers to {reference[:100]}: nothing is fetched, put it into $defs."
            raise SchemaInvalid(sentence, path=path, rule="$ref")
        for name, member in value.items():
            _refuse_remote(member, f"{path}/{_escaped(name)}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_remote(item, f"{path}/{index}")


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:300]}…"
