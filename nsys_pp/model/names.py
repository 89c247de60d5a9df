"""Resolve string ids, once, and only those that some event refers to.

The table of strings also holds the environment of the profiled program, tokens and all. What no
event refers to is left behind here.
"""

from __future__ import annotations

import polars as pl

from nsys_pp.schema import NAME


def look_up(ids: pl.Series, strings: pl.DataFrame) -> pl.DataFrame:
    """Give the strings that `ids` refer to.

    Returns:
        Columns `id` and `text`, one row per id that is used and known.
    """
    used = ids.drop_nulls().unique().alias("id").to_frame()
    return strings.join(used, on="id", how="semi").unique("id", keep="first", maintain_order=True)


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
    known = look_up(ids, strings)
    if known.is_empty():
        return pl.Series(ids.name, [None], dtype=dtype).new_from_index(0, len(ids))
    text = pl.col("text") if strip is None else pl.col("text").str.replace(strip, "")
    known = known.select("id", text.cast(dtype))
    # one small table of categories, one join of integers: no string is touched per row
    named = ids.alias("id").to_frame().join(known, on="id", how="left", maintain_order="left")
    return named["text"].alias(ids.name)
