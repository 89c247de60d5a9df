"""Samples of a training for comparison: one value per metric and complete step."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from nsys_pp.frames.aggregates import SAMPLE
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import BUBBLE_CAUSES, JOB_KINDS, MICRO_BATCH_KINDS, SCHEDULED_KINDS, Training
from nsys_pp.tables.training.family_table import classify_training
from nsys_pp.tables.training.lane_steps import sum_lane_steps
from nsys_pp.tables.training.link_table import LEAST_EXCESS, time_transfers
from nsys_pp.tables.training.own_compute import select_outermost, sum_own_compute

LEAST_CHANGE = 0.01
"""Least change of a time, as a share of it, that counts as a change."""
LEAST_SHARE = 0.005
"""Least change of a part of the bubble, as a share of the step, that counts as a change."""
LEAST_RANK_CHANGE = 0.02
"""Least change of the compute of a rank, as a share of it: GPUs of one kind differ by about as much."""
LEAST_LINK_CHANGE = LEAST_EXCESS
"""Least change of the transfers of a link, as a share of them, in addition to the error of the clocks."""
KERNEL_TOTAL, KERNEL_MEAN = "total per lane", "mean of one"
"""Metrics of kernels that do not communicate."""
SPAN = "on a lane, median"
"""Metric of the length of a step."""
_LEAST_TIMED = 2  # transfers of a link in a step


def sample_steps(training: Training) -> pl.DataFrame:
    """Sample the length of a step, the median of its lanes, and its kernel time per lane.

    The span of a step on all lanes would contain the errors of clocks. Communication kernels are not counted: most of their
    time is waiting.

    Returns:
        `SAMPLE`.
    """
    spans = _complete(training).group_by("step").agg(value=pl.col("span_ns").median())
    computing = _complete_kernels(training).filter(~pl.col("is_communication"))
    totals = computing.group_by("step").agg(value=_per_lane("total_ns"))
    return pl.concat(
        [
            _times(spans, subject="step", metric=SPAN),
            _times(totals, subject="kernels", metric="total per lane"),
        ]
    )


def sample_bubbles(training: Training) -> pl.DataFrame:
    """Sample the bubble of a step and its causes, as shares of the time of all lanes and as times per lane.

    Returns:
        `SAMPLE`.
    """
    return _shares(_complete(training).with_columns(stage=pl.lit(None, pl.Int64)), ("bubble", *BUBBLE_CAUSES))


def sample_stages(training: Training) -> pl.DataFrame:
    """Sample the bubble of each stage, and the compute time of its jobs per step and lane.

    Returns:
        `SAMPLE`.
    """
    lanes = _complete(training).drop_nulls("stage")
    computed = sum_own_compute(training).join(lanes.select("lane", "step"), on=["lane", "step"], how="semi")
    own = computed.group_by("stage", "step").agg(value=pl.col("compute_ns").mean())
    parts = [_shares(lanes, ("bubble",)), _times(own, subject="compute", metric="of jobs, per lane")]
    return pl.concat(parts).sort("stage", maintain_order=True)


def sample_ranks(training: Training) -> pl.DataFrame:
    """Sample the own compute of each rank: of its micro-batches, waiting not counted; all compute where none are known.

    Returns:
        `SAMPLE`.
    """
    complete = _complete(training)
    if has_passes(training):
        own = select_outermost(training.jobs, MICRO_BATCH_KINDS).group_by("lane", "step")
        values = own.agg(value=pl.col("compute_ns").sum())
        values = values.join(complete.select("lane", "step"), on=["lane", "step"], how="semi")
        metric = "compute of jobs"
    else:
        values, metric = complete.select("lane", "step", value="compute_ns"), "compute"
    lanes = training.lanes.select("lane", "stage", "label")
    if len(lanes) == 1:  # its machine may be another one in each run
        lanes = lanes.with_columns(label=pl.lit("the GPU"))
    labelled = values.filter(pl.col("value") > 0).join(lanes, on="lane").sort("lane", "step")
    samples = _times(labelled, subject=pl.col("label"), metric=metric)
    return samples.with_columns(least=LEAST_RANK_CHANGE * pl.col("value"))


def sample_links(training: Training) -> pl.DataFrame:
    """Sample the median transfer of each link between ranks.

    Returns:
        `SAMPLE`; `stage` is that of the sender, and `least` includes the error of the clocks.
    """
    complete = _complete(training).select("step").unique()
    medians = (
        time_transfers(training.transfers)
        .drop_nulls(["timed_ns", "step"])
        .join(complete, on="step", how="semi")
        .group_by("sender", "receiver", "step")
        .agg(value=pl.col("timed_ns").median(), count=pl.len(), bound=pl.col("bound_ns").max().fill_null(0))
        .filter(pl.col("count") >= _LEAST_TIMED)
    )
    for side in ("sender", "receiver"):
        lanes = training.lanes.select("lane", pl.col("label", "stage").name.suffix(f"_of_{side}"))
        medians = medians.join(lanes, left_on=side, right_on="lane", how="left")
    medians = medians.sort("sender", "receiver", "step").with_columns(stage=pl.col("stage_of_sender"))
    named = pl.format("{} -> {}", "label_of_sender", "label_of_receiver")
    least = LEAST_LINK_CHANGE * pl.col("value") + pl.col("bound")
    return medians.with_columns(
        subject=named, metric=pl.lit("transfer of a message"), unit=pl.lit("ns"), least=least
    ).pipe(conform, SAMPLE)


def has_passes(training: Training) -> bool:
    """Return whether forwards or backwards are known."""
    return bool(training.jobs["kind"].is_in(SCHEDULED_KINDS).any())


def sample_kinds(training: Training) -> pl.DataFrame:
    """Sample the compute time of jobs by kind, in the whole run and on each stage.

    Returns:
        `SAMPLE`.
    """
    complete = _complete(training).select("lane", "stage", "step")
    jobs = (
        training.jobs.join(complete, on=["lane", "step"])
        .drop_nulls("compute_start_ns")
        .with_columns(subject=pl.col("kind"), value=pl.col("compute_end_ns") - pl.col("compute_start_ns"))
    )
    on_stages = jobs.drop_nulls("stage")
    parts = [
        _times(
            group.group_by("stage", "kind", "step").agg(pl.col("value").mean()).sort("stage", "kind"),
            subject=pl.col("kind").cast(pl.String),
            metric="compute of one, mean",
        )
        for group in (jobs.with_columns(stage=pl.lit(None, pl.Int64)), on_stages)
    ]
    return pl.concat(parts)


def sample_kernels(training: Training) -> pl.DataFrame:
    """Sample each kernel by name: its total on a lane, and the mean of one.

    Returns:
        `SAMPLE`. Times of communication include waiting, as their metric states.
    """
    by_name = (
        _complete_kernels(training)
        .with_columns(pl.col("name").cast(pl.String))
        .group_by("step", "name", "is_communication")
        .agg(total=_per_lane("total_ns"), mean=pl.col("total_ns").sum() / pl.col("count").sum())
        .sort("name", "is_communication")
    )
    return pl.concat(
        _times(
            by_name.filter(is_communication=waits).with_columns(value=column),
            subject=pl.col("name"),
            metric=metric,
        )
        for column, waits, metric in (
            ("total", False, KERNEL_TOTAL),
            ("mean", False, KERNEL_MEAN),
            ("total", True, f"{KERNEL_TOTAL}, with waiting"),
            ("mean", True, f"{KERNEL_MEAN}, with waiting"),
        )
    )


def sample_families(training: Training) -> pl.DataFrame:
    """Sample the total of each family of kernels on a lane.

    Returns:
        `SAMPLE`.
    """
    kernels = _complete_kernels(replace(training, kernels=classify_training(training)))
    totals = kernels.group_by("step", "family").agg(value=_per_lane("total_ns")).sort("family")
    return _times(totals, subject=pl.col("family").cast(pl.String), metric="total per lane")


LONGEST_STEP = "longest_step"
SUBJECTS = tuple(
    dict.fromkeys(("step", LONGEST_STEP, "kernels", "bubble", "compute", *BUBBLE_CAUSES, *JOB_KINDS))
)


def _complete(training: Training) -> pl.DataFrame:
    """Return the `LANE_STEPS` that can be compared: a part of a step is as long as the capture makes it."""
    return sum_lane_steps(training).filter("is_whole")


def _complete_kernels(training: Training) -> pl.DataFrame:
    """Return the kernels of complete steps, with the number of lanes of each step."""
    lanes = _complete(training).with_columns(lane_count=pl.len().over("step"))
    return training.kernels.join(lanes.select("lane", "step", "lane_count"), on=["lane", "step"])


def _per_lane(column: str) -> pl.Expr:
    return pl.col(column).sum() / pl.col("lane_count").first()


def _times(values: pl.DataFrame, *, subject: str | pl.Expr, metric: str) -> pl.DataFrame:
    """Build samples of the times in `value`."""
    stage = pl.col("stage") if "stage" in values.columns else pl.lit(None)
    named = pl.lit(subject) if isinstance(subject, str) else subject
    return values.with_columns(
        stage=stage,
        subject=named,
        metric=pl.lit(metric),
        unit=pl.lit("ns"),
        least=LEAST_CHANGE * pl.col("value"),
    ).pipe(conform, SAMPLE)


def _shares(lanes: pl.DataFrame, subjects: tuple[str, ...]) -> pl.DataFrame:
    """Build samples of parts of the time of lanes, by stage and step: as shares, then as times."""
    columns = [f"{subject}_ns" for subject in subjects]
    sums = (
        lanes.group_by("stage", "step")
        .agg(pl.col(*columns, "span_ns").sum(), lane_count=pl.len())
        .filter(pl.col("span_ns") > 0)
        .sort("stage")
    )
    parts = []
    for subject, column in zip(subjects, columns, strict=True):
        for unit, metric, over in (
            ("fraction", "share of the step", "span_ns"),
            ("ns", "per lane", "lane_count"),
        ):
            value = pl.col(column) / pl.col(over)
            parts.append(
                sums.with_columns(
                    subject=pl.lit(subject),
                    metric=pl.lit(metric),
                    unit=pl.lit(unit),
                    value=value,
                    least=LEAST_SHARE * pl.col("span_ns") / pl.col(over),
                ).pipe(conform, SAMPLE)
            )
    return pl.concat(parts)
