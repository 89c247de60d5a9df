"""Comparison of two runs: samples, sums, changes beyond noise, and gates."""

from __future__ import annotations

import math
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.aggregates import KEYS, SAMPLE, SAMPLED, UNIT, RunFacts
from nsys_pp.frames.clock import number_comparable
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema, index_tables
from nsys_pp.frames.training import BUBBLE_CAUSES, JOB_KINDS, MICRO_BATCH_KINDS, SCHEDULED_KINDS, Training
from nsys_pp.tables.analysis import select_outermost, sum_lane_steps, sum_own_compute
from nsys_pp.tables.evidence import FALSE_RATE, errors_for
from nsys_pp.tables.noise import leave_out_largest, noise_of_difference, noise_of_extremes, summarise_samples
from nsys_pp.tables.training import LEAST_LINK_EXCESS, classify_training, list_decodes, time_transfers
from nsys_pp.units import NS_PER_MS, NS_PER_S, NS_PER_US, format_duration

LEAST_CHANGE = 0.01
"""Least change of a time, as a share of it, that counts as a change."""
LEAST_SHARE = 0.005
"""Least change of a part of the bubble, as a share of the step, that counts as a change."""
LEAST_RANK_CHANGE = 0.02
"""Least change of the compute of a rank, as a share of it: GPUs of one kind differ by about as much."""
LEAST_LINK_CHANGE = LEAST_LINK_EXCESS
"""Least change of the transfers of a link, as a share of them, in addition to the error of the clocks."""
KERNEL_TOTAL, KERNEL_MEAN = "total per lane", "mean of one"
"""Metrics of kernels that do not communicate."""
SPAN = "on a lane, median"
"""Metric of the length of a step."""
_LEAST_TIMED = 2  # transfers of a link in a step


def sample_steps(training: Training) -> pl.DataFrame:
    """Sample the length of a step, the median of its lanes, and its kernel time per lane.

    The span of a step on all lanes would contain the errors of clocks. Communication kernels are not counted:
    most of their time is waiting.

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
    """Sample the own compute of each rank: of its micro-batches, waiting not counted.

    All compute where none are known.

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


_SAMPLERS: Mapping[str, Callable[[Training], pl.DataFrame]] = {
    "steps": sample_steps,
    "bubbles": sample_bubbles,
    "stages": sample_stages,
    "ranks": sample_ranks,
    "links": sample_links,
    "kinds": sample_kinds,
    "families": sample_families,
    "kernels": sample_kernels,
}


def sample_training(training: Training) -> dict[str, pl.DataFrame]:
    """Sample a training: `SAMPLE` by name (`SAMPLED`).

    Of batches of inference, decodes where some are known.
    """
    compared = _keep_decodes(training)
    return {name: _SAMPLERS[name](compared) for name in SAMPLED}


def describe_training(training: Training) -> RunFacts:
    """Describe a training: the facts that do not depend on its reports.

    Returns:
        The facts; GPUs, versions, recordings and the like are left open.
    """
    training, decodes = _keep_decodes(training), list_decodes(training)
    lanes, schedule = training.lanes, training.schedule
    complete = sum_lane_steps(training).filter("is_whole")
    sources = training.steps.group_by("source").len().sort("len", descending=True)["source"]
    return RunFacts(
        steps=tuple(complete["step"].unique().sort().to_list()),
        step_source=str(sources[0]) if len(sources) else "",
        batches=""
        if training.batches.is_empty()
        else "of unknown kinds"
        if decodes.is_empty()
        else "decodes",
        decode_requests=_finite(decodes["requests"].mean()),
        lane_count=len(lanes),
        machine_count=lanes["machine"].drop_nulls().n_unique(),
        stage_count=schedule.stage_count or _most(lanes["stage_count"]),
        replica_count=lanes["replica"].drop_nulls().n_unique(),
        tensor_count=lanes["tensor"].drop_nulls().n_unique(),
        schedule=schedule.name,
        micro_batch_count=float(schedule.micro_batch_count or _count_micro_batches(training)),
        chunk_count=schedule.chunk_count,
        has_passes=has_passes(training),
        preset=training.preset,
        bound_ns=_bound(lanes),
        is_on_one_clock=number_comparable(lanes).n_unique() <= 1,
    )


def _keep_decodes(training: Training) -> Training:
    """Make steps partial that are batches of inference other than decodes.

    A prefill is as long as its requests.
    """
    decodes = list_decodes(training)
    if decodes.is_empty():
        return training
    is_other = ~pl.col("step").is_in(decodes["step"].implode())
    return replace(training, steps=training.steps.with_columns(pl.col("is_partial") | is_other))


