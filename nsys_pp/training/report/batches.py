"""Batches of inference: steps classed as prefill, decode or mixed, by the names of their ranges or by their launches."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import BATCH_COUNTS, BATCH_KIND, BATCHES
from nsys_pp.training.report.batch_times import build_batch_times
from nsys_pp.training.report.gap_activities import build_gap_activities
from nsys_pp.training.report.launched_ops import LaunchedOps
from nsys_pp.training.report.vocabulary import NAMED_STEPS

_KEYS = ["process_key", "device_id", "step"]
_KINDS = BATCH_KIND.categories.to_list()
_MOST_GRAPHS = (
    4  # launched by a decode: drafts and their verification; a piecewise batch launches some per layer
)
_LEAST_GRAPH_SHARE = 0.5  # of the kernels' time in a decode: sampling is outside the graph


def widen_batches(step_ranges: pl.DataFrame) -> pl.DataFrame:
    """Move the end of each step of inference to the start of the next one on its thread.

    Engines sample, and update requests, after the range of an iteration. The last range of a thread keeps its end, and so do
    ranges inside others, and those whose batch is unknown: several threads may use a device at once.

    Args:
        step_ranges: `NAMED_STEPS`.

    Returns:
        The same rows.
    """
    if not step_ranges["batch"].count():
        return step_ranges
    is_batch = pl.col("batch").is_not_null() & (pl.col("batch") != "unknown")
    ordered = step_ranges.filter(is_batch).sort(
        "thread_key", "start_ns", "end_ns", descending=[False, False, True]
    )
    before = pl.col("end_ns").cum_max().shift().over("thread_key")
    outermost = ordered.filter((pl.col("start_ns") >= before).fill_null(value=True))
    following = outermost.select("range_id", following_ns=pl.col("start_ns").shift(-1).over("thread_key"))
    widened = step_ranges.join(following, on="range_id", how="left", maintain_order="left")
    return widened.with_columns(end_ns=pl.max_horizontal("end_ns", "following_ns")).pipe(conform, NAMED_STEPS)


def find_batches(
    step_ranges: pl.DataFrame,
    *,
    steps: pl.DataFrame,
    ranges: pl.DataFrame,
    named_jobs: pl.DataFrame,
    ops: LaunchedOps,
    os_calls: pl.DataFrame,
) -> pl.DataFrame:
    """Find the batches of a report.

    The kind is that of the name, or follows from the counts in it. Names of some engines have neither; then a batch whose
    kernels are mostly those of a few CUDA graphs is a decode, and others are unknown: prefills, mixed batches, or decodes
    too large for a graph. A range inside the range of a step may have what that lacks.

    Args:
        step_ranges: `NAMED_STEPS`, from `widen_batches`.
        steps: `STEPS` of them.
        ranges: `RANGES`.
        named_jobs: `NAMED_JOBS`; roles that are `HOST_ACTIVITIES` are those of the host.
        ops: Operations of the report.
        os_calls: `OS_CALLS`; empty unless recorded.

    Returns:
        `BATCHES`. Empty without steps of inference.
    """
    named = class_batches(step_ranges, steps)
    if named.is_empty():
        return BATCHES.to_frame()
    times = build_batch_times(named, ops)
    iterations = ranges.join(
        step_ranges.filter(pl.col("batch").is_not_null()), on="range_id", how="semi", maintain_order="left"
    )
    activities = build_gap_activities(
        times, iterations=iterations, named_jobs=named_jobs, api_calls=ops.api_calls, os_calls=os_calls
    )
    batches = named.hstack(times.drop("thread_key")).hstack(activities)
    is_decode = (
        (pl.col("batch") == "launches")
        & pl.col("graph_launch_count").is_between(1, _MOST_GRAPHS)
        & (pl.col("graph_ns") >= _LEAST_GRAPH_SHARE * pl.col("kernel_ns"))
    )
    source = (
        pl.when(pl.col("kind").is_not_null()).then(pl.lit("name")).when(is_decode).then(pl.lit("launches"))
    )
    kind = pl.coalesce("kind", pl.when(is_decode).then(pl.lit("decode")))
    return batches.with_columns(source=source, kind=kind).sort(_KEYS).pipe(conform, BATCHES)


def class_batches(step_ranges: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Class the batches among steps by the names of their ranges.

    Of several ranges in a step, the one with most counts, or a kind, comes first; of equal ones the outermost. Tokens of no
    requests are 0.

    Args:
        step_ranges: `NAMED_STEPS`, from `widen_batches`.
        steps: `STEPS` of them.

    Returns:
        Keys of `STEPS`, host_start_ns, host_end_ns, batch (of its rule), kind and counts; by device and start.
    """
    if not step_ranges["batch"].count():
        return pl.DataFrame()
    ranges = step_ranges.filter(pl.col("batch").is_not_null()).select(
        "process_key", "batch", *BATCH_COUNTS, range_start_ns="start_ns", range_end_ns="end_ns"
    )
    spans = (
        steps.filter(source="range")
        .drop_nulls("host_start_ns")
        .select(*_KEYS, "host_start_ns", "host_end_ns")
    )
    if ranges.is_empty() or spans.is_empty():
        return pl.DataFrame()
    owners = ranges.sort("range_start_ns").join_asof(
        spans.select("process_key", "host_start_ns", "host_end_ns").unique().sort("host_start_ns"),
        left_on="range_start_ns",
        right_on="host_start_ns",
        by="process_key",
        check_sortedness=False,
    )
    known = pl.sum_horizontal(pl.col(*BATCH_COUNTS).is_not_null().cast(pl.Int64))
    best = (
        owners.filter(pl.col("range_start_ns") < pl.col("host_end_ns"))
        .with_columns(is_kind=pl.col("batch").is_in(_KINDS), known=known)
        .sort("known", "is_kind", "range_start_ns", "range_end_ns", descending=[True, True, False, True])
        .unique(["process_key", "host_start_ns"], keep="first", maintain_order=True)
        .drop("host_end_ns")
    )
    tokens = {
        f"{part}_tokens": pl.when(pl.col(f"{part}_requests") == 0).then(0).otherwise(f"{part}_tokens")
        for part in ("context", "generation")
    }
    return (
        spans.join(best, on=["process_key", "host_start_ns"])
        .with_columns(_class_names(), **tokens)
        .sort("process_key", "device_id", "host_start_ns")
    )


def _class_names() -> pl.Expr:
    """Return the kind of batch by name: of its rule, else by counts of requests; null where unknown."""
    context, generation = pl.col("context_requests") > 0, pl.col("generation_requests") > 0
    return (
        pl.when(pl.col("batch").is_in(_KINDS))
        .then(pl.col("batch"))
        .when(context & generation)
        .then(pl.lit("mixed"))
        .when(context & ~generation)
        .then(pl.lit("prefill"))
        .when(~context & generation)
        .then(pl.lit("decode"))
        .alias("kind")
    )
