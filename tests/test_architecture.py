"""The few rules of the house that CONTRIBUTING.md names, checked in the syntax trees of all modules."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "nsys_pp"
SIBLINGS = {"read", "model", "projection", "alignment", "training"}
SHARED = {"errors", "units", "frames", "arrays", "compiled", "options", "progress", "registry", "leftovers"}
NSYS_NAME = re.compile(
    r"CUPTI_ACTIVITY|NVTX_EVENTS|TARGET_INFO_|META_DATA_|StringIds|globalTid|correlationId|demangledName"
)
MODULES = sorted(PACKAGE.rglob("*.py"))
RECIPES = sorted((ROOT / "recipes").rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module_of(path: Path) -> str:
    """Return the dotted name of a module below the package: "read.sqlite"; "" for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_of(path): path for path in MODULES}


def imports_of(path: Path, *, with_late: bool) -> Iterator[tuple[str, int]]:
    """List the imported names of a module with their lines; those of functions and of types only if `with_late`."""
    waiting: list[ast.AST] = [tree_of(path)]
    while waiting:
        node = waiting.pop()
        is_late = isinstance(node, ast.FunctionDef) or (
            isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        )
        if with_late or not is_late:
            waiting.extend(ast.iter_child_nodes(node))
            if isinstance(node, ast.Import):
                yield from ((alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def target_of(name: str) -> str | None:
    """Return the module of the package that an import runs; None for other packages."""
    package, _, rest = name.partition(".")
    if package != "nsys_pp":
        return None
    while rest and rest not in NAMES:
        rest = rest.rpartition(".")[0]
    return rest


def test_stages_import_contracts_and_no_other_stage() -> None:
    assert not [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for module, path in NAMES.items()
        for name, line in imports_of(path, with_late=True)
        for target in [target_of(name)]
        if (stage := module.split(".")[0]) in SIBLINGS
        and target is not None
        and target.split(".")[0] not in SHARED | {stage}
    ]


def test_no_module_imports_itself_through_others() -> None:
    """Imports at run time are ignored: a registry loads its entries late."""
    edges = {
        module: {target_of(name) for name, _ in imports_of(path, with_late=False)} - {module, None}
        for module, path in NAMES.items()
    }
    while leaves := {module for module, targets in edges.items() if not targets & edges.keys()}:
        edges = {module: targets for module, targets in edges.items() if module not in leaves}
    assert not edges, "modules on cycles, or importing such modules"


def test_click_is_imported_by_the_command_line_only() -> None:
    assert not [
        module
        for module, path in NAMES.items()
        if module.split(".")[0] != "cli"
        and any(name.split(".")[0] == "click" for name, _ in imports_of(path, with_late=True))
    ]


def test_every_module_has_a_docstring() -> None:
    assert not [
        str(path.relative_to(ROOT)) for path in [*MODULES, *RECIPES] if not ast.get_docstring(tree_of(path))
    ]


def test_names_of_nsys_are_data_of_the_reader() -> None:
    with_names = {module for module, path in NAMES.items() if NSYS_NAME.search(path.read_text())}
    assert with_names
    assert {module.split(".")[0] for module in with_names} == {"read"}


def test_field_numbers_of_perfetto_are_in_one_module() -> None:
    """Writers name fields; one module pairs the names with numbers."""
    numbered = re.compile(r"^    [A-Z][A-Z_]+ = \d+", re.MULTILINE)
    with_numbers = [
        module
        for module, path in NAMES.items()
        if module.split(".")[0] in ("write", "output") and numbered.search(path.read_text())
    ]
    assert len(with_numbers) == 1


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_recipes_run_where_nsys_pp_is_not_installed(path: Path) -> None:
    """They call its command line; of nsys they know the classes in one module, and none that it moved or broke."""
    known = {"nsys_recipe", "nsys_recipe.lib", "nsys_recipe.lib.args", "nsys_recipe.log"}
    for name, _ in imports_of(path, with_late=True):
        package, _, _ = name.partition(".")
        assert package in {*sys.stdlib_module_names, "nsys_recipe", "nsys_pp_recipe"}, (
            f"{path} imports {name}"
        )
        if package == "nsys_recipe":
            assert path.name == "adapter.py"
            assert name.rpartition(".")[0] in known, f"{path} imports {name}"
    ast.parse(path.read_text(), feature_version=(3, 10))
