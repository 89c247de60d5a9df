"""Rows of frames by the values of few keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys_pp.arrays.search import number_rows
from nsys_pp.arrays.types import Int64s


def split_rows(frame: pl.DataFrame, keys: Sequence[str]) -> dict[tuple[object, ...], Int64s | slice]:
    """Find the rows of each distinct key, in order of their first rows; without a copy of the rows, as a query would make.

    Args:
        frame: Any frame.
        keys: Columns of integers; at least one.

    Returns:
        The rows by key, ascending: a slice of all, where all have one key. Empty in, empty out.

    >>> split_rows(pl.DataFrame({"thread": [7, 3, 7]}), ["thread"])
    {(7,): array([0, 2]), (3,): array([1])}
    """
    if frame.is_empty():
        return {}
    first, number = number_rows([frame[key] for key in keys])
    found = frame[list(keys)][first].rows()
    if len(found) == 1:
        return {found[0]: slice(None)}
    return {key: np.flatnonzero(number == at) for at, key in enumerate(found)}
