"""Pipeline coordinates in names of ranges and marks: `rank=3; pp=1/4 dp=0 tp=1`."""

from __future__ import annotations

import polars as pl

from nsys_pp.arrays.columns import keep_rows
from nsys_pp.arrays.names import has_match, is_matched, with_names
from nsys_pp.frames.roster import COORDINATES

_LETTERS = "(?i)pp"  # of the pipeline coordinate
_AXES = {"stage": "pp", "tensor": "tp", "replica": "dp"}


def find_coordinates(ranges: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Read the coordinates of processes in names of their ranges and marks.

    A name counts if it has the pipeline coordinate and another one: `pp=1` alone may mean anything. Processes with
    contradictory names have no coordinates.

    Args:
        ranges: `RANGES`.
        marks: `MARKS`.

    Returns:
        `COORDINATES`.
    """
    if not any(has_match(frame["name"], _LETTERS) for frame in (ranges, marks)):
        return COORDINATES.to_frame()
    named = pl.concat([_select_likely(frame) for frame in (ranges, marks)])
    text = pl.col("name").cast(pl.String)
    names = named.select(pl.col("name").unique()).drop_nulls()
    coordinates = names.select("name", *(_read(text, axis).alias(ours) for ours, axis in _AXES.items()))
    is_complete = pl.col("stage").is_not_null() & pl.any_horizontal(pl.col("tensor", "replica").is_not_null())
    coordinates = coordinates.filter(is_complete)
    if coordinates.is_empty():
        return COORDINATES.to_frame()
    named = named.filter(pl.col("name").is_in(coordinates["name"].implode())).unique()
    named = named.join(coordinates, on="name", how="inner").drop("name").unique()
    return named.filter(pl.len().over("process_key") == 1).select(COORDINATES.names()).sort("process_key")


def _select_likely(frame: pl.DataFrame) -> pl.DataFrame:
    """Select the processes and names of rows whose name may have coordinates."""
    return with_names(keep_rows(frame[["process_key", "name"]], is_matched(frame["name"], _LETTERS)))


def _read(text: pl.Expr, axis: str) -> pl.Expr:
    """Read `pp=1`, `pp=1/4` or `pp_rank: 1`; null without a match, or beyond the number of parts."""
    pattern = rf"(?i)(?:^|[^a-z0-9_]){axis}(?:_rank)?\s*[=:]\s*(\d{{1,6}})"
    coordinate = text.str.extract(pattern).cast(pl.Int64)
    count = text.str.extract(rf"{pattern}/(\d{{1,6}})", 2).cast(pl.Int64)
    return pl.when(count.is_null() | (coordinate < count)).then(coordinate)
