"""Performance counters of processors -> COUNTERS.

Counters of cores and of the memory system around them have their values in tables of their own: an interval refers to a set of values.
Counters of `perf` have one row per interval and value. A value is drawn at the start of its interval.
"""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import COUNTERS


def build_processor_counters(raw: RawReport) -> pl.DataFrame:
    """Build a counter of the system for each event of each processor, cluster or component.

    Returns:
        `COUNTERS`, named like "CPU 3: instructions". Intervals without a value have no sample.
    """
    counts = raw["processor_counts"]
    if counts.is_empty():
        return COUNTERS.to_frame()
    alone = counts.filter(pl.col("set").is_null())
    joined = (
        counts.drop("event", "value")
        .drop_nulls("set")
        .join(raw["processor_values"].drop("table"), on=["source", "set"], how="inner", maintain_order="left")
    )
    names = (
        raw["processor_counter_names"]
        .drop("table")
        .unique(["source", "event"], keep="first", maintain_order=True)
    )
    rows = (
        pl.concat([alone, joined], how="diagonal")
        .drop_nulls("value")
        .join(names, on=["source", "event"], how="left", maintain_order="left")
        .join(_name_components(raw), on=["source", "unit"], how="left", maintain_order="left")
    )
    owner = pl.coalesce("component", pl.format("{} {}", "source", pl.col("unit").fill_null(0)))
    event = pl.coalesce("label", "name", pl.format("event {}", pl.col("event").fill_null(0)))
    return rows.select(
        process_key=pl.lit(None, pl.Int64),
        device_id=pl.lit(None, pl.Int32),
        name=pl.format("{}: {}", owner, event),
        unit=pl.coalesce("measure", pl.lit("count")),
        time_ns="start",
        value="value",
    ).pipe(conform, COUNTERS)


def _name_components(raw: RawReport) -> pl.DataFrame:
    """Return the names of components: `source`, `unit` and `component`; their instance is added where several share a name."""
    listed = (
        raw["processor_components"]
        .unique("unit", keep="first", maintain_order=True)
        .drop_nulls(["unit", "name"])
    )
    with_instance = pl.format("{} {}", "name", "instance")
    is_shared = (pl.len().over("name") > 1) & pl.col("instance").is_not_null()
    return listed.select(
        "unit",
        source=pl.lit("component"),
        component=pl.when(is_shared).then(with_instance).otherwise("name"),
    )
