"""Findings on nsys itself: it holds threads that launch, and GPUs wait for them.

Time in which a GPU waits for a thread that nsys held has the cause `profiler` (`nsys_pp.frames.training`), and is no fault of the
program. In each step the rank with most of it counts. Where few steps have it, the gain is not more than the step is longer than a
step next to it; where most have it, the gain is the mean over ranks. Flushes on other threads may hold launches, too, as threads of a process
share buffers; that is a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.verdict.evidence import Evidence, to_float
from nsys_pp.tables.verdict.names import name_lane
from nsys_pp.tables.verdict.wording import cut_name, describe_steps, format_share, format_time

LEAST_GAIN = 0.01
"""Least share of a mean step."""
_LEAST_OF_STEP = 0.05  # of a single step
_LEAST_BESIDE = 0.5  # of late launches
_MOST_STEPS = 0.5  # of all: more are the usual state


def find_profiler_overhead(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find the time in which GPUs wait for threads that nsys holds, and flushes during late launches."""
    if not evidence.step_ns or evidence.lane_steps.is_empty():
        return []
    held = evidence.lane_steps.select("lane", "step", value_ns=pl.col("profiler_ns").cast(pl.Float64))
    named = {(finding.lane, finding.step) for finding in earlier if finding.kind == "host"}
    overheads = evidence.training.overheads.filter(pl.col("name").is_not_null())
    beside = overheads.group_by("lane", "step").agg(value_ns=pl.col("beside_ns").sum().cast(pl.Float64))
    beside = beside.join(evidence.lane_steps.select("lane", "step"), on=["lane", "step"], how="semi")
    beside = beside.filter(
        ~pl.struct("lane", "step").map_elements(
            lambda row: (row["lane"], row["step"]) in named, return_dtype=pl.Boolean
        )
    )
    return [
        finding
        for times, column, is_guess in ((held, "time_ns", False), (beside, "beside_ns", True))
        if (finding := _describe(evidence, times, column, is_guess=is_guess)) is not None
    ]


def _describe(evidence: Evidence, times: pl.DataFrame, column: str, *, is_guess: bool) -> Finding | None:
    """Describe the time in which nsys holds, or may hold, launches; None where it is too little.

    Args:
        evidence: The run.
        times: lane, step and value_ns of complete steps.
        column: Column of `OVERHEAD_SUMS` by which the overhead is named.
        is_guess: The effect of the overhead on launches is inferred.
    """
    most: Any = times["value_ns"].max()
    if not most or most < 0:
        return None
    spans = evidence.lane_steps.select("lane", "step", "span_ns")
    worst = (
        times.join(spans, on=["lane", "step"])
        .filter(pl.col("value_ns") > 0)
        .sort("value_ns", "lane", descending=[True, False])
        .unique("step", keep="first", maintain_order=True)
    )
    large = worst.filter(pl.col("value_ns") >= _LEAST_OF_STEP * pl.col("span_ns"))
    is_usual = worst.height > _MOST_STEPS * evidence.step_count
    if is_usual:
        gain_ns = to_float(times["value_ns"].sum()) / evidence.lane_steps.height
    else:
        longer = evidence.measure_excess()
        lost = worst.join(longer, on="step").select(
            pl.min_horizontal("value_ns", pl.col("longer_ns").fill_null(pl.col("value_ns")))
        )
        gain_ns = to_float(lost.to_series().sum()) / evidence.step_count
    is_step = large.height and gain_ns >= _LEAST_OF_STEP * evidence.step_ns / 2 / evidence.step_count
    if evidence.share(gain_ns) < LEAST_GAIN and not is_step:
        return None
    lane, step, most_ns, span_ns = worst.select("lane", "step", "value_ns", "span_ns").row(0)
    when, since = describe_steps(sorted(worst["step"].to_list()), evidence.spans["step"].to_list())
    name = _name_overhead(evidence, worst["step"], column)
    count = times.filter(pl.col("value_ns") > 0)["lane"].n_unique()
    whom = name_lane(evidence, lane) if count == 1 else f"{count:,} ranks"
    verb = "flushed its buffers beside late launches of" if is_guess else "held launching threads of"
    of_rank = "" if count == 1 else f" of {evidence.labels[lane]}"
    text = (
        f"nsys itself {verb} {whom} {when}{name}, up to {format_time(most_ns)} while the GPU waited"
        f" ({format_share(most_ns / span_ns)} of step {step}{of_rank}; about {format_time(gain_ns)} per step on average)"
    )
    return Finding(
        kind="profiler",
        text=text,
        confidence="guess" if is_guess else "certain",
        subject="rank",
        gain_ns=gain_ns,
        gain_fraction=evidence.share(gain_ns),
        label=evidence.labels[lane],
        lane=lane,
        step=step if worst.height == 1 else None,
        since_step=since,
        value_ns=most_ns,
        sample_count=worst.height,
    )


def _name_overhead(evidence: Evidence, steps: pl.Series, column: str) -> str:
    """Name the overhead that took most time in some steps: ", most in `CUPTI Buffer flush`"; "" where it has no name."""
    named = (
        evidence.training.overheads.filter(
            "is_of_profiler", pl.col("name").is_not_null(), pl.col("step").is_in(steps.implode())
        )
        .group_by("name")
        .agg(pl.col(column).sum())
        .filter(pl.col(column) > 0)
        .sort(column, "name", descending=[True, False])
    )
    return f", most in `{cut_name(named['name'][0])}`" if len(named) else ""


def has_flush_beside(evidence: Evidence, lane: int, step: int, time_ns: float) -> bool:
    """Return whether flushes on other threads ran during half of a time of late launches of a rank in a step."""
    rows = evidence.training.overheads.filter(lane=lane, step=step)
    return to_float(rows["beside_ns"].sum()) >= _LEAST_BESIDE * time_ns
