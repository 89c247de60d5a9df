"""The house rules of CONTRIBUTING.md, held by reading the code."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "nsys_pp"
STAGES = ("read", "model", "roster", "projection", "alignment", "training", "aggregates", "tables", "write")
CONTRACTS = {"errors", "units", "frames", "arrays"}

# Parts of the package that each part may import, besides itself.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "frames": set(),
    "arrays": {"frames"},
    **dict.fromkeys(STAGES, CONTRACTS),
    "executors": CONTRACTS,
    "compose": CONTRACTS | set(STAGES) | {"executors", "commands"},
    "commands": CONTRACTS | set(STAGES) | {"compose", "executors"},
    "cli": {"commands", "compose", "errors", "units", "write"},
    "__main__": {"cli"},
    "capture": set(),
    "__init__": {"commands", "errors"},
}
LIBRARIES = {  # imported by these parts only
    "sqlite_utils": {"write"},
    "adbc_driver_manager": {"read"},
    "adbc_driver_sqlite": {"read"},
    "sqlite3": {"read"},
    "zlib_ng": {"write"},
    "zipfile": {"read", "write"},
    "click": {"cli"},
    "rich": {"cli", "write"},
    "tomllib": {"training"},
    "tomli": {"training"},
    "bokeh": {"write"},
    "matplotlib": {"write"},
    "distributed": {"executors"},
    "multiprocessing": {"executors"},
}
NSYS_NAME = re.compile(
    r"CUPTI_ACTIVITY|NVTX_EVENTS|TARGET_INFO_|META_DATA_|StringIds|globalTid|correlationId|demangledName"
)
MODULES = sorted(PACKAGE.rglob("*.py"))
RECIPES = sorted((ROOT / "recipes").rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_there_are_modules() -> None:
    assert len(MODULES) > 20


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_stages_share_contracts_and_nothing_else(path: Path) -> None:
    part = part_of(path)
    assert part in ALLOWED, f"{part} has no rule"
    for name in imports_of(path):
        package, _, rest = name.partition(".")
        if package == "nsys_pp":
            target = rest.split(".")[0]
            assert target in ALLOWED[part] | {part}, f"{path} imports {name}"
        assert part in LIBRARIES.get(package, {part}), f"{path} imports {package}"
        assert package not in ("tests", "fixtures"), f"{path} imports {package}"


@pytest.mark.parametrize("stage", ["training"])
def test_parts_of_a_stage_share_contracts_and_nothing_else(stage: str) -> None:
    for path in (PACKAGE / stage).glob("*/*.py"):
        for name in imports_of(path):
            if name.startswith(f"nsys_pp.{stage}."):
                assert name.split(".")[2] == path.parent.name, f"{path} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_names_that_nsys_gave_stand_in_one_place(path: Path) -> None:
    found = NSYS_NAME.findall(path.read_text())
    if path == PACKAGE / "read" / "tables.py":
        assert found
    else:
        assert not found


def test_field_numbers_of_perfetto_stand_in_one_place() -> None:
    """Writers name fields; only `write/protobuf.py` pairs the names with numbers."""
    numbered = re.compile(r"^    [A-Z][A-Z_]+ = \d+", re.MULTILINE)
    with_numbers = {
        path.name for path in (PACKAGE / "write").rglob("*.py") if numbered.search(path.read_text())
    }
    assert with_numbers == {"protobuf.py"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_recipes_run_where_nsys_pp_is_not_installed(path: Path) -> None:
    """They call its command line; of nsys they know the classes in one place, and none that it moved or broke."""
    known = {"nsys_recipe", "nsys_recipe.lib", "nsys_recipe.lib.args", "nsys_recipe.log"}
    for name in imports_of(path):
        package, _, _ = name.partition(".")
        assert package in {*sys.stdlib_module_names, "nsys_recipe", "nsys_pp_recipe"}, (
            f"{path} imports {name}"
        )
        if package == "nsys_recipe":
            assert path.name == "adapter.py"
            assert name.rpartition(".")[0] in known, f"{path} imports {name}"
    ast.parse(path.read_text(), feature_version=(3, 10))


@pytest.mark.parametrize("path", [*MODULES, *RECIPES], ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_functions_stay_readable(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            length = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            assert length <= 60, f"{path}:{node.lineno} {node.name} has {length} lines"
