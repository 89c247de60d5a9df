"""The house rules of CONTRIBUTING.md, checked in the syntax trees of all modules.

Each module is parsed once. A test lists all violations of a rule at once, so that one run shows them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "nsys_pp"
STAGES = ("read", "model", "roster", "projection", "alignment", "training", "aggregates", "tables", "write")
CONTRACTS = {"errors", "units", "registry", "stages", "leftovers", "frames", "arrays"}

# Parts of the package that each part may import, besides itself; or modules of these.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "registry": set(),
    "stages": set(),
    "leftovers": set(),
    "frames": set(),
    "arrays": {"frames"},
    "families": CONTRACTS,
    "hardware": {"frames"},
    **dict.fromkeys(STAGES, CONTRACTS),
    "tables": CONTRACTS | {"families", "hardware"},
    "executors": {"errors", "frames", "leftovers"},
    # reads reports and writes them again
    "scrubbing": CONTRACTS | {"read", "model", "write"},
    "viewer": set(),
    "compose": CONTRACTS | set(STAGES) - {"tables"} | {"executors", "families"},
    "commands": {
        *CONTRACTS,
        *("compose", "tables", "write", "hardware", "viewer", "scrubbing"),
        # `info` and `project` show frames of single reports, not of a run
        *("read", "model", "roster.identity", "roster.roster"),
        # names of operations and scopes; defaults of options
        *("projection.ranges", "projection.launches"),
        # `summarise` merges the aggregates of all processes
        *("aggregates.processes", "aggregates.range_items"),
        # `pipeline` names the ranges that no preset recognised
        *("training.report.rule_choice", "training.report.name_reading"),
    },
    "cli": {
        *("", "commands", "errors", "units", "registry", "write"),
        # names of choices, queries and tables, for `--help`; tables with their rows, and findings, for the renderers
        *("frames.choices", "viewer.queries", "frames.table", "frames.verdict", "tables.registry"),
        *("tables.summary.registry", "tables.training.registry"),
        # types and defaults of options; texts of skipped inputs; names of parts
        *("compose.options", "compose.batch", "compose.progress", "compose.part_files"),
        # `--memory` holds for a whole command
        "executors.memory_guard",
    },
    "__main__": {"cli"},
    "capture": set(),
    "": {"commands", "compose.options", "errors"},
}
# Packages inside a part: of its other modules they may import those directly in these packages.
INNER_ALLOWED: dict[str, set[str]] = {
    "training.report": set(),
    "training.run": set(),
    "tables.summary": {"tables"},
    "tables.training": {"tables"},
    "tables.compare": {"tables", "tables.training", "tables.verdict"},
    "tables.verdict": {"tables", "tables.training"},
    "tables.report": {"tables", "tables.training", "tables.verdict"},
    "write.perfetto": {"write", "write.trace"},
    "write.chrome": {"write", "write.trace"},
    "write.trace": set(),
    "write.tables": {"write"},
    "write.chart": {"write", "write.trace"},
    "write.report": {"write", "write.trace", "write.chart", "write.tables"},
    "write.compare_page": {"write", "write.chart", "write.report", "write.tables"},
    "write.other": {"write", "write.trace", "write.chrome"},
}
LIBRARIES = {  # imported by these parts only
    "sqlite_utils": {"write"},
    "adbc_driver_manager": {"read"},
    "adbc_driver_sqlite": {"read"},
    "sqlite3": {"read", "scrubbing", "write"},
    "deflate": {"write"},
    "zlib_ng": {"read", "write"},
    "zipfile": {"read", "write"},
    "click": {"cli"},
    "rich": {"cli", "write"},
    "tomllib": {"training", "families", "hardware"},
    "tomli": {"training", "families", "hardware"},
    "bokeh": {"write"},
    "matplotlib": {"write"},
    "distributed": {"executors"},
    "multiprocessing": {"executors"},
}
NSYS_NAME = re.compile(
    r"CUPTI_ACTIVITY|NVTX_EVENTS|TARGET_INFO_|META_DATA_|StringIds|globalTid|correlationId|demangledName"
)
LATE = re.compile(r"nsys_pp(\.\w+)+:\w+")  # entries of `nsys_pp.registry`
MODULES = sorted(PACKAGE.rglob("*.py"))
RECIPES = sorted((ROOT / "recipes").rglob("*.py"))
MAX_MODULE_LINES, MAX_FUNCTION_LINES = 400, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """An import: the imported module (and name, for `from`), its line, and whether it runs with the module."""

    name: str
    line: int
    is_at_import: bool


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def imports_of(path: Path) -> Sequence[Import]:
    inner = {
        id(node)
        for outer in ast.walk(tree_of(path))
        if isinstance(outer, ast.FunctionDef) or (isinstance(outer, ast.If) and is_for_types(outer))
        for node in ast.walk(outer)
    }
    imports = []
    for node in ast.walk(tree_of(path)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and LATE.fullmatch(node.value):
            names = [node.value.replace(":", ".")]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        imports += [
            Import(
                name=name,
                line=getattr(node, "lineno", 0),
                is_at_import=id(node) not in inner and not isinstance(node, ast.Constant),
            )
            for name in names
        ]
    return imports


def is_for_types(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@cache
def module_of(path: Path) -> str:
    """Return the dotted name of a module below the package: "read.sqlite"; "" for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    return module.split(".")[0]


NAMES = {module_of(path): path for path in MODULES}


def target_of(name: str) -> str | None:
    """Return the module of the package that an import runs; None for other packages.

    >>> target_of("nsys_pp.read.tables.Table"), target_of("nsys_pp.merge"), target_of("polars")
    ('read.tables', '', None)
    """
    package, _, rest = name.partition(".")
    if package != "nsys_pp":
        return None
    while rest and rest not in NAMES:
        rest = rest.rpartition(".")[0]
    return rest


