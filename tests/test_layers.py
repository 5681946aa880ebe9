"""Imports point one way: dhp_protocol <- dhpd.engine <- dhpd.store <- dhpd.server, and dhp_protocol <- dhp_client.

The pure layers do no I/O and read no clock: what they could do it with isn't imported there. What a program doesn't use isn't loaded
at its start.
"""

import ast
import graphlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dhp_client

from .support.daemon_process import DaemonProcess

ROOT = Path(__file__).parent.parent
SOURCES = {"dhp_protocol": ROOT / "protocol" / "dhp_protocol", "dhpd": ROOT / "dhpd", "dhp_client": ROOT / "dhp_client"}
OURS = frozenset(SOURCES)

MAY_IMPORT = {
    "dhp_protocol": ("dhp_protocol",),
    "dhpd.engine": ("dhp_protocol", "dhpd.engine"),
    "dhpd.store": ("dhp_protocol", "dhpd.engine", "dhpd.store"),
    "dhpd.schemas": ("dhp_protocol", "dhpd.schemas"),
    "dhpd.sandbox": ("dhp_protocol", "dhpd.engine", "dhpd.schemas", "dhpd.sandbox"),
    "dhpd": ("dhp_protocol", "dhpd"),
    "dhp_client": ("dhp_protocol", "dhp_client"),
}
"""Which of our own modules each layer may import. The longest prefix that fits a module is its layer."""

PURE = ("dhp_protocol", "dhpd.engine", "dhpd.schemas")
IMPURE_MODULES = frozenset(
    (
        "aiosqlite",
        "asyncio",
        "concurrent",
        "importlib",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "queue",
        "random",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "uuid",
        "uvloop",
    )
)
IMPURE_FUNCTIONS = frozenset(("open", "print", "input"))
IMPURE_METHODS = frozenset(("now", "utcnow", "today"))
"""`datetime.now` reads a clock as well as `time.time` does."""

CLOCKS = ("dhpd.server.clock", "dhp_client.clock", "dhp_client.demo")
"""Where each program reads the time; the demo is a program of its own."""


def layer_of(module: str) -> str:
    return max((layer for layer in MAY_IMPORT if within(module, layer)), key=len)


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def modules() -> Iterator[tuple[str, Path]]:
    for package, directory in SOURCES.items():
        for path in sorted(directory.rglob("*.py")):
            parts = (package, *path.relative_to(directory).with_suffix("").parts)
            yield ".".join(part for part in parts if part != "__init__"), path


def imports(module: str, tree: ast.AST, *, is_package: bool) -> Iterator[str]:
    """Every module that is imported anywhere in the file, inside of functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: len(module.split(".")) - node.level + is_package]
            yield from (".".join([*base, *([node.module] if node.module else []), alias.name]) for alias in node.names)


def faults(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """What in this module breaks the rules."""
    tree = ast.parse(source)
    allowed = MAY_IMPORT[layer_of(module)]
    found = []
    for name in imports(module, tree, is_package=is_package):
        top = name.split(".")[0]
        if top in OURS and not any(within(name, package) for package in allowed):
            found.append(f"{module} imports {name}")
        if top in IMPURE_MODULES and any(within(module, pure) for pure in PURE):
            found.append(f"{module} is pure and imports {name}")
        if top == "time" and not any(within(module, clock) for clock in CLOCKS):
            found.append(f"{module} imports time: take a clock as an argument")
    if any(within(module, pure) for pure in PURE):
        found += [f"{module} is pure and calls {name}" for name in impure_calls(tree)]
    return found


def impure_calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_FUNCTIONS:
                yield name
            case ast.Call(func=ast.Attribute(attr=name)) if name in IMPURE_METHODS:
                yield name


class WhatRunsAtImport(ast.NodeTransformer):
    """Leaves out what is imported for the sake of types, or later."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if for_types else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        return None

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        return None


def order_of_import(sources: dict[str, tuple[str, bool]]) -> list[str]:
    """The modules (their source, and whether each is a package), each behind what it imports; raises `CycleError`."""
    needed: dict[str, set[str]] = {}
    for module, (source, is_package) in sources.items():
        tree = WhatRunsAtImport().visit(ast.parse(source))
        found = needed[module] = set()
        for name in imports(module, tree, is_package=is_package):
            while name and name not in sources:
                name = name.rpartition(".")[0]
            if name and name != module:
                found.add(name)
    return list(graphlib.TopologicalSorter(needed).static_order())


def test_no_modules_import_each_other_in_a_circle() -> None:
    sources = {module: (path.read_text(), path.name == "__init__.py") for module, path in modules()}
    assert set(order_of_import(sources)) == set(sources)


def test_a_circle_is_found_and_what_is_for_types_is_none() -> None:
    first = ("from .second import thing", False)
    with pytest.raises(graphlib.CycleError):
        order_of_import({"p.first": first, "p.second": ("from p import first", False)})
    for_types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .first import other"
    later = "def late():\n    from .first import other"
    for source in (for_types, later):
        assert order_of_import({"p.first": first, "p.second": (source, False)}) == ["p.second", "p.first"]


