"""Resolve string ids, once, and only those that some event refers to.

The table of strings also holds the environment of the profiled program, tokens and all. What no
event refers to is left behind here.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.frames.report import NAME


def resolve(
    ids: pl.Series, strings: pl.DataFrame, *, strip: str | None = None, dtype: pl.DataType = NAME
) -> pl.Series:
    """Give the name behind every id; null where there is none or it is unknown.

    Args:
        ids: Ids into `strings`.
        strings: The raw frame of strings.
        strip: A regular expression of what to remove from names.
        dtype: `NAME`, or String for names that are not to be remembered among all names.

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
    used = np.flatnonzero(np.bincount(at, minlength=count + 1)[:count])
    text = strings["text"][used]
    text = text if strip is None else text.str.replace(strip, "")
    # one small table of categories, and a null for what is unknown: no string is touched per row
    named = text.cast(dtype).extend_constant(None, 1)
    places = np.full(count + 1, len(used), dtype=np.uint32)
    places[used] = np.arange(len(used), dtype=np.uint32)
    return named[places[at]].alias(ids.name)


def _find(ids: pl.Series, listed: pl.Series) -> NDArray[np.int64]:
    """Find ids among those listed, ascending; what is not among them (or null) is beyond the last."""
    known, wanted = listed.cast(pl.Int64).to_numpy(), ids.cast(pl.Int64)
    first, count = int(known[0]), len(known)
    if wanted.has_nulls():
        wanted = wanted.set(wanted.is_null(), first - 1)
    if np.array_equal(known, np.arange(first, first + count)):  # as nsys numbers strings
        at = wanted.to_numpy() - first
        is_known = (at >= 0) & (at < count)
    else:
        at = np.searchsorted(known, wanted.to_numpy())  # of an id that is there twice, the first
        is_known = known[np.minimum(at, count - 1)] == wanted.to_numpy()
    return np.where(is_known, at, count)
