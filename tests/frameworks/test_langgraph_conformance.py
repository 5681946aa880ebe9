"""The published suite for checkpointers, `langgraph-checkpoint-conformance`, over the async methods and over the sync ones."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import CapabilityReport

import dhp_client
import dhp_client.sync
from dhp_client.langgraph import DHPSaver

CASES = {"put": 17, "put_writes": 10, "get_tuple": 10, "list": 16, "delete_thread": 5}
NOT_THERE = {"delete_for_runs", "copy_thread", "prune"}
"""Nothing is pruned, and nothing is half copied."""


class ThroughSyncMethods(BaseCheckpointSaver[str]):
    """Answers the suite, which calls async methods, by a saver's sync ones, each in a thread as LangGraph calls them."""

    def __init__(self, saver: DHPSaver) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self._saver.get_tuple, config)

    async def alist(self, config: RunnableConfig | None, **wanted: Any) -> AsyncIterator[CheckpointTuple]:
        for found in await asyncio.to_thread(lambda: [*self._saver.list(config, **wanted)]):
            yield found

    async def aput(self, *arguments: Any) -> RunnableConfig:
        return await asyncio.to_thread(self._saver.put, *arguments)

    async def aput_writes(self, *arguments: Any, **named: Any) -> None:
        await asyncio.to_thread(self._saver.put_writes, *arguments, **named)

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self._saver.delete_thread, thread_id)


async def judged(make: Callable[[], BaseCheckpointSaver[str]]) -> CapabilityReport:
    @checkpointer_test(name="DHPSaver")
    async def checkpointer() -> AsyncIterator[BaseCheckpointSaver[str]]:
        yield make()

    return await validate(checkpointer)


def check(report: CapabilityReport) -> None:
    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert failures == {}
    assert report.passed_all_base()
    assert report.passed_all()
    assert {name: one.tests_passed for name, one in report.results.items() if one.detected} == CASES
    assert {name for name, one in report.results.items() if not one.detected} == NOT_THERE


async def test_the_async_methods_conform(client: dhp_client.Client) -> None:
    check(await judged(lambda: DHPSaver(client)))


async def test_the_sync_methods_conform(sync_client: dhp_client.sync.Client) -> None:
    check(await judged(lambda: ThroughSyncMethods(DHPSaver(sync_client))))
