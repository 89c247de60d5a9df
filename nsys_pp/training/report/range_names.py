"""Distinct names, domains and categories of ranges: found once for all rules that are matched against them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import polars as pl
from msgspec import Struct, field

from nsys_pp.arrays.columns import find_distinct, pack
from nsys_pp.arrays.names import WINDOW, Names, list_names, pick_texts
from nsys_pp.arrays.types import Int64s

Key: TypeAlias = "tuple[str | None, ...]"


class Keys(Struct, frozen=True, dict=True):
    """Distinct rows of some columns of texts."""

    columns: tuple[Sequence[str | None], ...]
    row: Int64s  # of each range, in `columns`

    def __len__(self) -> int:
        return len(self.columns[0])

    @cached_property
    def distinct(self) -> frozenset[Key]:
        """All rows, for few of them."""
        return frozenset(zip(*self.columns, strict=True))

    def split(self) -> Iterator[list[Key]]:
        """Split the rows, in order, into lists of at most `WINDOW`."""
        for first in range(0, len(self), WINDOW):
            yield [*zip(*(texts[first : first + WINDOW] for texts in self.columns), strict=True)]


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

    def count(self, wanted: Collection[str]) -> dict[str, int]:
        """Count the ranges with each wanted name that there is."""
        if not wanted:
            return {}
        count = np.bincount(self.name.row, minlength=len(self.name.texts))
        return {
            text: int(count[at])
            for at, text in enumerate(self.name.texts)
            if text is not None and text in wanted
        }

    def list_keys(self, columns: tuple[str, ...]) -> Keys:
        """List the distinct rows of some of the columns name, domain and category."""
        if columns not in self._keys:
            names: list[Names] = [getattr(self, column) for column in columns]
            if len(names) == 1:
                self._keys[columns] = Keys((names[0].texts,), names[0].row)
            else:
                first, row = find_distinct(pack(*(each.row for each in names)))
                picked = tuple(pick_texts(each.texts, each.row[first]) for each in names)
                self._keys[columns] = Keys(picked, row)
        return self._keys[columns]
