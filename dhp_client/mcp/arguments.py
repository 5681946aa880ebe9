"""What several tools take, with what a model is told about it."""

from typing import Annotated

from pydantic import Field

Handle = Annotated[str, Field(description="What claim or recover gave you for this work.")]
Handoff = Annotated[str, Field(description="A handoff's id: 64 hex digits.")]
MaybeHandoff = Annotated[str | None, Field(description="A handoff's id: 64 hex digits.")]
Kinds = Annotated[list[str] | None, Field(description="Kinds of work, the names they were dispatched under.")]
Reason = Annotated[str | None, Field(description="For whoever reads the history.")]
After = Annotated[int, Field(ge=0, description="What `next` of the page before gave.")]
Limit = Annotated[int, Field(ge=1, le=1_000, description="So many at most.")]
Step = Annotated[str, Field(description="Names the effect within the handoff: the same for every attempt.")]
Usd = Annotated[float | None, Field(ge=0, description="US dollars.")]
