"""The frameworks are extras: what is said where one isn't installed, and who imports them."""

import ast
import importlib
import sys

import pytest

from ..test_layers import imports, modules


@pytest.mark.parametrize(
    ("module", "lacks", "extra"),
    [
        ("dhp_client.langgraph", "langgraph.checkpoint.base", "langgraph"),
        ("dhp_client.pydantic_ai", "pydantic_ai.durable_exec", "pydantic-ai"),
    ],
)
def test_a_missing_extra_is_named(module: str, lacks: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, lacks, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=rf"pip install 'dhpd\[{extra}\]'"):
        importlib.import_module(module)


BRIDGES = ("dhp_client.langgraph", "dhp_client.pydantic_ai")
FRAMEWORKS = ("langgraph", "langchain_core", "pydantic_ai", "agents")


def test_only_their_own_modules_import_the_frameworks_and_nothing_else_imports_those() -> None:
    imported = [
        (name, found)
        for name, path in modules()
        for found in imports(name, ast.parse(path.read_text()), is_package=path.name == "__init__.py")
        if found.split(".")[0] in FRAMEWORKS or found.startswith(BRIDGES)
    ]
    assert {found.split(".")[0] for _, found in imported} >= {"langgraph", "pydantic_ai"}
    assert [(name, found) for name, found in imported if not name.startswith(BRIDGES)] == []
