"""Output schemas as the desk sees them: checked when dispatched, and results against them.

Owns what is cheap enough to be done on the event loop, which is most of it, and which schemas are kept at hand. All else is
asked of the sandbox; so no schema and no result takes the loop longer than about a millisecond.
"""

from collections import OrderedDict
from weakref import WeakValueDictionary

from dhp_protocol.errors import ResultInvalid, SchemaInvalid
from dhpd.sandbox.bounds import BeyondBounds
from dhpd.sandbox.fairness import Asker
from dhpd.sandbox.queueing import Queue
from dhpd.schemas.compiling import Validator, compile_schema
from dhpd.schemas.sites import Search
from dhpd.schemas.verdicts import beyond_bounds, judge, schema_beyond_bounds

CHEAP_SCHEMA_BYTES = 2_048
CHEAP_SUBSCHEMAS = 32
CHEAP_RESULT_BYTES = 4_096
CHEAP_STEPS = 1_000
"""A step takes less than a microsecond, as does a byte to read; a subschema about 20 to compile."""

MAX_HELD_HANDOFFS = 4_096
MAX_HELD_BYTES = 16 * 1024 * 1024
MAX_COMPILED_SUBSCHEMAS = 400
"""Each is made of a dozen small objects that the collector looks at, and is compiled again in no time."""


class NotHere(Exception):
    """It may take long: await the method of the same name without `_here`."""


class _Held:
    """A schema at hand; handoffs with the same text share one."""

    __slots__ = ("__weakref__", "cheap", "schema", "validator")

    def __init__(self, schema: bytes) -> None:
        self.schema = schema
        self.cheap = len(schema) <= CHEAP_SCHEMA_BYTES
        self.validator: Validator | None = None

    def compile(self) -> Validator:
        """Raises `NotHere`, and `SchemaInvalid`."""
        if not self.cheap:
            raise NotHere
        if self.validator is None:
            try:
                self.validator = compile_schema(self.schema, _no_pattern, max_subschemas=CHEAP_SUBSCHEMAS)
            except (NotHere, RecursionError):
                self.cheap = False
            except SchemaInvalid as error:
                if error.details["rule"] != "limit":
                    raise
                self.cheap = False
            if self.validator is None:
                raise NotHere
        return self.validator


class Schemas:
    """The schemas of handoffs that were dispatched or completed lately."""

    def __init__(self, queue: Queue) -> None:
        """`queue` is where what isn't cheap is asked."""
        self._queue = queue
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._held_bytes = 0
        self._compiled: OrderedDict[_Held, None] = OrderedDict()
        self._compiled_subschemas = 0
        self._by_text: WeakValueDictionary[bytes, _Held] = WeakValueDictionary()

    def known(self, handoff: str) -> bool:
        """Whether the handoff's schema is at hand, so that results can be judged."""
        return handoff in self._held

    def take_up(self, handoff: str, schema: bytes) -> None:
        """Keeps at hand a schema that was found good when it was dispatched."""
        self._hold(handoff, self._by_text.get(schema) or _Held(schema))

    def check_here(self, handoff: str, schema: bytes) -> None:
        """Takes up the schema of a handoff that is being dispatched; raises `SchemaInvalid`, and `NotHere`."""
        held = self._by_text.get(schema)
        if held is None:
            held = _Held(schema)
            self._compile(held)
        self._hold(handoff, held)

    async def check(self, handoff: str, schema: bytes, asker: Asker) -> None:
        """As `check_here`, whatever it takes; raises `SchemaInvalid`, and `Overloaded`."""
        if schema not in self._by_text:
            try:
                await self._queue.ask(asker, "check", schema)
            except BeyondBounds:
                raise schema_beyond_bounds() from None
        self.take_up(handoff, schema)

    def judge_here(self, handoff: str, result: bytes) -> ResultInvalid | None:
        """What the handoff's schema, which is `known`, says of `result`; None: it fits. Raises `NotHere`."""
        held = self._held[handoff]
        self._held.move_to_end(handoff)
        if len(result) > CHEAP_RESULT_BYTES:
            raise NotHere
        try:
            validator = self._compile(held)
        except SchemaInvalid as error:
            return _unusable(error)
        verdict = judge(validator, result, CHEAP_STEPS)
        if verdict is not None and verdict.details["rule"] == "limit":
            raise NotHere
        return verdict

    async def judge(self, handoff: str, result: bytes, asker: Asker) -> ResultInvalid | None:
        """As `judge_here`, whatever it takes; raises `Overloaded`."""
        try:
            await self._queue.ask(asker, "judge", self._held[handoff].schema, result)
        except ResultInvalid as verdict:
            return verdict
        except SchemaInvalid as error:
            return _unusable(error)
        except BeyondBounds:
            return beyond_bounds()
        return None

    def _compile(self, held: _Held) -> Validator:
        validator = held.compile()
        if held not in self._compiled:
            self._compiled[held] = None
            self._compiled_subschemas += validator.size
        self._compiled.move_to_end(held)
        while self._compiled_subschemas > MAX_COMPILED_SUBSCHEMAS:
            dropped, _ = self._compiled.popitem(last=False)
            if dropped.validator is not None:
                self._compiled_subschemas -= dropped.validator.size
                dropped.validator = None
        return validator

    def _hold(self, handoff: str, held: _Held) -> None:
        before = self._held.pop(handoff, None)
        self._held[handoff] = self._by_text[held.schema] = held
        self._held_bytes += len(held.schema) - (len(before.schema) if before is not None else 0)
        while len(self._held) > MAX_HELD_HANDOFFS or (self._held_bytes > MAX_HELD_BYTES and len(self._held) > 1):
            _, dropped = self._held.popitem(last=False)
            self._held_bytes -= len(dropped.schema)


def _no_pattern(source: str) -> Search:
    raise NotHere


def _unusable(error: SchemaInvalid) -> ResultInvalid:
    """No result can fit a schema that can't be enforced; such a one is refused at dispatch, unless another version took it."""
    return ResultInvalid(f"No result can fit: {error.message}", path="", rule=str(error.details["rule"]))
