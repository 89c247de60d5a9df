"""Communication between GPUs by call and size, with bandwidths."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.table import Column, Table
from nsys_pp.tables.summary.groups import order_table
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, SHARED_COLUMNS, TableOptions
from nsys_pp.tables.summary.times import TIME_COLUMNS, TIME_TOTALS, sum_times
from nsys_pp.units import NS_PER_S

_COLUMNS = (
    Column(
        "size_bytes", pl.Int64, "message size that NCCL recorded: one rank's part; null where not recorded"
    ),
    Column("rank_count", pl.Int64, "ranks of the communicator; null where not recorded"),
    *TIME_COLUMNS,
    Column("algorithm_bytes_per_s", pl.Float64, "bytes of the call over the median duration"),
    Column("bus_bytes_per_s", pl.Float64, "bytes that a link transfers for it, over the median duration"),
    Column("best_algorithm_bytes_per_s", pl.Float64, "bytes of the call over the shortest duration"),
    Column(
        "best_bus_bytes_per_s", pl.Float64, "bytes that a link transfers for it, over the shortest duration"
    ),
    Column("call", pl.String, 'name of the NCCL call; "unknown" where not recorded'),
)
# As nccl-tests defines them (doc/PERFORMANCE.md). Of calls on the parts of all ranks, NCCL records one part.
_OF_PARTS = ("allgather", "reducescatter", "alltoall", "gather", "scatter")
_OF_WHOLE = ("broadcast", "reduce", "send", "recv")


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    frame = summary.frames["collective_aggregates"].with_columns(pl.col("call").fill_null("unknown"))
    rows = sum_times(frame, summary, options, keys=["call", "size_bytes", "rank_count"])
    algorithm_bytes, bus_bytes = _moved_bytes()
    speeds = {
        f"{best}{name}_bytes_per_s": pl.when(pl.col(duration) > 0).then(moved * NS_PER_S / pl.col(duration))
        for best, duration in (("", "median_ns"), ("best_", "min_ns"))
        for name, moved in (("algorithm", algorithm_bytes), ("bus", bus_bytes))
    }
    return order_table(
        rows.with_columns(**speeds), _COLUMNS, groups=COLUMNS_OF_GROUP[options.by], sort="total_ns"
    )


def _moved_bytes() -> tuple[pl.Expr, pl.Expr]:
    """Return the bytes of a call, and the bytes that a link transfers for it; null where unknown."""
    call = pl.col("call").str.to_lowercase()
    size, ranks = pl.col("size_bytes").cast(pl.Float64), pl.col("rank_count")
    whole = (
        pl.when(call.is_in(_OF_PARTS))
        .then(size * ranks)
        .when(call.is_in([*_OF_WHOLE, "allreduce"]))
        .then(size)
    )
    factor = (
        pl.when(call == "allreduce")
        .then(2 * (ranks - 1) / ranks)
        .when(call.is_in(_OF_PARTS))
        .then((ranks - 1) / ranks)
        .when(call.is_in(_OF_WHOLE))
        .then(1.0)
    )
    return whole, whole * factor


COMMUNICATION_TABLE = Table(
    name="communication",
    title="Communication by call and size",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "Durations of communication kernels, summed; they include waiting for late ranks. Bandwidths by the median are"
        " those that the program achieved, bandwidths by the shortest duration come closest to those of the links. They"
        " require sizes and, for collectives, the number of ranks, which NCCL records if the communicator was created"
        " during the capture."
    ),
    needs=("kernels",),
    totals=TIME_TOTALS,
    sort="total_ns",
    build=_build,
)
