"""NVTX ranges by name."""

from __future__ import annotations

import polars as pl

from nsys_pp.aggregates.item_sums import sum_instances
from nsys_pp.aggregates.step_times import step_on_host
from nsys_pp.frames.report import NAME

MOST_NAMES = 10_000
"""Limit of distinct names; above it, numbers in names are folded: "step 12" becomes "step #"."""
_NUMBER = r"[0-9]+([^0-9A-Za-z]|$)"  # not a digit within a word, as in `conv2d`


def sum_ranges(
    ranges: pl.DataFrame, projections: pl.DataFrame, steps: pl.DataFrame, *, most_names: int = MOST_NAMES
) -> pl.DataFrame:
    """Add up ranges by style, domain and name, as `nvtx_sum` and `nvtx_gpu_proj_sum` of `nsys stats` do.

    Args:
        ranges: `RANGES`, all domains.
        projections: `PROJECTIONS` of them, one row per range and device; a range on several
            devices counts on each.
        steps: `STEPS`.
        most_names: Maximum number of distinct names; above it, each number in a name is replaced by "#".

    Returns:
        `ITEM_AGGREGATES` of item "range", all measures. Open ranges end at the end of the capture. Empty in, empty out.
    """
    instances = ranges.select(
        "process_key",
        step_on_host(ranges, steps),
        "domain",
        style="kind",
        name=_fold(ranges["name"], most_names),
        value_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    # Ranges are in order of range_id, and projections are of some of them.
    of_range = instances[ranges["range_id"].search_sorted(projections["range_id"])]
    projected = projections.select("device_id", "call_count").hstack(of_range.drop("value_ns"))
    measured = {
        "host": instances,
        "span": projected.with_columns(value_ns=projections["gpu_end_ns"] - projections["gpu_start_ns"]),
        "gpu": projected.with_columns(value_ns=projections["total_ns"]),
    }
    parts = [sum_instances(rows, item="range", measure=measure) for measure, rows in measured.items()]
    return pl.concat(parts)


def _fold(names: pl.Series, most_names: int) -> pl.Series:
    """Replace numbers in names by "#" if there are more than `most_names` names."""
    distinct = names.unique().drop_nulls()
    if len(distinct) <= most_names:
        return names
    folded = pl.DataFrame(
        {"name": distinct, "folded": distinct.cast(pl.String).str.replace_all(_NUMBER, "#${1}").cast(NAME)}
    )
    return names.to_frame("name").join(folded, on="name", how="left", maintain_order="left")["folded"]