def _count_micro_batches(training: Training) -> float:
    """Return the median number of micro-batches of a lane's step; 0 without any."""
    counts = sum_own_compute(training)["micro_batch_count"]
    return _finite(counts.median()) or 0


def _most(values: pl.Series) -> int:
    most = values.max()
    return most if isinstance(most, int) else 0


def _bound(lanes: pl.DataFrame) -> int | None:
    bound = lanes["bound_ns"].max()
    return int(bound) if isinstance(bound, int) and not lanes["bound_ns"].null_count() else None


def _finite(value: object) -> float | None:
    return value if isinstance(value, float) and value == value else None


CHANGES = build_schema(
    {  # one row per member of either run; those of both runs first
        "stage": pl.Int64,
        "subject": pl.String,
        "metric": pl.String,
        "a": pl.Float64,  # median over steps; null: only in B
        "b": pl.Float64,  # median over steps from `since_step` on; null: only in A
        # from a to b, or that of the member relative to its peers; null unless in both
        "change_fraction": pl.Float64,
        "noise_fraction": pl.Float64,  # relative; null: unknown, as there are too few steps
        "least_fraction": pl.Float64,  # relative; smaller changes do not count
        "since_step": pl.Int64,  # first step of B with the change; null: all steps
        "is_among_peers": pl.Boolean,  # the change is relative to the other members
        "is_change": pl.Boolean,  # null: the noise is unknown, or the member is in one run only
        "a_step_count": pl.Int64,
        "b_step_count": pl.Int64,
    },
    name="CHANGES",
)
_MEMBER = ("stage", "subject", "metric")
_MAD, _PER_MEDIAN, _EFFICIENCY = 1.4826, 1.2533, 0.37  # as in `nsys_pp.tables.evidence`
_FEW = 8  # differences, below which their root mean square is used, too
_EFFICIENCY_OF_MEAN = 0.67  # consecutive differences depend on each other
_LEAST_OWN = 6  # differences from which the deviation of a single member is an estimate
_LEAST_AGREEING, _LEAST_STEPS = 0.75, 2
_MOST_ENDS = 64  # first steps that are tried
_LEAST_PEERS, _MOST_APART = 4, 32  # members; more than the last one have a common median

Values = npt.NDArray[np.float64]


def find_changes(a: pl.DataFrame, b: pl.DataFrame, *, are_peers: bool = False) -> pl.DataFrame:
    """Find the changes of members from A to B.

    Args:
        a: `SAMPLE` of run A, of times.
        b: `SAMPLE` of run B.
        are_peers: Members vary together, so they are also compared relative to each other.

    Returns:
        `CHANGES`, in the order of the samples.
    """
    members = pl.concat([a.select(_MEMBER), b.select(_MEMBER)]).unique(maintain_order=True)
    sides = [_summarise(side, name) for side, name in ((a, "a"), (b, "b"))]
    table = members
    for side in sides:
        table = table.join(side, on=_MEMBER, how="left", nulls_equal=True, maintain_order="left")
    both = table.filter(pl.col("a") > 0, pl.col("b").is_not_null())
    found = _test_members(both, a, b, are_peers=are_peers) if len(both) else _no_tests()
    return (
        table.join(found, on=_MEMBER, how="left", nulls_equal=True, maintain_order="left", suffix="_since")
        .with_columns(pl.coalesce("b_since", "b").alias("b"))
        .with_columns(
            pl.col("a_step_count", "b_step_count").fill_null(0),
            change_fraction=pl.when("is_among_peers")
            .then("change_fraction")
            .otherwise(pl.when(pl.col("a") > 0).then(pl.col("b") / pl.col("a") - 1)),
        )
        .pipe(conform, CHANGES)
    )


