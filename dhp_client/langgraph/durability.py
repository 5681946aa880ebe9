"""Whether a graph waits for what it saves: it must, or a worker that lost its lease runs on.

Owns seeing it in what LangGraph hands to a checkpointer. Pure.

With `durability="sync"` the next node begins when the checkpoint before it is durable, and a refused one ends the run. With
"async", LangGraph's default, one more node runs meanwhile; with "exit" nothing is saved until the end, so that a successor finds
nothing. LangGraph puts the mode into a run's config only where it was said; a run without it is one with the default.
"""

from langchain_core.runnables import RunnableConfig

from ..exceptions import ClientError

_RUNTIME = "__pregel_runtime"
"""In the config of every run of a graph, and of nothing else."""
_DURABILITY = "__pregel_durability"


class DurabilityNotSync(ClientError, ValueError):
    """The graph was run without `durability="sync"`. Nothing has run yet."""

    def __init__(self, mode: str | None) -> None:
        found = "" if mode is None else f", not {mode!r}"
        super().__init__(
            'A graph that is saved in a handoff must wait for each checkpoint: pass durability="sync" to '
            f"invoke, stream, ainvoke or astream{found}."
        )


def belongs_to_run(config: RunnableConfig) -> bool:
    """Whether a run of a graph asks; else it's somebody who looks at a thread, or changes its state from outside.

    Raises `DurabilityNotSync` where the run doesn't wait. A run asks for the last checkpoint before its first node, so that is
    where it ends.
    """
    configurable = config.get("configurable", {})
    if _RUNTIME not in configurable:
        return False
    mode = configurable.get(_DURABILITY)
    if mode != "sync":
        raise DurabilityNotSync(mode)
    return True
