"""Names of events: string ids are resolved once, and only ids that events refer to.

The table of strings also contains the environment of the profiled program, with secrets; strings that no event
refers to are dropped here.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.arrays.columns import gather, index_column, numbers
from nsys_pp.arrays.scratch_frames import build_blocks, list_blocks, map_blocks
from nsys_pp.frames.report import NAME

_CACHE_SIZE, _MOST_NAMES = 64, 2_048


def resolve(
    ids: pl.Series, strings: pl.DataFrame, *, strip: str | None = None, dtype: pl.DataType = NAME
) -> pl.Series:
    """Return the name of every id; null for null and unknown ids.

    Args:
        ids: Ids into `strings`.
        strings: The raw frame of strings.
        strip: Regular expression of text to remove from names.
        dtype: `NAME`, or String for names that need no category.

    Returns:
        A column of the length of `ids`.
    """
    if strings["id"].has_nulls():
        strings = strings.drop_nulls("id")
    if ids.null_count() == len(ids) or strings.is_empty():
        return pl.Series(ids.name, [None], dtype=dtype).new_from_index(0, len(ids))
    if not strings["id"].is_sorted():
        strings = strings.sort("id", maintain_order=True)
    count, at = strings.height, _find(ids, strings["id"])
    counts = np.zeros(count + 1, dtype=np.int64)
    for rows in list_blocks(len(at)):
        counts += np.bincount(at[rows], minlength=count + 1)
    used = np.flatnonzero(counts[:count])
    text = index_column(strings["text"], used)
    if strip is not None:
        texts = text.to_list()
        text = (_strip if len(texts) <= _MOST_NAMES else _strip.__wrapped__)(tuple(texts), strip)
    position = np.full(count + 1, -1)  # in a small table of categories: no work on strings per row
    position[used] = np.arange(len(used))
    words = text.cast(dtype)
    return build_blocks(
        len(at), lambda first, stop: gather(words, position[at[first:stop]]).alias(ids.name).to_frame()
    ).to_series()


@lru_cache(_CACHE_SIZE)  # reports of a run mostly have the same names
def _strip(texts: tuple[str | None, ...], pattern: str) -> pl.Series:
    """Remove the first match of an expression from texts."""
    return pl.Series(texts, dtype=pl.String).str.replace(pattern, "")


def _find(ids: pl.Series, listed: pl.Series) -> NDArray[np.int64]:
    """Find the row of each id in a sorted list; the length of the list for null and unknown ids."""
    ids_of_rows = listed.cast(pl.Int64).to_numpy()
    return map_blocks(
        len(ids), np.int64, lambda begin, stop: _find_block(ids[begin:stop].cast(pl.Int64), ids_of_rows)
    )


def _find_block(wanted: pl.Series, ids_of_rows: NDArray[np.int64]) -> NDArray[np.int64]:
    first, count = int(ids_of_rows[0]), len(ids_of_rows)
    values = numbers(wanted, null=first - 1)
    if np.array_equal(ids_of_rows, np.arange(first, first + count)):  # as nsys numbers strings
        at = values - first
        exists = (at >= 0) & (at < count)
    else:
        at = np.searchsorted(ids_of_rows, values)  # the first row of a repeated id
        exists = ids_of_rows[np.minimum(at, count - 1)] == values
    return np.where(exists, at, count)
