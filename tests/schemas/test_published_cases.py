"""The JSON Schema project's own cases, read where they lie: no wrong verdict, and few refusals."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dhp_protocol.errors import SchemaInvalid

from .support import DRAFT_7, compiled, verdict

CASES = Path(__file__).parents[3] / "shared" / "json-schema-test-suite"
DRAFTS = ("draft7", "draft2019-09", "draft2020-12")
MOST_REFUSED = 0.15

needs_cases = pytest.mark.skipif(
    not CASES.is_dir() and not os.environ.get("CI"),
    reason=f"the published cases of the JSON Schema project aren't at {CASES}",
)


class Group(NamedTuple):
    """One schema and what is published about it."""

    name: str
    schema: Any
    tests: list[dict[str, Any]]


class Outcome(NamedTuple):
    """How many cases were judged; how many were refused, by rule; which verdicts were wrong."""

    judged: int
    refused: Counter[str]
    wrong: list[str]

    @property
    def share_refused(self) -> float:
        return self.refused.total() / (self.judged + self.refused.total())


def groups(draft: str, *, declared: bool) -> Iterator[Group]:
    for file in sorted((CASES / draft).glob("*.json")):
        for group in json.loads(file.read_text()):
            schema = group["schema"]
            if declared and draft == "draft7" and isinstance(schema, dict):
                schema = {"$schema": DRAFT_7, **schema}  # The cases of that draft leave it out.
            yield Group(f"{file.stem}: {group['description']}", schema, group["tests"])


def run(draft: str, *, declared: bool) -> Outcome:
    judged, wrong = 0, []
    refused: Counter[str] = Counter()
    for group in groups(draft, declared=declared):
        try:
            compiled(group.schema)
        except SchemaInvalid as error:
            refused[error.details["rule"]] += len(group.tests)
            continue
        for test in group.tests:
            judged += 1
            found = verdict(group.schema, test["data"])
            if (found is None) != test["valid"]:
                wrong.append(f"{group.name}: {test['description']}: {found}")
    outcome = Outcome(judged, refused, wrong)
    print(
        f"{draft}{'' if declared else ' undeclared'}: {judged} judged, {len(wrong)} wrong, {refused.total()} refused"
        f" ({outcome.share_refused:.1%}, those that need fetching among them): {dict(refused)}"
    )
    return outcome


@needs_cases
@pytest.mark.parametrize("draft", DRAFTS)
def test_no_verdict_is_wrong_and_few_schemas_are_refused(draft: str) -> None:
    outcome = run(draft, declared=True)
    assert outcome.judged > 800, "where have the cases gone?"
    assert not outcome.wrong, "\n".join(outcome.wrong)
    assert outcome.share_refused <= MOST_REFUSED, "counted with those that need fetching, which needn't be"


@needs_cases
def test_a_schema_of_draft_7_that_does_not_say_so_is_never_judged_wrongly() -> None:
    outcome = run("draft7", declared=False)
    assert outcome.judged > 700, "where have the cases gone?"
    assert not outcome.wrong, "\n".join(outcome.wrong)
