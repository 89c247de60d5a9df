"""Distinct names, domains and categories of ranges: found once for all rules that are matched against them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct, field

from nsys_pp.arrays.columns import Names, find_distinct, list_names, pack
from nsys_pp.arrays.types import Int64s


class Keys(Struct, frozen=True):
    """Distinct rows of some columns of texts."""

    rows: list[tuple[str | None, ...]]
    row: Int64s  # of each range, in `rows`
    distinct: frozenset[tuple[str | None, ...]]  # the same rows


class RangeNames(Struct, frozen=True, dict=True):
    """Texts of ranges; each column is searched once, on first use."""

    ranges: pl.DataFrame  # `RANGES`, any order
    _keys: dict[tuple[str, ...], Keys] = field(default_factory=dict)

    @cached_property
    def name(self) -> Names:
        """Distinct names."""
        return list_names(self.ranges["name"])

    @cached_property
    def domain(self) -> Names:
        """Distinct domains."""
        return list_names(self.ranges["domain"])

    @cached_property
    def category(self) -> Names:
        """Distinct categories."""
        return list_names(self.ranges["category"])

    @cached_property
    def counts(self) -> dict[str, int]:
        """Count of the ranges with each name."""
        count = np.bincount(self.name.row, minlength=len(self.name.texts)).tolist()
        return {text: each for text, each in zip(self.name.texts, count, strict=True) if text is not None}

    def list_keys(self, columns: tuple[str, ...]) -> Keys:
        """List the distinct rows of some of the columns name, domain and category."""
        if columns not in self._keys:
            rows: list[tuple[str | None, ...]]
            texts: list[Names] = [getattr(self, column) for column in columns]
            if len(texts) == 1:
                rows, row = [(text,) for text in texts[0].texts], texts[0].row
            else:
                first, row = find_distinct(pack(*(each.row for each in texts)))
                at = ([each.texts[number] for number in each.row[first].tolist()] for each in texts)
                rows = [*zip(*at, strict=True)]
            self._keys[columns] = Keys(rows, row, frozenset(rows))
        return self._keys[columns]
