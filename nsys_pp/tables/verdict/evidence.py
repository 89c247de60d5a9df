"""Evidence that several kinds of findings share, each computed once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from statistics import NormalDist
from typing import Any

import polars as pl

from nsys_pp.frames.requested import NONE, Explanations
from nsys_pp.frames.roster import list_missing_ranks
from nsys_pp.frames.training import MICRO_BATCH_KINDS, SCHEDULED_KINDS, Training
from nsys_pp.tables.training.family_table import classify_training
from nsys_pp.tables.training.lane_steps import sum_lane_steps
from nsys_pp.tables.training.own_compute import has_all_jobs, select_outermost

FALSE_RATE = 0.002
"""Probability of a false finding of one kind in a run whose samples are normal."""
LARGE_BOUND = 0.02
"""Bound of the clocks as a share of the step, above which waits and transfers are uncertain."""
_FEW_STEPS = 2
_JOB_COLUMNS = ("job", "outer", "kind", "lane", "step", "micro_batch", "compute_start_ns", "compute_ns")
_MAD = 1.4826  # from a median absolute deviation to the standard deviation of normal values


class Evidence:
    """A training, and quantities derived from it.

    Args:
        training: The training.
        explanations: Data of reports, read on first use.
    """

    def __init__(self, training: Training, explanations: Explanations = NONE) -> None:
        self.training = training
        self._explanations = explanations
        self._hosts: dict[tuple[int, ...], pl.DataFrame] = {}

    @cached_property
    def lane_steps(self) -> pl.DataFrame:
        """`LANE_STEPS` of complete steps."""
        return sum_lane_steps(self.training).filter("is_complete")

    @cached_property
    def whole_steps(self) -> pl.DataFrame:
        """`LANE_STEPS` whose length and causes can be compared: where the capture cuts every step, of the lanes that it does not cut there."""
        return self.lane_steps.filter("is_whole")

    @cached_property
    def spans(self) -> pl.DataFrame:
        """Length of each complete step: step, span_ns (median of its lanes, as clocks may differ); by step."""
        return self.lane_steps.group_by("step").agg(pl.col("span_ns").median()).sort("step")

    @cached_property
    def step_count(self) -> int:
        """Number of complete steps."""
        return self.spans.height

    @cached_property
    def step_ns(self) -> float:
        """Median length of the complete steps; 0 without any."""
        return to_float(self.spans["span_ns"].median())

    @cached_property
    def has_passes(self) -> bool:
        """Whether forwards or backwards are known."""
        return bool(self.training.jobs["kind"].is_in(SCHEDULED_KINDS).any())

    @cached_property
    def has_steps(self) -> bool:
        """Whether a step is more than the whole capture."""
        return bool((self.training.steps["source"] != "capture").any())

    @cached_property
    def labels(self) -> dict[int, str]:
        """Names of lanes."""
        return dict(self.training.lanes.select("lane", "label").iter_rows())

    @cached_property
    def own_compute(self) -> pl.DataFrame:
        """Own compute of each lane in complete steps, waiting not counted: lane, stage, step, micro_batch, value_ns.

        One row per micro-batch; -1 is work without a number. Of steps that the capture cuts on the lane, only micro-batches with all
        their jobs: the others would be compared with more or less work of others. Without forwards and backwards, all compute of a
        step that it does not cut is one row.
        """
        complete, whole = (steps.select("lane", "step") for steps in (self.lane_steps, self.whole_steps))
        if self.has_passes:
            own = (
                select_outermost(self.training.jobs.select(_JOB_COLUMNS), MICRO_BATCH_KINDS)
                .join(complete, on=["lane", "step"], how="semi")
                .group_by("lane", "step", pl.col("micro_batch").fill_null(-1))
                .agg(value_ns=pl.col("compute_ns").sum(), job_count=pl.len())
                .join(whole.with_columns(is_whole=True), on=["lane", "step"], how="left")
                .filter(pl.col("is_whole").fill_null(value=False) | has_all_jobs())
                .drop("is_whole", "job_count")
            )
        else:
            own = self.whole_steps.select(
                "lane", "step", micro_batch=pl.lit(-1, pl.Int64), value_ns="compute_ns"
            )
        return (
            own.filter(pl.col("value_ns") > 0)
            .join(self.training.lanes.select("lane", "stage"), on="lane")
            .with_columns(pl.col("value_ns").cast(pl.Float64))
        )

    @cached_property
    def families(self) -> pl.DataFrame:
        """Computing kernels with their families: `Training.kernels` with the columns of `KERNEL_FAMILIES`."""
        kernels = classify_training(self.training)
        return kernels.filter(~pl.col("is_communication"), pl.col("family") != "communication")

    @cached_property
    def clocks(self) -> pl.DataFrame:
        """Clock of the SMs during the kernels of each lane in complete steps: lane, step, clock_mhz; empty unless recorded."""
        sums = self._explanations.read_clocks().drop_nulls("step")
        complete = self.lane_steps.select("lane", "step")
        return (
            sums.group_by("lane", "step")
            .agg(pl.col("integral", "time_ns").sum())
            .select("lane", "step", clock_mhz=pl.col("integral") / pl.col("time_ns"))
            .join(complete, on=["lane", "step"], how="semi")
        )

    def read_hosts(self, lanes: Sequence[int]) -> pl.DataFrame:
        """Read the activities of the hosts of some lanes in bubbles (`HOST_TIMES`), once; empty unless recorded."""
        key = tuple(sorted(lanes))
        if key not in self._hosts:
            self._hosts[key] = self._explanations.read_hosts(key)
        return self._hosts[key]

    @cached_property
    def missing_ranks(self) -> list[int]:
        """Ranks of the run without a lane; none where a rank is unknown."""
        lanes = self.training.lanes
        return [] if lanes["rank"].null_count() else list_missing_ranks(lanes)

    def compare_steps(self, steps: Sequence[int]) -> tuple[float, float]:
        """Return the median length of these steps, and the time by which they are longer than the others.

        The time is infinite without other steps, and where at most two others are not shorter: the first steps of a capture
        may be long by themselves.
        """
        is_among = pl.col("step").is_in(list(steps))
        length_ns = to_float(self.spans.filter(is_among)["span_ns"].median())
        others = self.spans.filter(~is_among)["span_ns"]
        longer_ns = length_ns - to_float(others.median())
        if others.is_empty() or (longer_ns <= 0 and len(others) <= _FEW_STEPS):
            return length_ns, math.inf
        return length_ns, max(0.0, longer_ns)

    def measure_excess(self) -> pl.DataFrame:
        """Measure the length of each step beyond the shorter one of its neighbours: step, longer_ns, span_ns.

        Neighbours, as a rank that becomes slow makes all later steps longer.
        """
        span = pl.col("span_ns")
        shorter = pl.min_horizontal(span.shift(1), span.shift(-1))
        return self.spans.select("step", "span_ns", longer_ns=(span - shorter).clip(lower_bound=0.0))

    def share(self, time_ns: float) -> float:
        """Return a time as a share of the median step."""
        return time_ns / self.step_ns if self.step_ns else 0.0


def to_float(value: Any) -> float:
    """Return a statistic of a column as a number; 0 for null."""
    return 0.0 if value is None else float(value)


def spread_of(residuals: pl.Series) -> float:
    """Estimate the standard deviation of residuals around medians, robustly."""
    return _MAD * to_float(residuals.abs().median())


def errors_for(comparison_count: int, degrees: float) -> float:
    """Return the limit in standard errors that a number of comparisons of normal values exceeds with `FALSE_RATE`.

    The fewer the degrees of freedom of the estimated error, the larger the limit: the quantile of Student's t, by its series
    (Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5).

    >>> [round(errors_for(1, degrees), 2) for degrees in (1e9, 20, 4)]
    [2.88, 3.25, 5.81]
    >>> round(errors_for(100, 1e9), 2)
    4.11
    """
    z = NormalDist().inv_cdf(1 - FALSE_RATE / max(comparison_count, 1))
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3
