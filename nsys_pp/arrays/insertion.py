"""Insertion of rows into columns that stay in order: compiled (`core.c`), or by numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.core_arguments import find_address
from nsys_pp.arrays.types import Int64s

_Column = npt.NDArray[Any]
_BYTES = 8  # of a value


def insert_rows(
    core: Core | None, columns: Sequence[_Column], at: Int64s, others: Sequence[_Column]
) -> list[_Column]:
    """Insert rows into columns, as `np.insert` for each.

    Args:
        core: The library; None: numpy inserts them.
        columns: Columns of numbers of 8 bytes, all of the same length.
        at: Row before which each is inserted, ascending; the number of rows for those at the end.
        others: What is inserted, with the types of the columns and the length of `at`.

    Raises:
        ValueError: Columns have different lengths, or a row is not there or not in order.

    >>> insert_rows(None, [np.array([5, 6])], np.array([1, 2]), [np.array([7, 8])])[0].tolist()
    [5, 7, 6, 8]
    """
    count = len(columns[0])
    if any(len(column) != count for column in columns) or any(len(column) != len(at) for column in others):
        raise ValueError("columns of different lengths")
    if len(at) and not (at[0] >= 0 and at[-1] <= count and (at[1:] >= at[:-1]).all()):
        raise ValueError("a row that is not there, or not in order")
    at, joined = np.ascontiguousarray(at, dtype=np.int64), []
    for column, other in zip(columns, others, strict=True):
        if core is None or column.dtype.itemsize != _BYTES or other.dtype != column.dtype:
            joined.append(np.insert(column, at, other))
            continue
        held = np.ascontiguousarray(column), np.ascontiguousarray(other)
        to = np.empty(count + len(at), dtype=column.dtype)
        own, added, target = map(find_address, (*held, to))
        core.insert_rows(count, own, len(at), find_address(at), added, target)
        joined.append(to)
    return joined