def _test_members(
    members: pl.DataFrame, a: pl.DataFrame, b: pl.DataFrame, *, are_peers: bool
) -> pl.DataFrame:
    """Test the members of both runs, by themselves and, if a few of them changed, relative to their peers."""
    (values_a, _), (values_b, steps) = _spread(members, a), _spread(members, b)
    level = members["a"].to_numpy()[:, None]
    least = members["least_fraction"].to_numpy()
    found = _test(values_a / level, values_b / level, least)
    among = np.zeros(len(members), np.bool_)
    if are_peers and len(members) >= _LEAST_PEERS:
        relative = _test(_relate(values_a / level), _relate(values_b / level), least)
        changed = relative.is_change & ~found.is_change
        if np.sum(relative.is_change) <= len(members) / 3:
            among = changed & (np.sign(relative.change) == np.sign(found.change))
            found = found.replaced(relative, among)
    in_change = np.arange(len(steps)) >= found.since[:, None]
    is_late = found.since > 0
    return members.select(_MEMBER).with_columns(
        b=pl.Series(_median_of(np.where(in_change, values_b, np.nan), axis=1)),
        change_fraction=pl.Series(found.change),
        noise_fraction=pl.Series(found.noise, dtype=pl.Float64).fill_nan(None),
        since_step=pl.Series(steps[found.since]).set(pl.Series(~is_late), None),
        is_among_peers=pl.Series(among),
        is_change=pl.Series(found.is_change).set(pl.Series(np.isnan(found.noise)), None),
    )


def _no_tests() -> pl.DataFrame:
    tested = ("b", "change_fraction", "noise_fraction", "since_step", "is_among_peers", "is_change")
    return CHANGES.to_frame().select(*_MEMBER, *tested)


def _relate(values: Values) -> Values:
    """Divide values by the median of the other members in the same step.

    Of many members, by the median of all.
    """
    if len(values) > _MOST_APART:
        return values / _median_of(values, axis=0)
    others = [_median_of(np.delete(values, row, axis=0), axis=0) for row in range(len(values))]
    return values / np.stack(others)


def _summarise(samples: pl.DataFrame, side: str) -> pl.DataFrame:
    """Return the median of each member, the least change (of A), and the number of steps."""
    return samples.group_by(_MEMBER).agg(
        pl.col("value").median().alias(side),
        pl.len().cast(pl.Int64).alias(f"{side}_step_count"),
        *([(pl.col("least") / pl.col("value")).median().alias("least_fraction")] if side == "a" else []),
    )


def _spread(members: pl.DataFrame, samples: pl.DataFrame) -> tuple[Values, npt.NDArray[np.int64]]:
    """Return values by member and step, NaN where there is none, and the steps."""
    steps = samples["step"].unique().sort()
    rows = members.select(_MEMBER).with_row_index("row")
    placed = samples.join(rows, on=_MEMBER, nulls_equal=True).join(
        steps.to_frame().with_row_index("at"), on="step"
    )
    values = np.full((len(members), len(steps)), np.nan)
    values[placed["row"].to_numpy(), placed["at"].to_numpy()] = placed["value"].to_numpy()
    return values, steps.to_numpy()


class _Tested(NamedTuple):
    """Results of a test, one value per member.

    The change, the first step with it, the noise, and whether it exceeds that.
    """

    change: Values
    since: npt.NDArray[np.int64]
    noise: Values
    is_change: npt.NDArray[np.bool_]

    def replaced(self, other: _Tested, where: npt.NDArray[np.bool_]) -> _Tested:
        """Return these results, replaced for some members by another test."""
        return _Tested(*(np.where(where, theirs, own) for own, theirs in zip(self, other, strict=True)))


def _test(values_a: Values, values_b: Values, least: Values) -> _Tested:
    """Test the changes from A to B of members (rows) over steps (columns)."""
    level = _median_of(values_a, axis=1)[:, None]
    series_a, series_b = values_a / level - 1, values_b / level - 1
    limit = _build_limit(series_a, series_b, np.sum(np.isfinite(series_a), axis=1))
    change, since = _find_ends(series_b, least, limit)
    used = np.where(np.arange(series_b.shape[1]) >= since[:, None], series_b, np.nan)
    counts = np.sum(np.isfinite(used), axis=1)
    noise = limit(counts)
    agreeing = np.sum(used * np.sign(change)[:, None] > 0, axis=1) / np.maximum(counts, 1)
    is_change = (np.abs(change) > np.maximum(noise, least)) & (agreeing >= _LEAST_AGREEING)
    return _Tested(change, since, noise, is_change)


