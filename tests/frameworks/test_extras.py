"""What is said where an extra isn't installed."""

import importlib
import sys

import pytest


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
