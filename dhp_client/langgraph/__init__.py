"""A LangGraph checkpointer: a thread is a handoff, and what a graph saves are the entries of its journal. `pip install 'dhpd[langgraph]'`.

`DHPSaver(task)` saves the graph that a worker runs in its task; `DHPSaver(client)` the threads of an interactive program.
Nothing else of `dhp_client` imports this, or LangGraph.
"""

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as missing:
    raise ImportError("dhp_client.langgraph needs LangGraph: pip install 'dhpd[langgraph]'.") from missing

from .durability import DurabilityNotSync
from .saver import DHPSaver
from .values import TypeNotAllowed

__all__ = ["DHPSaver", "DurabilityNotSync", "TypeNotAllowed"]
