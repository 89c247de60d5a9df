"""Activities of the host in bubbles that wait for it."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.requested import HOST_ACTIVITY
from nsys_pp.frames.table import Column, Table, build_table_schema
from nsys_pp.frames.training import CAUSE, Training

_COLUMNS = (
    Column("cause", CAUSE, "cause of the bubbles: host or data", priority=9),
    Column("activity", HOST_ACTIVITY, "kind of activity of the launching thread; null: the bubbles themselves", priority=8),
    Column("name", pl.String, "name of the range, call, state or function, or functions of the stack from the innermost on; null: the bubbles themselves", is_name=True, priority=9),
    Column("time_ns", pl.Int64, "time in it during the bubbles, without activities of its kind inside it; null for samples", display_unit="ms", priority=8),
    Column("fraction", pl.Float64, "share of the time of the bubbles; of the samples of these bubbles", decimals=1, priority=9),
    Column("count", pl.Int64, "bubbles with it; samples", priority=6),
    Column("lane_count", pl.Int64, "lanes with it", heading="Lanes", priority=4),
)  # fmt: skip
_LEAST_FRACTION = 0.001
_SAMPLES = ("sample", "sample stack")


def build_host_table(training: Training, host_times: pl.DataFrame) -> pl.DataFrame:
    """Build the rows of `HOST_TABLE`: by cause, then by activity, then by descending share.

    Args:
        training: The training.
        host_times: `HOST_TIMES`.
    """
    summed = host_times.group_by("cause", "activity", "name").agg(
        time_ns=pl.when(pl.col("time_ns").is_not_null().any()).then(pl.col("time_ns").sum()),
        count=pl.col("count").sum(),
        lane_count=pl.col("lane").n_unique().cast(pl.Int64),
    )
    whole = summed.filter(pl.col("activity").is_null()).select("cause", whole_ns="time_ns")
    is_sample = pl.col("activity").is_in(_SAMPLES).fill_null(value=False)
    samples = pl.col("count").filter(pl.col("activity") == "sample").sum().over("cause")
    return (
        summed.join(whole, on="cause", how="left")
        .with_columns(
            fraction=pl.when(is_sample)
            .then(pl.col("count") / samples)
            .otherwise(pl.col("time_ns") / pl.col("whole_ns"))
            .fill_nan(None)
        )
        .filter(pl.col("activity").is_null() | (pl.col("fraction") >= _LEAST_FRACTION))
        .sort("cause", "activity", -pl.col("fraction"), "name", nulls_last=False)
        .pipe(conform, build_table_schema(_COLUMNS))
    )


HOST_TABLE = Table(
    name="host",
    title="Host in bubbles of causes host and data",
    columns=_COLUMNS,
    caption=(
        "of the thread that launched the next kernel; shares of one kind of activity add up to at most all of the bubbles, and kinds overlap."
        " Shares below 0.1 % are left out"
    ),
    build=build_host_table,
    empty="no bubble of cause host or data",
)
