"""What the tests of output schemas share: verdicts in one call, and bounds that are reached soon."""

import json
from typing import Any

from dhp_protocol.errors import SchemaInvalid
from dhpd.sandbox.bounds import Bounds
from dhpd.schemas.compiling import Validator, compile_schema
from dhpd.schemas.patterns import compile_pattern
from dhpd.schemas.verdicts import judge

STEPS = 1_000_000
SOON = Bounds(steps=200_000, cpu_s=0.3, wall_s=20.0)
"""What takes longer takes too long, so that a test needn't wait for it."""

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019_09 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"


def text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def compiled(schema: Any) -> Validator:
    return compile_schema(text(schema), compile_pattern)


def verdict(schema: Any, result: Any) -> tuple[str, str] | None:
    """The path and rule that speak against `result`; None where it fits. Either may be JSON text as bytes."""
    refusal = judge(compiled(schema), text(result), STEPS)
    return None if refusal is None else (refusal.details["path"], refusal.details["rule"])


def sentence(schema: Any, result: Any) -> str:
    """What is told of a `result` that doesn't fit."""
    refusal = judge(compiled(schema), text(result), STEPS)
    assert refusal is not None, "it fits"
    return refusal.message


def refused(schema: Any) -> tuple[str, str]:
    """The path and rule by which `schema` is refused."""
    try:
        compiled(schema)
    except SchemaInvalid as error:
        return error.details["path"], error.details["rule"]
    raise AssertionError(f"accepted: {schema!r}")