def _build_limit(
    series_a: Values, series_b: Values, counts_a: npt.NDArray[np.int64]
) -> Callable[[npt.NDArray[np.int64]], Values]:
    """Return the function from the number of steps of a change, by member, to the change that noise explains.

    The limit is NaN where a run has a single step.
    """
    differences = np.concatenate([np.diff(series_a, axis=1), np.diff(series_b, axis=1)], axis=1)
    member_count, step_count = differences.shape
    residuals = _level(series_a) * math.sqrt(_over_less_one(series_a.shape[1]))
    pooled = max(_deviation(differences) / math.sqrt(2), _deviation(residuals))
    own = _median_of(np.abs(differences), axis=1) * _MAD / math.sqrt(2)
    is_estimate = np.sum(np.isfinite(differences), axis=1) >= _LEAST_OWN
    spread = np.where(is_estimate, np.fmax(own, pooled), pooled)
    shared = _deviation(_median_of(differences, axis=0)) / math.sqrt(2)
    apart = 1 - min(1.0, (shared / pooled) ** 2) if pooled > 0 else 1.0
    efficiency = _EFFICIENCY
    known = differences[np.isfinite(differences)]
    if len(known) < _FEW:  # too few for a robust estimate
        spread = np.maximum(spread, math.sqrt(np.mean(known**2) / 2) if len(known) else 0.0)
        efficiency = _EFFICIENCY_OF_MEAN
    degrees = max(1.0, efficiency * step_count * (1 + (member_count - 1) * apart))
    errors = _errors_for(member_count * min(max(series_b.shape[1], 1), 4), degrees)
    is_known = min(series_a.shape[1], series_b.shape[1]) > 1

    def limit(counts: npt.NDArray[np.int64]) -> Values:
        error = np.sqrt(1 / np.maximum(counts_a, 1) + 1 / np.maximum(counts, 1))
        return errors * _PER_MEDIAN * spread * error if is_known else np.full(member_count, np.nan)

    return limit


def _errors_for(comparison_count: int, degrees: float) -> float:
    """Return the limit of `errors_for`, also for less than three degrees of freedom.

    Where its series is too small.

    Student's t has closed quantiles for one and two degrees; between these, logarithms are interpolated.

    >>> [round(_errors_for(1, degrees), 1) for degrees in (1, 1.5, 2, 20)]
    [159.2, 50.1, 15.8, 3.3]
    """
    if degrees >= 3:
        return errors_for(comparison_count, degrees)
    share = 1 - FALSE_RATE / comparison_count
    exact = [
        math.tan(math.pi * (share - 0.5)),
        (2 * share - 1) / math.sqrt(2 * share * (1 - share)),
        errors_for(comparison_count, 3),
    ]
    return math.exp(np.interp(degrees, [1, 2, 3], np.log(exact)))


