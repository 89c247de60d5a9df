"""Frames of a chart, shared by the page and the pictures: bars, bubbles, steps, labels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from nsys_pp.arrays.types import Int64s
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.clock import describe_groups
from nsys_pp.frames.conform import NAME, build_schema, conform, conform_part
from nsys_pp.frames.training import (
    BUBBLE_CAUSES,
    CAUSES,
    JOB_KIND,
    MESSAGE_KINDS,
    RUN_JOBS,
    Training,
    span_steps,
)
from nsys_pp.output.colors import SHADES
from nsys_pp.units import NS_PER_DAY

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

    A bar spans the job's compute interval if known. Otherwise, and for sends and receives, it spans all
    operations. Without jobs, the compute of lanes is drawn as jobs of kind "other".

    Returns:
        The columns of `BARS` and `BAR_NUMBERS`, `is_inferred`, `confidence` and `role`: one row per job, by
        lane and bar_start_ns. Empty in, empty out.
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


_LONGEST_NS = 1 << 52  # 52 days; pages have exact times up to twice as many


_SHOWN = 3  # labels in a note


_FRAMES = ("steps", "jobs", "lane_states", "ideal")


_TIMES = ("start_ns", "end_ns", "compute_start_ns", "compute_end_ns", "host_start_ns", "host_end_ns")


def bring_near(training: Training) -> Training:
    """Move the times of lanes that are months from most others to the start of these, with a note.

    A clock that was never set shows 1970. On one time axis with the others, nothing could be seen, and a page
    has exact times for 104 days only.

    Returns:
        The same training if all lanes are near each other.

    Raises:
        NsysPPError: The events of one lane are months apart.
    """
    spans = pl.concat(
        getattr(training, name).select("lane", "start_ns", "end_ns").drop_nulls() for name in _FRAMES
    )
    first_ns, last_ns = spans.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    if first_ns is None or last_ns - min(first_ns, training.zero_ns) <= _LONGEST_NS:
        return training
    lanes = (
        spans.group_by("lane").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("start_ns", "lane")
    )
    lane, start, end = (lanes[name].to_numpy().astype(np.int64) for name in lanes.columns)
    labels = dict(training.lanes.select("lane", "label").rows())
    if (too_long := np.flatnonzero(end - start > _LONGEST_NS)).size:
        raise NsysPPError(
            f"no chart can show `{labels.get(int(lane[too_long[0]]))}`: its events are"
            f" {int((end - start)[too_long[0]]) // NS_PER_DAY:,} days apart",
            "its report is damaged, or its clock was set while it was recorded; name the other reports",
        )
    offset = _find_offsets(start)
    notes = [
        f"the clock of {_name([labels[int(of)] for of in lane[offset == moved]])} is"
        f" {abs(int(moved)) // NS_PER_DAY:,} days from"
        " that of most others, as if it was never set: drawn apart, from the start of the others"
        for moved in np.unique(offset[offset != 0])
    ]
    offsets = pl.DataFrame(
        {"lane": lane, "offset_ns": offset}, schema={"lane": pl.UInt32, "offset_ns": pl.Int64}
    )
    frames: dict[str, Any] = {
        name: _move(getattr(training, name), offsets, "lane", _TIMES) for name in _FRAMES
    }
    transfers = training.transfers
    for lane_column, side in (("sender", "send"), ("receiver", "receive")):
        transfers = _move(transfers, offsets, lane_column, (f"{side}_start_ns", f"{side}_end_ns"))
    begin = int((start + offset).min())
    zero_ns = training.zero_ns if training.zero_ns + _LONGEST_NS > begin else begin
    return replace(training, **frames, transfers=transfers, zero_ns=zero_ns, notes=[*training.notes, *notes])


def _find_offsets(start: Int64s) -> Int64s:
    """Find the number to add to the times of each lane; 0 for lanes near most others.

    Args:
        start: First start on each lane, ascending.
    """
    offset = np.zeros_like(start)
    rest = np.arange(len(start))
    begin: int | None = None
    while len(rest):
        # of all windows that begin with a lane the one with most lanes, the last of several: an unset clock
        # is early
        last = np.searchsorted(start[rest], start[rest] + (_LONGEST_NS >> 1), side="right")
        count = last - np.arange(len(rest))
        first = int(np.flatnonzero(count == count.max())[-1])
        members = rest[first : first + int(count[first])]
        if begin is None:
            begin = int(start[members[0]])
        else:
            offset[members] = begin - start[members[0]]
        rest = np.setdiff1d(rest, members)
    return offset


def _move(frame: pl.DataFrame, offsets: pl.DataFrame, lane: str, times: tuple[str, ...]) -> pl.DataFrame:
    """Add the offset of the lane to times."""
    moved = frame.join(offsets, left_on=lane, right_on="lane", how="left", maintain_order="left")
    present = [name for name in times if name in frame.columns]
    return moved.with_columns(pl.col(present) + pl.col("offset_ns").fill_null(0)).drop("offset_ns")


def _name(labels: list[str]) -> str:
    shown = ", ".join(f"`{label}`" for label in labels[:_SHOWN])
    return f"{shown} and {len(labels) - _SHOWN:,} more" if len(labels) > _SHOWN else shown


MOST_BARS = 100_000


"""Most jobs, messages and bubbles of a chart in a page; a page with two charts of so many has 5 MB."""


_STEP_FRAMES = ("steps", "jobs", "lane_states", "ideal", "transfers")


class TooManyBarsError(ValueError):
    """One rank alone has more bars than a chart in a page."""


def select_step(
    training: Training, step: int, *, named: Collection[int] = (), most_bars: int = MOST_BARS
) -> Training:
    """Select the rows of one step, for a chart.

    If there are too many, ranks are left out, with a note: `named` ones are kept, and of each stage those
    that compute longest.

    Args:
        training: The training.
        step: The step.
        named: Lanes to keep.
        most_bars: Most jobs, messages and bubbles.

    Raises:
        TooManyBarsError: Not even one rank can be shown.
        NsysPPError: Clocks are months apart within a lane.
    """
    frames: dict[str, Any] = {name: getattr(training, name).filter(step=step) for name in _STEP_FRAMES}
    of_step = replace(training, **frames, notes=[])
    count = _count_bars(of_step)
    if count > most_bars:
        of_step = _select_lanes(of_step, most_bars, count, named)
    if _count_bars(of_step) > most_bars:
        raise TooManyBarsError(
            f"This step has {count:,} bars, too many for this page; `nsys-pp chart REPORT... --steps"
            f" {step}:{step + 1} -o step.html`"
            " draws them."
        )
    return bring_near(of_step)


def _count_bars(training: Training) -> int:
    return int(_count_by_lane(training)["count"].sum())


def _count_by_lane(training: Training) -> pl.DataFrame:
    """Count the bars of each lane: lane, count; without jobs, compute is drawn as jobs."""
    states = training.lane_states
    if len(training.jobs):
        states = states.filter(pl.col("cause").cast(pl.String).is_in(BUBBLE_CAUSES))
    parts = [training.jobs, states, training.transfers.select(lane="receiver")]
    lanes = pl.concat([part.select("lane") for part in parts])
    return lanes.group_by("lane").agg(count=pl.len())


def _select_lanes(training: Training, most_bars: int, count: int, named: Collection[int]) -> Training:
    """Keep the named lanes, and in turn the next lane of each stage by descending compute."""
    length = pl.col("end_ns") - pl.col("start_ns")
    compute = training.lane_states.filter(cause="compute").group_by("lane").agg(compute_ns=length.sum())
    ranked = (
        training.lanes.join(compute, on="lane", how="left")
        .join(_count_by_lane(training), on="lane", how="left")
        .with_columns(pl.col("compute_ns", "count").fill_null(0))
        .with_columns(
            turn=pl.col("compute_ns").rank("ordinal", descending=True).over("stage"),
            is_named=pl.col("lane").is_in([*named]),
        )
        .sort("is_named", "turn", "stage", "lane", descending=[True, False, False, False])
        .filter(pl.col("count").cum_sum() <= most_bars)
    )
    lanes = training.lanes.filter(pl.col("lane").is_in(ranked["lane"].implode())).sort("lane")
    note = (
        f"{len(lanes):,} of {len(training.lanes):,} ranks are shown, as the step has {count:,} bars: those"
        " that the verdict names,"
        " and of each stage those that compute longest"
    )
    return _renumber(training, lanes, note) if len(lanes) else training


def _renumber(training: Training, lanes: pl.DataFrame, note: str) -> Training:
    """Keep only these lanes, numbered from 0; a wait for another lane is for an unknown one."""
    numbers = lanes.select("lane", number=pl.int_range(pl.len(), dtype=pl.UInt32))
    columns = {"transfers": ("sender", "receiver")}
    frames: dict[str, Any] = {"lanes": lanes.with_columns(lane=pl.int_range(pl.len(), dtype=pl.UInt32))}
    for name in _STEP_FRAMES:
        frame = getattr(training, name)
        for column in columns.get(name, ("lane",)):
            frame = (
                frame.join(numbers, left_on=column, right_on="lane", how="inner", maintain_order="left")
                .with_columns(pl.col("number").alias(column))
                .drop("number")
            )
        frames[name] = frame
    states = frames["lane_states"]
    waits = states.select("waits_for").join(
        numbers, left_on="waits_for", right_on="lane", how="left", maintain_order="left"
    )
    frames["lane_states"] = states.with_columns(waits_for=waits["number"])
    return replace(training, **frames, notes=[note])
