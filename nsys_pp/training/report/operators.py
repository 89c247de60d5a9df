"""Framework operators and communication ranges, recognised by name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import WINDOW, has_value
from nsys_pp.arrays.search import number_rows
from nsys_pp.frames.aggregates import NAMED_OPERATORS
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import NAME
from nsys_pp.training.report.presets import anchor_pattern, to_ascii

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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
    first, key = number_rows([ranges["domain"], ranges["name"]])
    parts = [
        _match(ranges[["domain", "name"]][first[begin : begin + WINDOW]], begin)
        for begin in range(0, len(first), WINDOW)
    ]
    matched = pl.concat(parts)
    row = np.full(len(first), -1)
    row[matched["key"].to_numpy()] = np.arange(len(matched))
    rows = np.flatnonzero(row[key] >= 0)
    operators = matched[["operator", "is_communication"]][row[key[rows]]]
    named = operators.hstack([ranges["range_id"][rows]]).rename({"operator": "name"})
    return conform(named.sort("range_id"), NAMED_OPERATORS)


def _match(names: pl.DataFrame, first: int) -> pl.DataFrame:
    """Match distinct domains and names: key (number of each, from `first` on), operator, is_communication; of those with a rule."""
    text = names.select(pl.col("domain").cast(pl.String), pl.col("name").cast(pl.String))
    matched = pl.DataFrame(
        {
            "key": np.arange(first, first + len(names)),
            "operator": _name(text, _rules("operator")).cast(NAME),
            "is_communication": _matches(text, _rules("communication")),
        }
    ).filter(pl.Series(has_value(names["name"])))
    return matched.filter(pl.col("operator").is_not_null() | pl.col("is_communication"))


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