def internal_imports() -> Iterator[tuple[str, str, str]]:
    """List the importing module, the imported one, and where the import is."""
    for module, path in NAMES.items():
        for imported in imports_of(path):
            target = target_of(imported.name)
            if target is not None:
                yield module, target, f"{path.relative_to(ROOT)}:{imported.line} imports {imported.name}"


def is_below(module: str, prefix: str) -> bool:
    return module == prefix or (bool(prefix) and module.startswith(f"{prefix}."))


def test_every_part_has_a_rule() -> None:
    assert {part_of(module) for module in NAMES} == set(ALLOWED)


def test_stages_share_contracts_and_nothing_else() -> None:
    assert not [
        place
        for module, target, place in internal_imports()
        if part_of(target) != part_of(module)
        and not any(is_below(target, allowed) for allowed in ALLOWED[part_of(module)])
    ]


def test_exceptions_are_needed() -> None:
    """An allowed module that nobody imports is a door left open."""
    used = {(part_of(module), target) for module, target, _ in internal_imports()}
    assert not [
        (part, allowed)
        for part, targets in ALLOWED.items()
        for allowed in targets
        if "." in allowed and not any(part == other and is_below(target, allowed) for other, target in used)
    ]


def test_parts_of_a_stage_share_its_own_modules_and_nothing_else() -> None:
    assert not [
        place
        for prefix, allowed in INNER_ALLOWED.items()
        for module, target, place in internal_imports()
        if is_below(module, prefix)
        and part_of(target) == part_of(prefix)
        and not is_below(target, prefix)
        and target.rpartition(".")[0] not in allowed
    ]


def test_libraries_stay_in_their_parts() -> None:
    assert not [
        f"{path.relative_to(ROOT)}:{imported.line} imports {imported.name}"
        for module, path in NAMES.items()
        for imported in imports_of(path)
        for package in [imported.name.split(".")[0]]
        if package in ("tests", "fixtures")
        or part_of(module) not in LIBRARIES.get(package, {part_of(module)})
    ]


def test_no_module_imports_itself_through_others() -> None:
    """Imports at run time are ignored: a registry may load its entries late."""
    edges: dict[str, set[str]] = {module: set() for module in NAMES}
    for module, path in NAMES.items():
        targets = (target_of(imported.name) for imported in imports_of(path) if imported.is_at_import)
        edges[module] = {target for target in targets if target is not None and target != module}
    while leaves := {module for module, targets in edges.items() if not targets & edges.keys()}:
        edges = {module: targets for module, targets in edges.items() if module not in leaves}
    assert not edges, "modules on cycles, or importing such modules"


def test_parts_form_no_cycle() -> None:
    edges: dict[str, set[str]] = {part: set() for part in ALLOWED}
    for module, target, _ in internal_imports():
        edges[part_of(module)] |= {part_of(target)} - {part_of(module)}
    while leaves := {part for part, targets in edges.items() if not targets & edges.keys()}:
        edges = {part: targets for part, targets in edges.items() if part not in leaves}
    assert not edges


def test_every_module_has_a_docstring() -> None:
    assert not [
        str(path.relative_to(ROOT)) for path in [*MODULES, *RECIPES] if not ast.get_docstring(tree_of(path))
    ]


def test_every_package_has_a_docstring_of_its_own() -> None:
    """A package's docstring names its question; two packages with the same one would be one."""
    docs = {
        module: ast.get_docstring(tree_of(path))
        for module, path in NAMES.items()
        if path.name == "__init__.py"
    }
    assert all(docs.values())
    assert len(set(docs.values())) == len(docs)


def test_names_of_nsys_are_in_three_modules() -> None:
    with_names = {module for module, path in NAMES.items() if NSYS_NAME.search(text_of(path))}
    assert with_names == {"read.tables", "read.tables_on_request", "read.tables_of_samples"}


def test_field_numbers_of_perfetto_are_in_one_module() -> None:
    """Writers name fields; only `write/perfetto/protobuf.py` pairs the names with numbers."""
    numbered = re.compile(r"^    [A-Z][A-Z_]+ = \d+", re.MULTILINE)
    with_numbers = {
        module
        for module, path in NAMES.items()
        if part_of(module) == "write" and numbered.search(text_of(path))
    }
    assert with_numbers == {"write.perfetto.protobuf"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_recipes_run_where_nsys_pp_is_not_installed(path: Path) -> None:
    """They call its command line; of nsys they know the classes in one module, and none that it moved or broke."""
    known = {"nsys_recipe", "nsys_recipe.lib", "nsys_recipe.lib.args", "nsys_recipe.log"}
    for imported in imports_of(path):
        package, _, _ = imported.name.partition(".")
        assert package in {*sys.stdlib_module_names, "nsys_recipe", "nsys_pp_recipe"}, (
            f"{path} imports {imported.name}"
        )
        if package == "nsys_recipe":
            assert path.name == "adapter.py"
            assert imported.name.rpartition(".")[0] in known, f"{path} imports {imported.name}"
    ast.parse(text_of(path), feature_version=(3, 10))


def test_modules_and_functions_stay_readable() -> None:
    assert not [violation for path in [*MODULES, *RECIPES] for violation in size_violations(path)]


def size_violations(path: Path) -> Iterator[str]:
    """List the modules and functions that are too long to read at once."""
    lines = len(text_of(path).splitlines())
    if lines > MAX_MODULE_LINES:
        yield f"{path.relative_to(ROOT)} has {lines} lines"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            length = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            if length > MAX_FUNCTION_LINES:
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {length} lines"
