"""Names of events: string ids are resolved once, and only ids that events refer to.

The table of strings also contains the environment of the profiled program, with secrets; strings that no event
refers to are dropped here.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.arrays.columns import clear_values, index_column, numbers
from nsys_pp.arrays.names import list_texts, strip_texts
from nsys_pp.arrays.scratch_frames import build_blocks
from nsys_pp.arrays.series import build_column, gather_values
from nsys_pp.arrays.stored_texts import build_names
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.columns import build_nulls
from nsys_pp.frames.report import NAME

_BLOCK_ROWS = 32_768


def resolve(
    ids: pl.Series, strings: pl.DataFrame, *, strip: str | None = None, dtype: pl.DataType = NAME
) -> pl.Series:
    """Return the name of every id; null for null and unknown ids.

    Args:
        ids: Ids into `strings`.
        strings: The raw frame of strings.
        strip: Regular expression of text to remove from names.
        dtype: `NAME`, `StoredName` before its texts are unified, or String for names that need no category.

    Returns:
        A column of the length of `ids`.
    """
    if strings["id"].has_nulls():
        strings = strings.drop_nulls("id")
    if ids.null_count() == len(ids) or strings.is_empty():
        return build_nulls(ids.name, dtype, len(ids))
    if not strings["id"].is_sorted():
        strings = strings.sort("id", maintain_order=True)
    count = strings.height
    at, is_used = _find(ids, strings["id"].cast(pl.Int64).to_numpy())
    used = np.flatnonzero(is_used[:count])
    text = index_column(strings["text"], used)
    if strip is not None:
        text = strip_texts(list_texts(text), strip)
    position = np.full(count + 1, len(used), dtype=np.uint32)
    position[used] = np.arange(len(used))
    words = build_names(text, dtype)  # in a small table of categories: no work on strings per row

    def gather(first: int, stop: int) -> pl.DataFrame:
        index = build_column("", position[at[first:stop]])
        if is_used[count]:
            index = clear_values(index, at[first:stop] == count)
        return gather_values(words, index).alias(ids.name).to_frame()

    return build_blocks(len(at), gather).to_series()


def _find(ids: pl.Series, ids_of_rows: Int64s) -> tuple[NDArray[np.uint32], Bools]:
    """Find the row of each id in a sorted list; the length of the list for null and unknown ids.

    Blocks of ids stay in the processor's cache.

    Returns:
        The rows, and the mask of those that an id has.
    """
    first, count = int(ids_of_rows[0]), len(ids_of_rows)
    is_contiguous = np.array_equal(ids_of_rows, np.arange(first, first + count))  # as nsys numbers strings
    at, is_used = np.empty(len(ids), dtype=np.uint32), np.zeros(count + 1, dtype=np.bool_)
    for begin in range(0, len(ids), _BLOCK_ROWS):
        wanted = numbers(ids[begin : begin + _BLOCK_ROWS], null=first - 1)
        if is_contiguous:
            row = wanted - first
            exists = (row >= 0) & (row < count)
        else:
            row = np.searchsorted(ids_of_rows, wanted)  # the first row of a repeated id
            exists = ids_of_rows[np.minimum(row, count - 1)] == wanted
        found = np.where(exists, row, count)
        at[begin : begin + _BLOCK_ROWS] = found
        is_used[found] = True
    return at, is_used
