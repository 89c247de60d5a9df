"""NVTX ranges by name."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.aggregates.item_sums import sum_instances
from nsys_pp.aggregates.step_times import step_on_host
from nsys_pp.arrays.columns import find_distinct, index_rows, numbers, subtract
from nsys_pp.arrays.names import map_names

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
    columns = [
        step_on_host(ranges, steps),
        ranges["domain"],
        ranges["kind"].alias("style"),
        _fold(ranges["name"], most_names).alias("name"),
    ]
    instances = ranges[["process_key"]].hstack(columns)
    # Ranges are in order of range_id, and projections are of some of them.
    row = np.searchsorted(numbers(ranges["range_id"]), numbers(projections["range_id"]))
    projected = projections[["device_id", "call_count"]].hstack(index_rows(instances, row))
    spans = subtract(projections["gpu_end_ns"], projections["gpu_start_ns"])
    measured = {
        "host": (instances, subtract(ranges["end_ns"], ranges["start_ns"])),
        "span": (projected, spans),
        "gpu": (projected, projections["total_ns"]),
    }
    parts = [
        sum_instances(rows.hstack([values.alias("value_ns")]), item="range", measure=measure)
        for measure, (rows, values) in measured.items()
    ]
    return pl.concat(parts)


def _fold(names: pl.Series, most_names: int) -> pl.Series:
    """Replace numbers in names by "#" if there are more than `most_names` names."""
    first, _ = find_distinct(numbers(names, null=-1))
    if len(first) - bool(names.null_count()) <= most_names:
        return names
    return map_names(names, lambda texts: texts.str.replace_all(_NUMBER, "#${1}"))
