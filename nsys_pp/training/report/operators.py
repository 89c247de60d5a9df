"""Framework operators and communication ranges, recognised by name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import has_value, index_rows
from nsys_pp.arrays.names import WINDOW, as_texts
from nsys_pp.arrays.search import number_rows
from nsys_pp.frames.aggregates import NAMED_OPERATORS
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import NAME
from nsys_pp.training.report.presets import anchor_pattern, to_ascii

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_CACHE_SIZE, _MOST_NAMES = 64, 2_048
_NUMBERED_PART = r"\.[0-9]+\b"
_FOLDER = Path(__file__).parent.parent / "presets" / "operators"


class _Rule(Struct, frozen=True, kw_only=True):
    pattern: str  # of the whole name
    domain: str | None  # None: any


def name_operators(ranges: pl.DataFrame) -> pl.DataFrame:
    """Find operators by name, and remove the numbers of single calls from their names.

    The rules of all frameworks (`presets/operators/`) apply at once: their patterns are disjoint.

    Args:
        ranges: `RANGES`.

    Returns:
        `NAMED_OPERATORS` by range_id: operators and communication. Empty in, empty out.
    """
    if ranges.is_empty():
        return NAMED_OPERATORS.to_frame()
    first, number = number_rows([ranges["domain"], ranges["name"]])
    distinct = ranges[["domain", "name"]][first]
    matched = _match_all(distinct["domain"], distinct["name"])
    is_named = has_value(matched["name"]) | matched["is_communication"].to_numpy()
    row = np.flatnonzero(is_named[number])
    named = index_rows(matched, number[row].astype(np.int64))
    operators = pl.DataFrame([ranges["range_id"][row], *named])
    if not operators["range_id"].is_sorted():
        operators = operators.sort("range_id")
    return conform(operators, NAMED_OPERATORS)


def _match_all(domains: pl.Series, names: pl.Series) -> pl.DataFrame:
    """Match names window by window: texts in memory take several times the space of categories."""
    is_few = len(names) <= _MOST_NAMES
    match = _match if is_few else _match.__wrapped__
    windows = [slice(first, first + WINDOW) for first in range(0, max(len(names), 1), WINDOW)]
    parts = [
        match(tuple(domains[rows].to_list()), tuple(as_texts(names[rows]).to_list())) for rows in windows
    ]
    return parts[0] if len(parts) == 1 else pl.concat(parts)


@lru_cache(_CACHE_SIZE)  # reports of a run mostly have the same names
def _match(domains: tuple[str | None, ...], names: tuple[str | None, ...]) -> pl.DataFrame:
    """Match names of ranges with the rules: name (of the operator, null without one) and is_communication, one row for each."""
    text = pl.DataFrame({"domain": domains, "name": names}, {"domain": pl.String, "name": pl.String})
    return pl.DataFrame(
        [
            _name(text, _rules("operator")).cast(NAME).alias("name"),
            _matches(text, _rules("communication")).fill_null(value=False).alias("is_communication"),
        ]
    )


@cache
def _rules(table: str) -> tuple[_Rule, ...]:
    """Read the `[[operator]]` or `[[communication]]` rules of all files, in the order of their names."""
    files = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(_FOLDER.glob("*.toml"))]
    return tuple(
        _Rule(pattern=anchor_pattern(to_ascii(entry["pattern"])), domain=entry.get("domain"))
        for file in files
        for entry in file.get(table, ())
    )


def _name(text: pl.DataFrame, rules: Sequence[_Rule]) -> pl.Series:
    """Return the group `name` of the first matching rule of each name; null without one."""
    operators = [
        pl.when(_is_in_domain(rule)).then(pl.col("name").str.extract(rule.pattern, 1)) for rule in rules
    ]
    # modules of a model have numbers in their paths: `FSDP::forward (blocks.18.mlp)`
    return text.select(pl.coalesce(operators).str.replace_all(_NUMBERED_PART, ".#")).to_series()


def _matches(text: pl.DataFrame, rules: Sequence[_Rule]) -> pl.Series:
    """Return the mask of names with a matching rule."""
    return text.select(
        pl.any_horizontal(_is_in_domain(rule) & pl.col("name").str.contains(rule.pattern) for rule in rules)
    ).to_series()


def _is_in_domain(rule: _Rule) -> pl.Expr:
    if rule.domain is None:
        return pl.lit(value=True)
    return (pl.col("domain") == rule.domain).fill_null(value=False)