def test_every_module_keeps_to_its_layer() -> None:
    seen = list(modules())
    assert {layer_of(module) for module, _ in seen} == set(MAY_IMPORT), "a layer has no module: are the paths right?"
    found = [
        fault
        for module, path in seen
        for fault in faults(module, path.read_text(), is_package=path.name == "__init__.py")
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dhp_protocol.framing", "import dhpd.engine.facts"),
        ("dhp_protocol.framing", "from dhp_client import connect"),
        ("dhp_protocol.framing", "import socket"),
        ("dhpd.engine.core", "from dhpd.store import sqlite"),
        ("dhpd.engine.core", "from ..store.sqlite import SqliteStore"),
        ("dhpd.engine.core", "from .. import config"),
        ("dhpd.engine.core", "def late():\n    import asyncio"),
        ("dhpd.engine.core", "from concurrent.futures import Future"),
        ("dhpd.engine.core", "import datetime\nat = datetime.datetime.now()"),
        ("dhpd.engine.core", "print(1)"),
        ("dhpd.store.sqlite", "from dhpd.server import listener"),
        ("dhpd.store.sqlite", "from dhpd import server"),
        ("dhpd.store.sqlite", "import time"),
        ("dhpd.server.connection", "from time import monotonic"),
        ("dhpd.cli", "import dhp_client"),
        ("dhp_client.task", "from dhpd.engine import facts"),
        ("dhp_client.sync", "import time"),
    ],
)
def test_a_breach_is_found(module: str, source: str) -> None:
    assert faults(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dhp_protocol.framing", "import re\nfrom .errors import BadFrame"),
        ("dhpd.engine.core", "from datetime import UTC\nfrom dhp_protocol import limits\nfrom .facts import Handoff"),
        ("dhpd.engine.core", "sessions.open(connection)"),
        ("dhpd.store.sqlite", "import aiosqlite\nfrom ..engine.records import Entry"),
        ("dhpd.server.clock", "import time"),
        ("dhpd.cli", "from dhpd.server import listener"),
        ("dhp_client.clock", "import time"),
    ],
)
def test_what_is_allowed_passes(module: str, source: str) -> None:
    assert not faults(module, source)


def test_a_package_imports_relative_to_itself() -> None:
    assert not faults("dhpd.engine", "from .facts import Handoff", is_package=True)
    assert faults("dhpd.engine", "from ..store import sqlite", is_package=True)


BRIDGES = frozenset(("mcp", "a2a", "rich", "starlette", "uvicorn", "langgraph", "pydantic"))
"""What only single commands and extras need."""

TELLING = {"PYTHONPROFILEIMPORTTIME": "1"}
"""Has Python tell of each import on standard error; of what `importlib` was asked for, only of that module's own imports."""


def loaded(told: str) -> set[str]:
    """The modules in what Python has told of its imports."""
    return {line.rpartition("|")[2].strip() for line in told.splitlines() if line.startswith("import time:")}


def tops(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def loaded_by(*arguments: str) -> set[str]:
    """What a fresh interpreter loads that runs these."""
    command = [sys.executable, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **TELLING})
    assert ended.returncode == 0, ended.stderr[-2000:]
    return loaded(ended.stderr)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("light") / "data", env=TELLING) as running:
        yield running


def test_importing_the_client_loads_no_bridge_no_command_line_and_no_worker() -> None:
    modules = loaded_by("-c", "import dhp_client")
    assert "dhp_client.exceptions" in modules
    assert not tops(modules) & (BRIDGES | {"click", "asyncio"})
    assert not modules & {"dhp_client.sync_calls", "dhp_client.session", "dhp_client.hold"}


def test_every_public_name_is_there_once_it_is_asked_for() -> None:
    assert set(dhp_client.__all__) <= set(dir(dhp_client))
    for name in dhp_client.__all__:
        value = getattr(dhp_client, name)
        assert getattr(value, "__name__", name).rpartition(".")[2] == name  # A constant has none.
    with pytest.raises(AttributeError, match="claim_all"):
        _ = dhp_client.claim_all


def test_a_client_that_only_asks_loads_nothing_that_workers_need(daemon: DaemonProcess) -> None:
    dhp = ("-m", "dhp_client.cli", "--connect", daemon.address)
    command = [sys.executable, *dhp, "dispatch", "light"]
    dispatched = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    modules = loaded_by(*dhp, "status", dispatched.stdout.strip())
    assert "dhp_client.looking" in modules
    assert not tops(modules) & BRIDGES
    assert not modules & {"dhp_client.sync_calls", "dhp_client.hold", "dhp_client.keepalive", "dhp_protocol.bundle"}


def test_the_help_of_all_commands_loads_no_bridge() -> None:
    modules = loaded_by("-m", "dhp_client.cli", "--help")
    assert "dhp_client.cli.staging" in modules
    assert not tops(modules) & BRIDGES


def test_the_daemon_loads_no_bridge(daemon: DaemonProcess) -> None:
    modules = loaded(daemon.stderr)
    assert "dhpd.server.daemon" in modules
    assert not tops(modules) & (BRIDGES | {"dhp_client"})
