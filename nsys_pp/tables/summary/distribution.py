"""Computation and communication, and how much of the one hides the other."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.tables.summary.groups import add_groups, add_ranks, finish, join_by, share, spread_hosts, sum_by
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, Columns, SummaryTable, TableOptions, says_of

_COLUMNS: Columns = {
    "time_ns": (pl.Int64, "added up over GPUs"),
    "fraction": (pl.Float64, "of the span"),
    "part": (pl.String, "what the GPUs did"),
}
_PARTS = {
    "span": pl.col("span_ns"),
    "computation": pl.col("compute_ns"),
    "communication": pl.col("communication_ns"),
    "overlap": pl.col("overlap_ns"),
    "exposed communication": pl.col("communication_ns") - pl.col("overlap_ns"),
    "exposed copies": pl.col("busy_ns") - pl.col("kernel_ns"),
    "idle": pl.col("span_ns") - pl.col("busy_ns"),
}
_PADDLE_SPAN = "ProfileStep"
_PADDLE_PARTS = {
    "Communication": pl.col("any_communication_ns"),
    "Computation": pl.col("compute_ns"),
    "Overlap": pl.col("any_overlap_ns"),
}


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    groups = COLUMNS_OF_GROUP[options.by]
    times = summary.frames["gpu_times"]
    parts = _PADDLE_PARTS if options.paddle_compat else _PARTS
    lane_states = [
        times.select("place", "step", part=pl.lit(part), time_ns=time_ns) for part, time_ns in parts.items()
    ]
    if options.paddle_compat:
        lane_states.insert(0, _paddle_spans(summary))
    frame = add_groups(pl.concat(lane_states), summary, options)
    rows = sum_by(frame, [*groups, "part"], time_ns=pl.col("time_ns").sum())
    is_span = pl.col("part").is_in(["span", _PADDLE_SPAN])
    spans = rows.filter(is_span).select(*groups, span_ns="time_ns")
    rows = join_by(rows, spans, groups).with_columns(fraction=share("time_ns", "span_ns"))
    rows = add_ranks(rows, frame, summary, groups=groups, keys=["part"], value="time_ns")
    return finish(rows, _COLUMNS, groups=groups)


def _paddle_spans(summary: Summary) -> pl.DataFrame:
    """Return the spans of steps on the CPU, at every GPU of the process; of all, where there are no steps."""
    spans = spread_hosts(summary).filter(pl.col("activity") == "span")
    has_steps = pl.col("step").is_not_null().any().over("place")
    return (
        spans.filter(pl.col("step").is_not_null() | ~has_steps)
        .join(summary.frames["gpu_times"].select("place").unique(), on="place", how="semi")
        .select("place", "step", part=pl.lit(_PADDLE_SPAN), time_ns="union_ns")
    )


DISTRIBUTION_TABLE = SummaryTable(
    title="Computation and communication",
    columns=says_of(_COLUMNS),
    says=(
        "Of each GPU across its streams, added up. Computation, exposed communication, exposed copies (without a kernel) and"
        " idle are the span; overlap: computation and communication at once."
    ),
    says_compat=(
        "As Paddle counts: ProfileStep is the length of the steps on the CPU; communication is kernels of communication"
        " and ranges of it on the CPU; overlap is that and computation at once."
    ),
    needs=("kernels", "graphs"),
    totals=(),
    sort="",
    build=_build,
    is_fixed=True,
)
