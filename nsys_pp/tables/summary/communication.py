"""Communication between GPUs by call and size, with bandwidths."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.tables.summary.groups import finish
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, Columns, SummaryTable, TableOptions, says_of
from nsys_pp.tables.summary.times import TIME_COLUMNS, TIME_TOTALS, sum_times
from nsys_pp.units import NS_PER_S

_COLUMNS: Columns = {
    "size_bytes": (pl.Int64, "what NCCL was told: of one rank's part; empty where not recorded"),
    "rank_count": (pl.Int64, "ranks of the communicator; empty where not recorded"),
    **TIME_COLUMNS,
    "algorithm_bytes_per_s": (pl.Float64, "data of the call by the median duration"),
    "bus_bytes_per_s": (pl.Float64, "what a link carries for it, by the median duration"),
    "best_algorithm_bytes_per_s": (pl.Float64, "data of the call by the shortest duration"),
    "best_bus_bytes_per_s": (pl.Float64, "what a link carries for it, by the shortest duration"),
    "call": (pl.String, 'what NCCL was asked for; "unknown" where nothing tells'),
}
# How nccl-tests (doc/PERFORMANCE.md) has it. Of the calls of every rank's part, NCCL is told one part.
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
    return finish(rows.with_columns(**speeds), _COLUMNS, groups=COLUMNS_OF_GROUP[options.by], sort="total_ns")


def _moved_bytes() -> tuple[pl.Expr, pl.Expr]:
    """Return the bytes of a call, and those that a link carries for it; null where either is unknown."""
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


COMMUNICATION_TABLE = SummaryTable(
    title="Communication by call and size",
    columns=says_of(_COLUMNS),
    says=(
        "Durations of kernels of communication added up; they contain the wait for ranks that come late: bandwidths by the"
        " median are what the program got, those by the shortest duration come closest to the links. They need sizes and,"
        " of collectives, the number of ranks, which NCCL tells where a communicator was made in the capture."
    ),
    needs=("kernels",),
    totals=TIME_TOTALS,
    sort="total_ns",
    build=_build,
)
