"""Iterations of inference by kind of batch: times, gaps with the activity of the host, requests and tokens, CUDA graphs."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import BATCH_COUNTS, BATCH_KIND, HOST_ACTIVITIES, Training
from nsys_pp.tables.training.family_table import FAMILY_COLUMNS, FAMILY_TIMES, classify_training, sum_families
from nsys_pp.units import NS_PER_S

_KIND = Column("batch", BATCH_KIND, "kind of batch; null: unknown", null_text="unknown")
_COLUMNS = (
    Column("iteration_count", pl.Int64, "complete iterations of the run", heading="Iterations"),
    Column("lane_iteration_count", pl.Int64, "the same, of all lanes", heading="On all lanes", priority=1),
    Column(
        "median_ns",
        pl.Float64,
        "median time from the first operation of an iteration to its last one",
        heading="Time",
        display_unit="ms",
        priority=9,
    ),
    Column(
        "p99_ns",
        pl.Float64,
        "99th percentile of this time",
        heading="Time p99",
        display_unit="ms",
        priority=9,
    ),
    Column("busy_fraction", pl.Float64, "share of this time in which operations run", decimals=1, priority=8),
    Column(
        "median_gap_ns",
        pl.Float64,
        "median time from the last operation of an iteration to the first one of the next",
        heading="Gap after",
        display_unit="us",
        priority=9,
    ),
    Column(
        "p99_gap_ns",
        pl.Float64,
        "99th percentile of this time",
        heading="Gap p99",
        display_unit="us",
        priority=8,
    ),
    Column(
        "gap_fraction",
        pl.Float64,
        "share of the gaps in the time of iterations and gaps",
        decimals=1,
        priority=8,
    ),
    *(
        Column(
            f"{activity}_fraction",
            pl.Float64,
            f"share of the gaps in which the host was {activity}; null without gaps"
            if activity != "other"
            else "share of the gaps without a known activity of the host; null without gaps",
            decimals=0,
            priority=6,
        )
        for activity in HOST_ACTIVITIES
    ),
    *(
        Column(
            f"mean_{count}",
            pl.Float64,
            f"{count.replace('context', 'prefill').replace('_', ' ')} of an iteration, mean; null: not in all names",
            heading=count.replace("context", "prefill").replace("_", " ").capitalize(),
            decimals=1,
            priority=5,
        )
        for count in BATCH_COUNTS
    ),
    Column(
        "tokens_per_s",
        pl.Float64,
        "tokens of all kinds per second of iterations and gaps, on one lane; null: not in all names",
        heading="Tokens/s",
        decimals=0,
        priority=5,
    ),
    Column(
        "graph_fraction",
        pl.Float64,
        "share of kernel time in CUDA graphs",
        heading="In graphs",
        decimals=1,
        priority=7,
    ),
    Column(
        "graph_launch_fraction",
        pl.Float64,
        "share of launches of CUDA graphs in the launches of kernels",
        heading="Graph launches",
        decimals=1,
        priority=5,
    ),
    Column(
        "by_launches_fraction",
        pl.Float64,
        "share of iterations whose kind follows from their launches, not from names",
        heading="By launches",
        decimals=0,
        priority=2,
        is_optional=True,
    ),
    _KIND,
)
_ACTIVITY_FRACTIONS = tuple(f"{activity}_fraction" for activity in HOST_ACTIVITIES)
_ACTIVITIES = Column(
    "activities",
    pl.String,
    "activities of the host in the gaps, with their shares",
    heading="Host in gaps",
    priority=9,
)
_SHOWN = (
    *("batch", "iteration_count", "median_ns", "p99_ns", "busy_fraction", "median_gap_ns", "p99_gap_ns"),
    *("gap_fraction", *(f"mean_{count}" for count in BATCH_COUNTS), "tokens_per_s", "graph_fraction"),
    *("graph_launch_fraction", "by_launches_fraction"),
)
_LEAST_SHARE = 0.01  # of the activities that are shown
_FAMILY_COLUMNS = (
    _KIND,
    *FAMILY_TIMES,
    Column("fraction", pl.Float64, "share of the kernels of the kind of batch", decimals=1),
    *FAMILY_COLUMNS,
)


def select_iterations(training: Training) -> pl.DataFrame:
    """Return the complete batches (`LANE_BATCHES`) of the steps of a training.

    The last batch of a lane is cut: the sampling after its range is unknown. If all batches are cut, all are returned.
    """
    steps = training.steps.select("lane", "step", "is_partial")
    batches = training.batches.join(steps, on=["lane", "step"]).drop_nulls("start_ns")
    complete = batches.filter(~pl.col("is_partial"), pl.col("gap_ns").is_not_null())
    return batches if complete.is_empty() else complete


def list_decodes(training: Training) -> pl.DataFrame:
    """List the batches of inference that are decodes on all their lanes: step, requests (mean of the lanes; null where unknown).

    Other batches are as long as their requests make them. Empty in runs without batches.
    """
    is_decode = (pl.col("kind") == "decode").fill_null(value=False)
    batches = training.batches.group_by("step").agg(
        is_decode=is_decode.all(), requests=pl.col("generation_requests").mean()
    )
    return batches.filter("is_decode").select("step", "requests")


def build_iteration_table(training: Training) -> pl.DataFrame:
    """Build the rows of `ITERATION_TABLE`, by kind of batch; empty without batches."""
    time = pl.col("end_ns") - pl.col("start_ns")
    gap, period = pl.col("gap_ns"), time + pl.col("gap_ns").fill_null(0)
    tokens = pl.col("context_tokens") + pl.col("generation_tokens")
    is_known = tokens.is_not_null().all()
    return (
        select_iterations(training)
        .group_by("kind")
        .agg(
            iteration_count=pl.col("step").n_unique(),
            lane_iteration_count=pl.len(),
            median_ns=time.median(),
            p99_ns=time.quantile(0.99, "linear"),
            busy_fraction=_share(pl.col("busy_ns"), time),
            median_gap_ns=gap.median(),
            p99_gap_ns=gap.quantile(0.99, "linear"),
            gap_fraction=_share(gap, period),
            **{f"{name}_fraction": _share(pl.col(f"{name}_ns"), gap) for name in HOST_ACTIVITIES},
            **{
                f"mean_{name}": pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).mean())
                for name in BATCH_COUNTS
            },
            tokens_per_s=pl.when(is_known).then(tokens.sum() / (period.sum() / NS_PER_S)),
            graph_fraction=_share(pl.col("graph_ns"), pl.col("kernel_ns")),
            graph_launch_fraction=_share(pl.col("graph_launch_count"), pl.col("launch_count")),
            by_launches_fraction=(pl.col("source") == "launches").fill_null(value=False).mean(),
        )
        .rename({"kind": "batch"})
        .sort("batch", nulls_last=True)
        .pipe(conform, build_table_schema(_COLUMNS))
    )


def build_iteration_family_table(training: Training) -> pl.DataFrame:
    """Build the rows of `ITERATION_FAMILY_TABLE`: kernels of complete iterations by kind of batch; empty without batches."""
    batches = select_iterations(training).select("lane", "step", batch="kind")
    kernels = classify_training(training).join(batches, on=["lane", "step"])
    return sum_families(kernels, "batch", _FAMILY_COLUMNS)


def _add_activities(table: pl.DataFrame) -> pl.DataFrame:
    """Add the largest shares of the host's activities in the gaps, as text: "scheduling 48%, launching 47%"."""
    shares = (
        table.select(_ACTIVITY_FRACTIONS)
        .with_row_index("row")
        .unpivot(index="row", variable_name="activity", value_name="share")
        .filter(pl.col("share") >= _LEAST_SHARE)
        .sort("row", "share", descending=[False, True], maintain_order=True)
    )
    percent = (100 * pl.col("share")).round().cast(pl.Int64)
    texts = shares.group_by("row", maintain_order=True).agg(
        activities=pl.format("{} {}%", pl.col("activity").str.strip_suffix("_fraction"), percent).str.join(
            ", "
        )
    )
    rows = table.with_row_index("row")
    return rows.join(texts, on="row", how="left", maintain_order="left").drop("row")


def _share(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """Return the ratio of two sums; null where the whole is 0."""
    return pl.when(whole.sum() > 0).then(part.sum() / whole.sum())


_EMPTY = "no step is an iteration of inference"
ITERATION_TABLE = Table(
    name="iterations",
    title="Iterations of inference by kind of batch",
    columns=_COLUMNS,
    caption=(
        "times on the GPU, of operations launched in an iteration; activities: of the launching thread, in the gaps after"
        " iterations; complete iterations, on all lanes"
    ),
    build=build_iteration_table,
    is_fixed=True,
    empty=_EMPTY,
    view=View(columns=(*_SHOWN, _ACTIVITIES), derive=_add_activities),
)
ITERATION_FAMILY_TABLE = Table(
    name="iteration_families",
    title="Families of kernels by kind of batch",
    columns=_FAMILY_COLUMNS,
    caption="durations of kernels, summed over lanes: concurrent kernels all count; complete iterations",
    build=build_iteration_family_table,
    empty=_EMPTY,
    view=View(columns=tuple(column.name for column in _FAMILY_COLUMNS)),
)
