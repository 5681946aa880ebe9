"""What holds for every test: the event loop, a limit on time that works on it, seeds that are shown, no silent skips."""

import asyncio
import functools
import gc
import inspect
import os
import random
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any

import hypothesis
import pytest
import uvloop

ASYNC_TEST_TIMEOUT_S = 60.0

# Each test's daemon has a directory of its own: the usual ballast in hundreds of them would fill a disk.
os.environ.setdefault("DHPD_BALLAST_BYTES", str(2 * 1024 * 1024))

# Without bytecode on disk each of the hundreds of processes that are started here compiles all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

hypothesis.settings.register_profile("dhp", deadline=None, print_blob=True)
hypothesis.settings.load_profile("dhp")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Async tests run on the loop that the daemon runs on."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # pytest-timeout can't interrupt uvloop: it only ends the whole run. So the coroutine itself is given a limit.
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        marker = item.get_closest_marker("timeout")
        seconds = float(marker.args[0]) - 1 if marker is not None and marker.args else ASYNC_TEST_TIMEOUT_S
        if inspect.iscoroutinefunction(item.obj):
            item.obj = _within(seconds, item.obj)
        elif inspect.iscoroutinefunction(inner := getattr(getattr(item.obj, "hypothesis", None), "inner_test", None)):
            item.obj.hypothesis.inner_test = _within(seconds, inner)


def pytest_collection_finish() -> None:
    gc.freeze()  # Modules and tests stay: looking through them again and again is a quarter of what busy tests cost.


def _within(seconds: float, function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(function)
    async def bounded(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(seconds):
            await function(*args, **kwargs)

    return bounded


@pytest.fixture
def seed() -> int:
    """A seed for a test's randomness; a failing test shows it, and `DHP_SEED` sets it."""
    chosen = int(os.environ.get("DHP_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed {chosen} (run again with DHP_SEED={chosen})")
    return chosen


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Randomness that a failing test's output is enough to repeat."""
    return random.Random(seed)


def _skips_count_as_failures() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and _skips_count_as_failures():
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be: {_reason(report.longrepr)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped and _skips_count_as_failures():
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be: {_reason(report.longrepr)}"
    return report


def _reason(longrepr: object) -> str:
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
