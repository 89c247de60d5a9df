"""Places in the pipeline that a program writes into names: `rank=3; pp=1/4 dp=0 tp=1`."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.roster import COORDINATES

_AXES = {"stage": "pp", "tensor": "tp", "replica": "dp"}


def find_coordinates(ranges: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Read the places that processes say in names of their ranges and marks.

    A name counts if it gives the place in the pipeline and in one more way of splitting, so that
    `pp=1` alone, which may be anything, does not. What a process says in two ways is not believed.

    Args:
        ranges: `RANGES`.
        marks: `MARKS`.

    Returns:
        `COORDINATES`.
    """
    said = pl.concat([frame.select("process_key", "name") for frame in (ranges, marks)])
    text = pl.col("name").cast(pl.String)
    names = said.select(pl.col("name").unique()).drop_nulls()
    likely = names.filter(text.str.contains_any(["pp"], ascii_case_insensitive=True))
    places = likely.select("name", *(_read(text, axis).alias(ours) for ours, axis in _AXES.items()))
    is_place = pl.col("stage").is_not_null() & pl.any_horizontal(pl.col("tensor", "replica").is_not_null())
    places = places.filter(is_place)
    if places.is_empty():
        return COORDINATES.to_frame()
    said = said.filter(pl.col("name").is_in(places["name"].implode())).unique()
    said = said.join(places, on="name", how="inner").drop("name").unique()
    return said.filter(pl.len().over("process_key") == 1).select(COORDINATES.names()).sort("process_key")


def _read(text: pl.Expr, axis: str) -> pl.Expr:
    """Read `pp=1`, `pp=1/4` or `pp_rank: 1`; null where it is none, or beyond its number of parts."""
    pattern = rf"(?i)(?:^|[^a-z0-9_]){axis}(?:_rank)?\s*[=:]\s*(\d{{1,6}})"
    place = text.str.extract(pattern).cast(pl.Int64)
    count = text.str.extract(rf"{pattern}/(\d{{1,6}})", 2).cast(pl.Int64)
    return pl.when(count.is_null() | (place < count)).then(place)