def _find_ends(
    series: Values, least: Values, limit: Callable[[npt.NDArray[np.int64]], Values]
) -> tuple[Values, npt.NDArray[np.int64]]:
    """Find the change of each member, and the index of its first step; 0: all steps."""
    whole = _median_of(series, axis=1)
    count = series.shape[1]
    best_cost = np.nansum(np.abs(series - whole[:, None]), axis=1)
    change, since = whole.copy(), np.zeros(len(series), np.int64)
    stride = max(1, count // _MOST_ENDS)
    for first in range(1, count - _LEAST_STEPS + 1, stride):
        before, after = _median_of(series[:, :first], axis=1), _median_of(series[:, first:], axis=1)
        levels = np.where(np.arange(count) < first, before[:, None], after[:, None])
        cost = np.nansum(np.abs(series - levels), axis=1)
        counts = np.sum(np.isfinite(series[:, first:]), axis=1)
        counts_before = np.sum(np.isfinite(series[:, :first]), axis=1)
        needed = np.maximum(limit(np.minimum(counts, counts_before)), least)
        is_end = (
            (np.abs(after - before) > needed)
            & (np.abs(after) > 2 * np.abs(before))
            & (counts >= _LEAST_STEPS)
            & (counts_before > 0)
            & (cost < best_cost)
        )
        change, since = np.where(is_end, after, change), np.where(is_end, first, since)
        best_cost = np.where(is_end, cost, best_cost)
    return change, since


def _level(series: Values) -> Values:
    """Return the residuals around the median of each member, or around two, if these halve the deviations.

    A member that changed inside A has no larger noise for that reason.
    """
    residuals = series - _median_of(series, axis=1)[:, None]
    least = np.nansum(np.abs(residuals), axis=1) / 2
    count = series.shape[1]
    for first in range(_LEAST_STEPS, count - _LEAST_STEPS + 1, max(1, count // _MOST_ENDS)):
        before, after = _median_of(series[:, :first], axis=1), _median_of(series[:, first:], axis=1)
        split = series - np.where(np.arange(count) < first, before[:, None], after[:, None])
        cost = np.nansum(np.abs(split), axis=1)
        residuals = np.where((cost < least)[:, None], split, residuals)
        least = np.minimum(cost, least)
    return residuals


def _over_less_one(count: int) -> float:
    return count / (count - 1) if count > 1 else 1.0


def _deviation(values: Values) -> float:
    """Estimate a standard deviation around 0, robustly; 0 without values."""
    known = np.abs(values[np.isfinite(values)])
    return _MAD * float(np.median(known)) if len(known) else 0.0


def _median_of(values: Values, *, axis: int) -> Values:
    """Return medians without NaN; NaN where there is nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows of NaN alone
        return np.asarray(np.nanmedian(values, axis=axis), dtype=np.float64)


VERDICT = pl.Enum(["slower", "faster", "same", "unknown", "new", "gone"])

_COLUMNS = (
    Column("stage", pl.Int64, "pipeline stage; null: all stages"),
    Column(
        "subject",
        pl.String,
        "step, bubble, a cause, a rank, a link, a kind of job, or a kernel",
        is_symbol=True,
    ),
    Column("metric", pl.String, "measured quantity, in words"),
    Column("unit", UNIT, "unit of a and b: nanoseconds, or share of the step"),
    Column("a", pl.Float64, "median over the complete steps of run A; null if it has none"),
    Column("b", pl.Float64, "median over the complete steps of run B; null if it has none"),
    Column("a_step_count", pl.Int64, "complete steps of run A"),
    Column("b_step_count", pl.Int64, "complete steps of run B"),
    Column(
        "change_fraction",
        pl.Float64,
        "change from a to b: relative for times, difference for shares; of a rank also that relative to the "
        "other ranks, if all vary together; null without a, and from 0",
        decimals=1,
    ),
    Column(
        "noise_fraction",
        pl.Float64,
        "changes up to this are noise; null if a run has a single step",
        decimals=1,
        priority=4,
    ),
    Column(
        "verdict",
        VERDICT,
        "slower: b is larger; new, gone: only in b, only in a; unknown: the noise is unknown",
    ),
    Column(
        "since_step",
        pl.Int64,
        "of steps, ranks and links: first step of run B with the change, from which on b is the median; "
        "null: all steps",
        priority=4,
    ),
)
COMPARISON = build_table_schema(_COLUMNS)
_SHOWN = (
    Column("shown_a", pl.Float64, "a in the unit shown", heading="A", decimals=3),
    Column("shown_b", pl.Float64, "b in the unit shown", heading="B", decimals=3),
    Column("shown_unit", pl.String, "ms, ms each, or %", heading="Unit"),
    *("change_fraction", "noise_fraction", "verdict", "since_step", "stage", "metric", "subject"),
)
_CAPTION = (
    "A, B: medians over complete steps; change: relative for times, in percentage points for shares of a "
    "step;"
    " same: the change does not exceed noise"
)
_EMPTY = "nothing to compare: neither run has any in a complete step"
_NO_LINKS = (
    "nothing to compare: in no complete step has a link two messages whose transfer is timed for certain;"
    " those that are paired with doubt, buffered, or sent without a known receiver are left out"
)
_IS_CHANGE = pl.col("verdict") != "same"


Samples = Mapping[str, pl.DataFrame]
"""`SAMPLE` of a run by name: `nsys_pp.frames.aggregates.SAMPLED`."""


def compare_trainings(a: Training, b: Training) -> dict[str, pl.DataFrame]:
    """Compare two trainings; as `compare_samples`."""
    return compare_samples(sample_training(a), sample_training(b))


def compare_samples(a: Samples, b: Samples) -> dict[str, pl.DataFrame]:
    """Compare two runs by steps, bubbles, stages, ranks, links, kinds of job and kernels.

    Returns:
        `COMPARISON` of all `TABLES`, by name.
    """
    return {name: table.build(a, b) for name, table in TABLES.items()}


def _compare_steps(a: Samples, b: Samples) -> pl.DataFrame:
    """Compare spans of steps, kernels per step, and the longest steps: medians do not reflect those."""
    samples = [run["steps"] for run in (a, b)]
    return pl.concat([_mark_late(_compare(*samples), find_changes(*samples)), compare_longest_steps(a, b)])


def compare_longest_steps(a: Samples, b: Samples) -> pl.DataFrame:
    """Compare the longest steps of two runs.

    Returns:
        `COMPARISON`: one row, with the longest step of each run; none without steps.
    """
    spans = [run["steps"].filter(subject="step") for run in (a, b)]
    return _compare(*spans, is_of_longest=True).with_columns(
        subject=pl.lit(LONGEST_STEP), metric=pl.concat_str("metric", pl.lit(", most"))
    )


def find_span_noise(a: Samples, b: Samples) -> float | None:
    """Return the noise of the length of steps in the table of steps, relative to A; None if it is unknown."""
    spans = [run["steps"].filter(subject="step") for run in (a, b)]
    noise = _compare(*spans)["noise_fraction"]
    return float(noise[0]) if len(noise) and noise[0] is not None else None


def _mark_late(table: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
    """Replace the values of times that changed inside B by those since their change."""
    keys = ["subject", "metric"]
    late = changes.filter(pl.col("is_change"), pl.col("since_step").is_not_null())
    late = late.select(*keys, "b", "change_fraction", "noise_fraction", "since_step").with_columns(
        verdict=pl.when(pl.col("change_fraction") > 0)
        .then(pl.lit("slower"))
        .otherwise(pl.lit("faster"))
        .cast(VERDICT)
    )
    return table.update(late, on=keys, how="left").pipe(conform, COMPARISON)


def _compare_kernels(a: Samples, b: Samples) -> pl.DataFrame:
    """Compare kernels by name, the largest difference first."""
    size = (pl.col("b").fill_null(0) - pl.col("a").fill_null(0)).abs().max().over("subject")
    return _compare(a["kernels"], b["kernels"]).sort(size, descending=True, maintain_order=True)


def _compare_named(a: Samples, b: Samples, *, name: str) -> pl.DataFrame:
    return _compare(a[name], b[name])


def _compare_members(a: Samples, b: Samples, *, name: str) -> pl.DataFrame:
    """Compare ranks or links with themselves, the largest change first."""
    changes = find_changes(a[name], b[name], are_peers=name == "ranks")
    size = (pl.col("b") - pl.col("a")).abs()
    is_beyond = pl.col("is_change").fill_null(True)
    return (
        changes.with_columns(
            unit=pl.lit("ns"),
            verdict=pl.when(pl.col("a").is_null())
            .then(pl.lit("new"))
            .when(pl.col("b").is_null())
            .then(pl.lit("gone"))
            .when(pl.col("is_change").is_null())
            .then(pl.lit("unknown"))
            .when(~pl.col("is_change"))
            .then(pl.lit("same"))
            .when(pl.col("change_fraction") > 0)
            .then(pl.lit("slower"))
            .otherwise(pl.lit("faster")),
        )
        .sort(is_beyond, size, descending=True, nulls_last=True, maintain_order=True)
        .pipe(conform, COMPARISON)
    )


def _compare(a: pl.DataFrame, b: pl.DataFrame, *, is_of_longest: bool = False) -> pl.DataFrame:
    """Compare the `SAMPLE` frames of two runs by medians, or by the largest samples.

    In the order of the samples.
    """
    value = "largest" if is_of_longest else "median"
    sides = [
        _summarise_compare(samples).select(
            *KEYS,
            "least",
            "deviation",
            "deviation_of_others",
            pl.col(value).alias(side),
            pl.col("sample_count").alias(f"{side}_step_count"),
        )
        for side, samples in (("a", a), ("b", b))
    ]
    deviation, of_others = (
        pl.col(name) + pl.col(f"{name}_b") for name in ("deviation", "deviation_of_others")
    )
    counts = pl.col("a_step_count"), pl.col("b_step_count")
    noise = (
        noise_of_extremes(deviation, of_others, *counts)
        if is_of_longest
        else noise_of_difference(deviation, *counts)
    )
    difference = pl.col("b") - pl.col("a")
    scale = pl.when(unit="fraction").then(1.0).when(pl.col("a") > 0).then("a")
    order = pl.concat([a.select(KEYS), b.select(KEYS)]).unique(maintain_order=True).with_row_index("order")
    return (
        sides[0]
        .join(sides[1], on=KEYS, how="full", coalesce=True, nulls_equal=True, suffix="_b")
        .with_columns(noise=noise)
        .with_columns(
            pl.col("a_step_count", "b_step_count").fill_null(0),
            change_fraction=pl.when(difference == 0).then(0.0).otherwise(difference / scale),
            noise_fraction=pl.col("noise") / scale,
            verdict=_verdict(difference),
        )
        .join(order, on=KEYS, how="left", nulls_equal=True)
        .sort("order")
        .with_columns(since_step=pl.lit(None, pl.Int64))
        .pipe(conform, COMPARISON)
    )


def _summarise_compare(samples: pl.DataFrame) -> pl.DataFrame:
    """Summarise a `SAMPLE` frame by its keys, with `least`.

    Also the deviation of all samples but the largest.
    """
    others = leave_out_largest(samples, by=KEYS, value="value")
    of_others = summarise_samples(others, by=KEYS, value="value").select(
        *KEYS, deviation_of_others="deviation"
    )
    return (
        summarise_samples(samples, by=KEYS, value="value")
        .join(samples.group_by(KEYS).agg(pl.col("least").median()), on=KEYS, nulls_equal=True)
        .join(of_others, on=KEYS, how="left", nulls_equal=True)
    )


def _verdict(difference: pl.Expr) -> pl.Expr:
    is_change = difference.abs() > pl.max_horizontal("noise", "least")
    return (
        pl.when(pl.col("a").is_null())
        .then(pl.lit("new"))
        .when(pl.col("b").is_null())
        .then(pl.lit("gone"))
        .when(pl.col("noise").is_null())
        .then(pl.lit("unknown"))
        .when(~is_change)
        .then(pl.lit("same"))
        .when(difference > 0)
        .then(pl.lit("slower"))
        .otherwise(pl.lit("faster"))
    )


def _add_units(table: pl.DataFrame) -> pl.DataFrame:
    """Add a and b in milliseconds or percent, and that unit.

    A mean of single kernels is in milliseconds each.
    """
    is_share = pl.col("unit") == "fraction"
    is_each = pl.col("metric").str.starts_with(KERNEL_MEAN)
    scale = pl.when(is_share).then(100.0).otherwise(1 / NS_PER_MS)
    return table.with_columns(
        shown_a=pl.col("a") * scale,
        shown_b=pl.col("b") * scale,
        shown_unit=pl.when(is_share)
        .then(pl.lit("%"))
        .otherwise(pl.when(is_each).then(pl.lit("ms each")).otherwise(pl.lit("ms"))),
    )


def _table(
    name: str,
    title: str,
    build: Callable[[Samples, Samples], pl.DataFrame],
    *,
    is_whole: bool = False,
    empty: str = _EMPTY,
    hidden: str = "{} are the same within noise",
) -> Table[[Samples, Samples]]:
    """Define a table of a comparison: all have the same columns."""
    return Table(
        name=name,
        title=title,
        columns=_COLUMNS,
        caption=_CAPTION,
        empty=empty,
        build=build,
        view=View(
            columns=_SHOWN,
            derive=_add_units,
            only=None if is_whole else _IS_CHANGE,
            hidden=hidden,
        ),
    )


TABLES: Mapping[str, Table[[Samples, Samples]]] = index_tables(
    _table("steps", "Steps", _compare_steps, is_whole=True),
    _table("bubbles", "Bubbles", partial(_compare_named, name="bubbles")),
    _table("stages", "Stages", partial(_compare_named, name="stages")),
    _table("ranks", "Ranks", partial(_compare_members, name="ranks"), hidden="{} ranks are within noise"),
    _table(
        "links",
        "Links",
        partial(_compare_members, name="links"),
        empty=_NO_LINKS,
        hidden="{} links are within noise",
    ),
    _table("kinds", "Jobs by kind", partial(_compare_named, name="kinds")),
    _table("families", "Families of kernels", partial(_compare_named, name="families")),
    _table("kernels", "Kernels", _compare_kernels),
)
"""Tables by name, in the order in which they are written."""


_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_SCALES = {"ns": 1.0, "us": float(NS_PER_US), "ms": float(NS_PER_MS), "s": float(NS_PER_S), "%": 0.01}
_GATE = re.compile(
    r"\s*(?:stage\s+(?P<stage>\d{1,9})\s+)?(?P<metric>[a-z_]+?)(?P<b>_b)?\s*(?P<sign>>=|<=|>|<)"
    r"\s*(?P<number>[+-]?(?:\d{1,18}\.?\d{0,18}|\.\d{1,18}))\s*(?P<unit>%|ns|us|ms|s)\s*"
)
_FRAMES = ("steps", "bubbles", "stages", "kinds")


class GateError(NsysPPError):
    """An invalid gate, or a gate on a metric that the runs do not have."""


class Gate(Struct, frozen=True, kw_only=True):
    """A condition on a metric of a comparison.

    Attributes:
        text: The text that it was parsed from.
        stage: Number of a stage; None: all stages.
        metric: Subject of a comparison.
        is_of_b: It applies to the value of B, not to the change.
        sign: Operator: ">", ">=", "<" or "<=".
        limit: Limit in nanoseconds, or a fraction.
        is_percent: The limit is a fraction.
    """

    text: str
    stage: int | None
    metric: str
    is_of_b: bool
    sign: str
    limit: float
    is_percent: bool


def parse_gate(text: str) -> Gate:
    """Parse a gate.

    Raises:
        GateError: The text is not a gate, or its metric is unknown.

    >>> gate = parse_gate("stage 2 bubble > 10%")
    >>> gate.stage, gate.metric, gate.sign, gate.limit
    (2, 'bubble', '>', 0.1)
    """
    match = _GATE.fullmatch(text)
    if match is None:
        raise GateError(
            f"invalid gate `{text}`; expected METRIC, an operator, a number and a unit",
            "examples: `bubble>5%`, `step>20ms`, `stage 2 forward>3%`",
        )
    if match["metric"] not in SUBJECTS:
        raise GateError(
            f"unknown metric `{match['metric']}` in gate `{text}`", f"expected {_list_metrics(SUBJECTS)}"
        )
    return Gate(
        text=text.strip(),
        stage=None if match["stage"] is None else int(match["stage"]),
        metric=match["metric"],
        is_of_b=match["b"] is not None,
        sign=match["sign"],
        limit=float(match["number"]) * _SCALES[match["unit"]],
        is_percent=match["unit"] == "%",
    )


def check_gates(comparison: Mapping[str, pl.DataFrame], gates: Iterable[Gate]) -> list[str]:
    """Check gates against a comparison.

    If a run has a single step, its noise is unknown, and any change counts.

    Args:
        comparison: Rows of the tables, as returned by `compare_trainings`.
        gates: The gates.

    Returns:
        One sentence for each gate that fails, in the order of the gates; empty if none does.

    Raises:
        GateError: The runs do not have what a gate is about.
    """
    rows = pl.concat(comparison[name] for name in _FRAMES)
    return [failure for gate in gates if (failure := _check(gate, rows)) is not None]


def _check(gate: Gate, rows: pl.DataFrame) -> str | None:
    """Return a sentence on the failure of a gate; None if it passes."""
    row = _find(gate, rows)
    value, noise = (row["b"], None) if gate.is_of_b else _change(gate, row)
    if not _OPERATORS[gate.sign](value, gate.limit) or (noise is not None and abs(value) <= noise):
        return None
    where = "" if gate.stage is None else f" of stage {gate.stage}"
    b = _write(row["b"], row["unit"])
    if gate.is_of_b:
        return f"`{gate.text}`: {gate.metric}{where} is {b}"
    a = _write(row["a"], row["unit"])
    unsure = "" if noise is not None else "; its noise is unknown: a run has a single step"
    return f"`{gate.text}`: {gate.metric}{where} went from {a} to {b}{unsure}"


def _find(gate: Gate, rows: pl.DataFrame) -> dict[str, Any]:
    """Return the row of the comparison that a gate applies to."""
    candidates = rows.filter(pl.col("stage").eq_missing(pl.lit(gate.stage, pl.Int64))).drop_nulls("b")
    candidates = candidates if gate.is_of_b else candidates.drop_nulls("a")
    matches = candidates.filter(pl.col("subject") == gate.metric)
    if matches.is_empty():
        where = "the runs" if gate.stage is None else f"stage {gate.stage} of the runs"
        metrics = _list_metrics(candidates["subject"].unique(maintain_order=True))
        raise GateError(f"gate `{gate.text}`: `{gate.metric}` is missing in {where}", f"available: {metrics}")
    # A metric with a share and a time is compared by its share if the limit is a percentage.
    units = ("fraction", "ns") if gate.is_percent else ("ns",)
    unit = next(unit for unit in units if unit in matches["unit"])
    row = matches.filter(pl.col("unit") == unit).row(0, named=True)
    if gate.is_of_b and gate.is_percent and row["unit"] == "ns":
        raise GateError(
            f"invalid gate `{gate.text}`: {gate.metric} is a time, not a share",
            "use a time as limit, e.g. `20ms`",
        )
    return row


def _change(gate: Gate, row: Mapping[str, Any]) -> tuple[float, float | None]:
    """Return the change from A to B in the unit of the gate, and its noise."""
    if row["unit"] == "ns" and not gate.is_percent:
        noise = row["noise_fraction"]
        return row["b"] - row["a"], None if noise is None else noise * row["a"]
    change = row["change_fraction"]  # null: from nothing to something
    return math.inf if change is None else change, row["noise_fraction"]


def _write(value: float, unit: str) -> str:
    return f"{value:.1%} of the step" if unit == "fraction" else format_duration(round(value))


def _list_metrics(metrics: Iterable[str]) -> str:
    return ", ".join(f"`{metric}`" for metric in metrics)
