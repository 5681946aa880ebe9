"""Durability for Pydantic AI agents: each step of a run is an entry of its handoff's journal. `pip install 'dhpd[pydantic-ai]'`.

    agent = Agent(model, name="clerk", toolsets=[tools], capabilities=[DHPDurability()])

    async with client.claim(kinds="question") as task, journaled(task):
        answer = await agent.run(task.inputs["text"])
        await task.complete(answer.output)

Steps are model requests, tool calls and what toolsets say they have. When the worker dies, the next one's run gets the results of the
steps that had finished, and carries out the rest. Owns the numbering of steps; the journal is `journal`'s, what a step is
Pydantic AI's. Nothing else of `dhp_client` imports this.
"""

import collections
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import msgspec

try:
    from pydantic_ai.capabilities import WrapRunHandler
    from pydantic_ai.durable_exec import (
        JSON_CODEC,
        BaseDurabilityCapability,
        DurabilityEngineSpec,
        DurableOperationId,
        JournalCallableOperationBackend,
        RoleBasedOperationConfig,
        conversation_id_from_run_id,
        record_durable_unit,
        replay_scope,
    )
    from pydantic_ai.run import AgentRunResult
    from pydantic_ai.tools import AgentDepsT, RunContext
except ImportError as missing:
    raise ImportError("dhp_client.pydantic_ai needs Pydantic AI: pip install 'dhpd[pydantic-ai]'.") from missing

from .journal import Journal
from .task import Task

__all__ = ["DHPDurability", "Step", "journaled"]


class Step(msgspec.Struct, frozen=True, tag_field="pydantic_ai", tag="step"):
    """A finished step: the `number`-th one of that name, from 0, and its result as JSON. Names are Pydantic AI's."""

    name: str
    number: int
    result: Any


class Replay:
    """The steps of one attempt, in the light of those that earlier attempts have finished."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.journal: Journal[Step]
        self._finished: dict[tuple[str, int], Any] = {}
        self._begun: collections.Counter[str] = collections.Counter()
        self._running: set[str] = set()

    def fold(self, step: Step) -> None:
        """Takes in a finished step."""
        self._finished[step.name, step.number] = step.result

    def next_number(self, name: str) -> int:
        """How many of that name were before in this attempt. Every attempt counts alike, as long as it does the same in the same order."""
        self._begun[name] += 1
        return self._begun[name] - 1

    @contextlib.contextmanager
    def running(self, agent: str) -> Iterator[None]:
        """Around a run. Two at once of one agent couldn't be told apart: they would get each other's results."""
        if agent in self._running:
            raise RuntimeError(
                f"The agent {agent!r} runs twice at once in one task: wait for the first run, or give each a task of its own."
            )
        self._running.add(agent)
        try:
            yield
        finally:
            self._running.discard(agent)

    async def step(self, name: str, body: Callable[[], Awaitable[Any]]) -> Any:
        """What `body` comes to, now or in an earlier attempt."""
        number = self.next_number(name)
        if (name, number) in self._finished:
            record_durable_unit(executed=False)
            return self._finished[name, number]
        self.task._check()  # Whoever has lost the lease begins nothing any more.
        token = _replay.set(None)  # An agent that a tool runs is a part of this step, and has none of its own.
        try:
            result = await body()
        finally:
            _replay.reset(token)
        await self.journal.append(Step(name, number, result))
        record_durable_unit(executed=True)
        return result


_replay: "ContextVar[Replay | None]" = ContextVar("replay", default=None)


@contextlib.asynccontextmanager
async def journaled(task: Task) -> AsyncIterator[None]:
    """Agents with `DHPDurability` that run inside keep their steps in `task`, and go on where an earlier attempt got to.

    The work must have been dispatched with `keep_checkpoints=dhp_client.KEEP_ALL`, and no other checkpoints may be taken of
    it (`NoJournal`). Every attempt must run the same agents in the same order, and one agent once at a time. A step that was under
    way when its worker died is carried out again: a tool that acts on the outside world does so in `task.effect`. An agent
    that a tool runs is a part of that tool's step.
    """
    replay = Replay(task)
    replay.journal = await Journal.open(task, Step, replay.fold)
    token = _replay.set(replay)
    try:
        with replay_scope():
            yield
    finally:
        _replay.reset(token)


class _Backend(JournalCallableOperationBackend[None]):
    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: None,
    ) -> object:
        replay = _replay.get()
        return await (body() if replay is None else replay.step(name, body))


class DHPDurability(BaseDurabilityCapability[AgentDepsT]):
    """The capability that makes an agent durable inside of `journaled(task)`; elsewhere it changes nothing.

    The agent needs a `name`, its toolsets an `id`: both are in the names of its steps, so that changing them makes work
    in progress begin anew. Toolsets that are only given to a run are refused. Tools are called one after the other.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="DHP",
        durable_unit_noun="step",
        durable_container_noun="task",
        codec=JSON_CODEC,
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        sequential_tools_in_durable_context=True,
        unsupported_runtime_toolset_kinds=frozenset(("function", "mcp", "dynamic")),
    )

    @property
    def in_durable_context(self) -> bool:
        return _replay.get() is not None

    def get_default_run_id(self) -> str | None:
        replay = _replay.get()
        if replay is None:
            return None
        return f"{replay.task.handoff}:{self.name}:{replay.next_number(f'{self.name}__run')}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        replay = _replay.get()
        if replay is None:
            return await super().wrap_run(ctx, handler=handler)
        with replay.running(self.name):
            return await super().wrap_run(ctx, handler=handler)

    def get_durable_operation_backend(self) -> JournalCallableOperationBackend[None]:
        return _Backend(
            agent_name=self.name,
            default_model_id=self.default_model_id,
            config=RoleBasedOperationConfig(model=None, event=None, capability=None, tool=None),
        )
