"""Frames of a chart, shared by the page and the pictures: bars, bubbles, steps, labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys_pp.frames.clock import describe_groups
from nsys_pp.frames.conform import build_schema, conform, conform_part
from nsys_pp.frames.names import NAME
from nsys_pp.frames.training import (
    BUBBLE_CAUSES,
    CAUSES,
    JOB_KIND,
    MESSAGE_KINDS,
    RUN_JOBS,
    Training,
    span_steps,
)
from nsys_pp.output.chart.look import SHADES

_DEPTH_LIMIT = 64

BARS = build_schema(
    {  # one row per job, by lane and bar_start_ns; columns of RUN_JOBS, and:
        "lane": pl.UInt32,
        "job": pl.UInt32,
        "kind": JOB_KIND,
        "label": pl.String,
        "name": NAME,
        "shade": pl.UInt8,  # chunk modulo SHADES
        "depth": pl.UInt8,  # number of jobs around it
        "is_message": pl.Boolean,  # drawn in the rows of sends and receives
        "bar_start_ns": pl.Int64,
        "bar_end_ns": pl.Int64,
    },
    name="BARS",
)
BAR_NUMBERS = (
    "step",
    "micro_batch",
    "chunk",
    "backward_micro_batch",
    "start_ns",
    "end_ns",
    "busy_ns",
    "compute_start_ns",
    "compute_end_ns",
    "launch_delay_ns",
)

STEP_SPANS = build_schema(
    {  # one row per step; by start_ns
        "step": pl.Int64,
        "start_ns": pl.Int64,  # earliest start on any lane
        "end_ns": pl.Int64,  # latest end on any lane
        "is_partial": pl.Boolean,  # cut by the capture on at least one lane
    },
    name="STEP_SPANS",
)


def build_bars(training: Training) -> pl.DataFrame:
    """Build one bar per job.

    A bar spans the job's compute interval if known. Otherwise, and for sends and receives, it spans all operations.
    Without jobs, the compute of lanes is drawn as jobs of kind "other".

    Returns:
        The columns of `BARS` and `BAR_NUMBERS`, `is_inferred`, `confidence` and `role`: one row per job, by lane and
        bar_start_ns. Empty in, empty out.
    """
    jobs = training.jobs if len(training.jobs) else _list_compute(training.lane_states)
    is_message = pl.col("kind").cast(pl.String).is_in(MESSAGE_KINDS)
    has_compute = pl.col("compute_start_ns").is_not_null() & ~is_message
    bars = jobs.with_columns(
        is_message=is_message,
        shade=(pl.col("chunk").fill_null(0) % SHADES).cast(pl.UInt8),
        depth=pl.Series(_depths(jobs), dtype=pl.UInt8),
        bar_start_ns=pl.when(has_compute).then("compute_start_ns").otherwise("start_ns"),
        bar_end_ns=pl.when(has_compute).then("compute_end_ns").otherwise("end_ns"),
    ).sort("lane", "bar_start_ns", "depth", maintain_order=True)
    extra = bars.select(*BAR_NUMBERS, "is_inferred", "confidence", "role")
    return bars.pipe(conform, BARS).hstack(extra)


def _list_compute(lane_states: pl.DataFrame) -> pl.DataFrame:
    """List the compute of lanes as `RUN_JOBS` of kind "other"."""
    compute = lane_states.filter(pl.col("cause") == "compute").select(
        *("lane", "step", "start_ns", "end_ns"),
        job=pl.int_range(pl.len()),
        kind=pl.lit("other"),
        label=pl.lit(""),
        name=pl.lit("compute"),
        is_inferred=pl.lit(value=False),
    )
    return conform_part(compute, RUN_JOBS)


def build_bubbles(training: Training) -> pl.DataFrame:
    """Return the bubbles of all lanes: `LANE_STATES`, by lane, start_ns."""
    return training.lane_states.filter(pl.col("cause").cast(pl.String).is_in(BUBBLE_CAUSES)).sort(
        "lane", "start_ns"
    )


def build_step_spans(training: Training) -> pl.DataFrame:
    """Return the steps of the whole run; schema `STEP_SPANS`."""
    return span_steps(training.steps).sort("start_ns", "step").pipe(conform, STEP_SPANS)


def name_lanes(lanes: pl.DataFrame) -> pl.DataFrame:
    """Format the texts to the left of each lane: `label` without the machine, and `gpu` with it."""
    machine = pl.concat_str(pl.col("machine").fill_null(""), pl.lit(" "))
    return lanes.select(
        label=pl.col("label").str.strip_prefix(machine),
        gpu=pl.concat_str("machine", "gpu", separator=" · ", ignore_nulls=True),
    )


def used_kinds(bars: pl.DataFrame, transfers: pl.DataFrame) -> list[str]:
    """Return the drawn kinds, in the order of `JOB_KINDS`."""
    kinds = set(bars["kind"].unique().drop_nulls().to_list())
    if transfers.height:
        kinds |= {"send", "receive"}
    return [kind for kind in JOB_KIND.categories if kind in kinds]


def name_kinds(training: Training, kinds: Sequence[str]) -> dict[str, str]:
    """Return the text of each kind; compute that is drawn for want of jobs has its own."""
    other = "compute" if training.jobs.is_empty() else "other"
    return {kind: other if kind == "other" else kind.replace("_", " ") for kind in kinds}


def used_causes(bubbles: pl.DataFrame) -> list[str]:
    """Return the drawn causes, in the order of `CAUSES`."""
    causes = set(bubbles["cause"].unique().to_list())
    return [cause for cause in CAUSES if cause in causes]


def time_span(training: Training, bars: pl.DataFrame) -> tuple[int, int]:
    """Return the start and end of the chart in ns; (zero_ns, zero_ns + 1) if the chart is empty."""
    edges = [
        frame[name].to_numpy()
        for frame, names in [
            (training.steps, ("start_ns", "end_ns")),
            (bars, ("bar_start_ns", "bar_end_ns")),
            (training.transfers, ("send_start_ns", "send_end_ns", "receive_start_ns", "receive_end_ns")),
        ]
        for name in names
        if frame.height
    ]
    if not edges:
        return training.zero_ns, training.zero_ns + 1
    first = min(int(times.min()) for times in edges)
    return first, max(first + 1, *(int(times.max()) for times in edges))


def describe_run(training: Training) -> list[str]:
    """Describe the run as a whole, in short phrases."""
    schedule = training.schedule
    facts = []
    if schedule.name != "unknown":
        how = f", {schedule.agreement:.0%} of jobs in place" if schedule.source == "recognised" else ""
        if schedule.source == "uncertain":
            how = f": {schedule.reason}"
        facts.append(f"schedule {schedule.name} ({schedule.source}{how})")
    elif training.jobs.is_empty():
        facts.append("compute and bubbles, as no range tells jobs")
    elif schedule.reason:
        facts.append(f"schedule unknown: {schedule.reason}")
    counts = [
        (schedule.stage_count, "stage"),
        (schedule.micro_batch_count, "micro-batch"),
        (schedule.chunk_count if schedule.chunk_count > 1 else 0, "chunk per stage"),
        (training.lanes.height, "lane"),
    ]
    facts += [f"{count} {plural(noun, count)}" for count, noun in counts if count]
    if training.lanes.height > 1 and (clocks := _describe_clocks(training.lanes)):
        facts.append(clocks)
    return facts


def _describe_clocks(lanes: pl.DataFrame) -> str:
    """Describe the clocks of several lanes; "" if nothing is known of a single group."""
    if groups := describe_groups(lanes["clock_group"]):
        return groups
    bounds = lanes["bound_ns"].drop_nulls().to_numpy()
    unknown = f", except {count} with unknown clocks" if (count := len(lanes) - bounds.size) else ""
    return f"clocks of lanes agree within ± {bounds.max() / 1000:,.1f} µs{unknown}" if bounds.size else ""


def plural(noun: str, count: int) -> str:
    """Return the noun, in the plural unless the count is 1: "micro-batches", "chunks per stage"."""
    if count == 1:
        return noun
    head, _, rest = noun.partition(" ")
    return f"{head}{'es' if head.endswith('ch') else 's'}{' ' + rest if rest else ''}"


def describe_missing(training: Training) -> str:
    """Return the reason for an empty chart as a sentence; "" if the chart is not empty."""
    if not training.lanes.height:
        return "There is nothing to draw: no GPU process was found."
    if not training.jobs.height and not training.lane_states.height:
        return "There is nothing to draw: no kernel ran in a step."
    return ""


def _depths(jobs: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Count the jobs around each job; outer jobs that are not in the frame do not count."""
    rows = jobs.select("job", row=pl.int_range(pl.len(), dtype=pl.Int64))
    outer = jobs.select("outer").join(
        rows, left_on="outer", right_on="job", how="left", maintain_order="left"
    )
    parent = outer["row"].fill_null(-1).to_numpy()
    depth = np.zeros(jobs.height, np.uint8)
    at = parent
    for _ in range(_DEPTH_LIMIT):
        is_inside = at >= 0
        if not is_inside.any():
            break
        depth += is_inside
        at = np.where(is_inside, parent[at], -1)
    return depth
