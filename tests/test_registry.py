"""Registries, and the entries of those that the package has."""

from __future__ import annotations

import sys

import pytest

from nsys_pp.registry import Registry, import_on_call
from nsys_pp.tables.registry import PADDLE_TABLES, SUMMARY_TABLES, TRAINING_TABLES


def test_names_import_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    registry = Registry[object]({"zen": "this:nothing", "pi": "math:pi"})
    assert (list(registry), len(registry)) == (["zen", "pi"], 2)
    assert "zen" in registry
    assert "e" not in registry
    assert registry.get("e") is None
    assert "this" not in sys.modules
    assert registry["pi"] is registry["pi"]
    with pytest.raises(KeyError):
        registry["e"]


def test_a_function_is_imported_when_it_is_called() -> None:
    missing = import_on_call("math:no_such_function")
    with pytest.raises(AttributeError):
        missing()
    assert import_on_call("math:isclose")(1.0, 1.1, abs_tol=0.2)


@pytest.mark.parametrize("registry", [SUMMARY_TABLES, PADDLE_TABLES, TRAINING_TABLES])
def test_tables_have_the_names_of_their_entries(registry: Registry[object]) -> None:
    assert {name: table.name for name, table in registry.items()} == {  # type: ignore[attr-defined]
        name: name for name in registry
    }
