"""NVTX ranges by name."""

from __future__ import annotations

from functools import partial

import polars as pl

from nsys_pp.aggregates.item_sums import sum_instances
from nsys_pp.aggregates.windows import step_on_host
from nsys_pp.arrays.columns import gather, list_names, split_texts
from nsys_pp.arrays.scratch_frames import build_blocks
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
    folded = _fold(ranges["name"], most_names)

    def list_ranges(first: int, stop: int) -> pl.DataFrame:
        rows = ranges[first:stop]
        return rows.select(
            "process_key",
            step_on_host(rows, steps),
            "domain",
            style="kind",
            name=folded[first:stop],
            value_ns=pl.col("end_ns") - pl.col("start_ns"),
        )

    def list_projections(value: pl.Expr, first: int, stop: int) -> pl.DataFrame:
        rows = projections[first:stop]
        # Ranges are in order of range_id, and projections are of some of them.
        of_range = instances[ranges["range_id"].search_sorted(rows["range_id"])]
        return rows.select("device_id", "call_count", value_ns=value).hstack(of_range.drop("value_ns"))

    instances = build_blocks(len(ranges), list_ranges)
    times = {"span": pl.col("gpu_end_ns") - pl.col("gpu_start_ns"), "gpu": pl.col("total_ns")}
    parts = [sum_instances(instances, item="range", measure="host")]
    for measure, value in times.items():
        rows = build_blocks(len(projections), partial(list_projections, value))
        parts.append(sum_instances(rows, item="range", measure=measure))
    return pl.concat(parts)


def _fold(names: pl.Series, most_names: int) -> pl.Series:
    """Replace numbers in names by "#" if there are more than `most_names` names."""
    listed = list_names(names)
    if len(listed.texts) - (None in listed.texts) <= most_names:
        return names
    folded = pl.concat(
        texts.str.replace_all(_NUMBER, "#${1}").cast(NAME) for texts in split_texts(listed.texts)
    )
    return gather(folded, listed.row).alias("folded")
