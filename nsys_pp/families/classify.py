"""Family and library of kernels by their names, with the rules of `rules/*.toml`.

A rule matches the function of a kernel (namespaces and name, without template arguments and parameters), and
optionally its whole name. Files and their rules apply in order; the first match decides.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.names import to_ascii
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.aggregates import FAMILY, KERNEL_FAMILIES
from nsys_pp.frames.conform import conform

# names are ASCII nearly always; classes of Unicode take longer to compile and to search


class Rule(Struct, frozen=True, kw_only=True):
    """A rule of one family.

    Attributes:
        pattern: Regular expression, searched in the function.
        arguments: Regular expression, searched in the whole name; "": any.
        family: One of `FAMILIES`.
        library: Library of the kernel; None: unknown.
        tensor_cores: Whether the kernel uses tensor cores; None: unknown.
    """

    pattern: str
    arguments: str
    family: str
    library: str | None
    tensor_cores: bool | None


class InnerName(Struct, frozen=True, kw_only=True):
    """A function that runs many kernels: their names are template arguments.

    Attributes:
        function: Regular expression, searched in the function.
        pattern: Regular expression of the inner name, searched in the whole name; the first group that
            matches.
        is_suffix: The inner name follows the function instead of replacing it.
    """

    function: str
    pattern: str
    is_suffix: bool


@cache
def read_rules() -> tuple[Rule, ...]:
    """Read the `[[kernel]]` rules of all files, in order of their names."""
    return tuple(
        Rule(
            pattern=to_ascii(entry["pattern"]),
            arguments=to_ascii(entry.get("arguments", "")),
            family=entry["family"],
            library=entry.get("library", file["library"]) or None,
            tensor_cores=entry.get("tensor_cores"),
        )
        for file in _read_files()
        for entry in file["kernel"]
    )


@cache
def read_inner_names() -> tuple[InnerName, ...]:
    """Read the `[[inner]]` entries of all files, in order of their names."""
    return tuple(
        InnerName(
            function=to_ascii(entry["function"]),
            pattern=to_ascii(entry["pattern"]),
            is_suffix=entry.get("is_suffix", False),
        )
        for file in _read_files()
        for entry in file.get("inner", ())
    )


@cache
def _read_files() -> tuple[Mapping[str, Any], ...]:
    return tuple(
        tomllib.loads(path.read_text(encoding="utf-8"))
        for path in sorted((Path(__file__).parent / "rules").glob("*.toml"))
    )


_UNNAMED = r"<unnamed>::|\(anonymous namespace\)::|\{anonymous\}::"

_COMPARISON = r" [<>]=? "  # in conditions of `std::enable_if`

_BRACKETS = r"<[^<>()\[\]{}]*>|\([^<>()\[\]{}]*\)|\[[^<>()\[\]{}]*\]|\{[^<>()\[\]{}]*\}"

_MOST_LEVELS = 100  # of brackets; names that nest deeper are cut at the first bracket

_OPEN = r"^([^<(\[{]*)"

_LAST_WORD = r"(\S+)\s*$"


_FOLDS = (
    # words with the sizes that follow them: `tilesize128x128x32`, `stages_32x1`, `ldg8`
    (
        r"_(?:tilesize|tile|warpsize|warpgroupsize|cgasize|tensor|cluster|stages?_?|align[abc]?|ldg|sliced)"
        r"[0-9]+(?:x[0-9]+)*(_|$)"
    ),
    r"_[0-9]+x[0-9]+(?:x[0-9]+)*(_|$)",
    r"_(?:[0-9]+[a-f]|[a-f]+[0-9])[0-9a-f]{6,}(_|$)",  # hashes
    # numbers of fusions, concretisations, runtimes and groups of nvFuser
    r"_f[0-9]+_c[0-9]+_r[0-9]+_g[0-9]+(_|$)",
    r"_[0-9]+(_|$)",
)


def extract_functions(names: pl.Series) -> pl.Series:
    """Return the function of each name.

    Namespaces and base name, without result, template arguments and parameters.

    >>> name = "void at::native::reduce_kernel<(int)512, at::MeanOps<float>>(T3)"
    >>> extract_functions(pl.Series([name])).to_list()
    ['at::native::reduce_kernel']
    """
    text = names.cast(pl.String).str.replace_all(_UNNAMED, "").str.replace_all(_COMPARISON, " ")
    for _ in range(_MOST_LEVELS):
        shorter = text.str.replace_all(_BRACKETS, "")
        if shorter.equals(text):
            break
        text = shorter
    return text.str.extract(_OPEN, 1).str.extract(_LAST_WORD, 1).fill_null("")


def fold_names(names: pl.Series, functions: pl.Series) -> pl.Series:
    """Remove namespaces, template arguments, sizes and hashes, so that kernels of other sizes have one name.

    >>> names = pl.Series(["nvjet_tst_128x24_64x11_2x1_v_bz_TNT", "triton_poi_fused_add_mul_12"])
    >>> fold_names(names, extract_functions(names)).to_list()
    ['nvjet_tst_v_bz_TNT', 'triton_poi_fused_add_mul']
    """
    base = functions.str.extract(r"([^:]*)$", 1)
    folded = base.clone()  # scattered into
    for inner in read_inner_names():
        rows = functions.str.contains(inner.function).arg_true()
        if len(rows):
            name = names[rows].cast(pl.String).str.extract(inner.pattern, 1)
            if inner.is_suffix:
                name = base[rows] + " " + name
            folded = folded.scatter(rows, name.zip_with(name.is_not_null(), folded[rows]))
    for pattern in _FOLDS * 2:  # twice: matches do not overlap, and neighbours share an underscore
        folded = folded.str.replace_all(pattern, "${1}")
    return folded


_NUMBER = r" [0-9]+$"  # of a CUDA graph


def classify_kernels(names: pl.Series) -> pl.DataFrame:
    """Assign a family, a library and the use of tensor cores to names of kernels.

    Args:
        names: Distinct names, demangled with template arguments and parameters where recorded. Short names
            often lack what the rules need, and are "unknown" then.

    Returns:
        `KERNEL_FAMILIES`, one row per name in the same order. Empty in, empty out.
    """
    text = names.cast(pl.String).fill_null("")
    functions = extract_functions(text)
    rules = read_rules()
    row = _find_rules(text, functions, rules)
    columns = pl.DataFrame(
        {
            "family": [*(rule.family for rule in rules), "unknown"],
            "library": [*(rule.library for rule in rules), None],
            "tensor_cores": [*(rule.tensor_cores for rule in rules), None],
        },
        schema_overrides={"library": pl.String, "tensor_cores": pl.Boolean},
    )
    return (
        columns[row]
        .with_columns(name=names, folded_name=fold_names(text, functions))
        .pipe(conform, KERNEL_FAMILIES)
    )


def _find_rules(text: pl.Series, functions: pl.Series, rules: tuple[Rule, ...]) -> Int64s:
    # the number of rules for names without one
    distinct = functions.unique(maintain_order=True)
    number = functions.to_frame("function").join(
        distinct.to_frame("function").with_row_index("number"),
        on="function",
        how="left",
        maintain_order="left",
    )["number"]
    matches = distinct.to_frame("function").select(
        pl.col("function").str.contains(rule.pattern).alias(str(position))
        for position, rule in enumerate(rules)
    )
    is_match = matches.to_numpy()[number.to_numpy()]
    for position, rule in enumerate(rules):
        rows = np.flatnonzero(is_match[:, position])
        if rule.arguments and len(rows):
            is_match[rows, position] = text[rows].str.contains(rule.arguments).to_numpy()
    return np.where(is_match.any(axis=1), is_match.argmax(axis=1), len(rules))


def classify_operations(operations: pl.DataFrame) -> pl.DataFrame:
    """Add the columns of `KERNEL_FAMILIES` to operations of any kind.

    Args:
        operations: `kind`, `name` and `is_communication`; each distinct name of a kernel is classified once.

    Returns:
        The same rows with `family`, `library`, `tensor_cores` and `folded_name`. Kernels marked as
        communication have this family, without a library where no rule agrees.
    """
    families = classify_kernels(operations["name"].filter(operations["kind"] == "kernel").unique())
    is_marked = pl.col("is_communication") & (pl.col("family") != "communication").fill_null(value=True)
    kind, name = pl.col("kind"), pl.col("name").cast(pl.String)
    return operations.join(
        families, on="name", how="left", nulls_equal=True, maintain_order="left"
    ).with_columns(
        family=pl.when(kind == "graph")
        .then(pl.lit("graph", FAMILY))
        .when(kind != "kernel")
        .then(pl.lit("copy", FAMILY))
        .when(is_marked)
        .then(pl.lit("communication", FAMILY))
        .otherwise("family"),
        library=pl.when((kind == "kernel") & ~is_marked).then("library"),
        tensor_cores=pl.when((kind == "kernel") & ~is_marked).then("tensor_cores"),
        folded_name=pl.when(kind == "kernel")
        .then(pl.col("folded_name").cast(pl.String))
        .otherwise(name.str.replace(_NUMBER, "")),
    )
