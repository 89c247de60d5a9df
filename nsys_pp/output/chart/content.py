"""Frames of a chart, for page and pictures: bars, bubbles, steps, labels, and the most a page holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import numbers
from nsys_pp.arrays.intervals import count_ancestors, intersect, subtract, unite
from nsys_pp.arrays.search import find_rows
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.clock import describe_groups
from nsys_pp.frames.conform import conform_part
from nsys_pp.frames.training import (
    BUBBLE_CAUSES,
    CAUSES,
    JOB_KIND,
    MESSAGE_KINDS,
    PAUSE_NS,
    RUN_JOBS,
    Training,
    span_steps,
)
from nsys_pp.frames.verdict import Finding, Verdict
from nsys_pp.output.colors import SHADES
from nsys_pp.units import NS_PER_DAY


def build_bars(training: Training) -> pl.DataFrame:
    """Build one bar per job.

    A bar spans the job's compute interval if known. Otherwise, and for sends and receives, it spans all
    operations. Compute outside all jobs is drawn as jobs of kind "other".

    Returns:
        `RUN_JOBS`, one row per job and stretch of compute outside jobs, by lane and bar_start_ns; and
        is_message (drawn in the rows of sends and receives), shade (chunk modulo `SHADES`), depth (number of
        jobs around it), bar_start_ns, bar_end_ns. Empty in, empty out.
    """
    jobs = pl.concat([training.jobs, _list_other_compute(training)])
    outer = find_rows(numbers(jobs["job"]), numbers(jobs["outer"], null=-1))
    is_message = pl.col("kind").cast(pl.String).is_in(MESSAGE_KINDS)
    has_compute = pl.col("compute_start_ns").is_not_null() & ~is_message
    return jobs.with_columns(
        is_message=is_message,
        shade=(pl.col("chunk").fill_null(0) % SHADES).cast(pl.UInt8),
        depth=pl.Series(count_ancestors(outer)).clip(0, 255).cast(pl.UInt8),
        bar_start_ns=pl.when(has_compute).then("compute_start_ns").otherwise("start_ns"),
        bar_end_ns=pl.when(has_compute).then("compute_end_ns").otherwise("end_ns"),
    ).sort("lane", "bar_start_ns", "depth", maintain_order=True)


def _list_other_compute(training: Training) -> pl.DataFrame:
    computing = training.lane_states.filter(pl.col("cause") == "compute")
    times = ("lane", "start_ns", "end_ns")
    lane, start, end = (numbers(computing[name]) for name in times)
    inside = intersect(lane, start, end, unite(*(numbers(training.jobs[name]) for name in times)))
    rest = subtract(start, end, inside)
    whole = np.setdiff1d(np.arange(len(computing)), inside.row)
    compute = computing.select("lane", "step")[np.concatenate([rest.row, whole])].with_columns(
        pl.Series("start_ns", np.concatenate([rest.start, start[whole]])),
        pl.Series("end_ns", np.concatenate([rest.end, end[whole]])),
        job=int(numbers(training.jobs["job"]).max(initial=-1)) + 1 + pl.int_range(pl.len()),
        kind=pl.lit("other"),
        label=pl.lit(""),
        name=pl.lit("compute"),
        is_inferred=pl.lit(value=False),
    )
    # the rest of a pause between jobs is no compute
    return conform_part(compute.filter(pl.col("end_ns") - pl.col("start_ns") > PAUSE_NS), RUN_JOBS)


def build_bubbles(training: Training) -> pl.DataFrame:
    """Return the bubbles of all lanes: `LANE_STATES`, by lane, start_ns."""
    return training.lane_states.filter(pl.col("cause").cast(pl.String).is_in(BUBBLE_CAUSES)).sort(
        "lane", "start_ns"
    )


def name_lanes(lanes: pl.DataFrame) -> pl.DataFrame:
    """Format the texts to the left of each lane: `label` without the machine, and `gpu` with it."""
    machine = pl.concat_str(pl.col("machine").fill_null(""), pl.lit(" "))
    return lanes.select(
        label=pl.col("label").str.strip_prefix(machine),
        gpu=pl.concat_str("machine", "gpu", separator=" · ", ignore_nulls=True),
    )


def choose_step(training: Training, verdict: Verdict) -> int | None:
    """Choose the step to show of a run: the one of the first finding, else the complete one of median length.

    None without steps.
    """
    spans = span_steps(training.steps).sort(pl.col("end_ns") - pl.col("start_ns"), "step")
    for finding in verdict.findings[:1]:
        named = finding.since_step if finding.step is None else finding.step
        if named in spans["step"]:
            return named
    whole = spans.filter(~pl.col("is_partial"))["step"]
    return int(whole[len(whole) // 2]) if len(whole) else next(iter(spans["step"]), None)


def list_named_lanes(lanes: pl.DataFrame, findings: Sequence[Finding]) -> list[int]:
    """List the lanes of the ranks, stages, machines and links of findings."""
    columns = {"rank": "label", "link": "label", "stage": "stage", "machine": "machine"}
    named: list[int] = []
    for finding in findings:
        names = [finding.stage] if finding.subject == "stage" else (finding.label or "").split(" -> ")
        if finding.subject in columns:
            named += lanes.filter(lanes[columns[finding.subject]].is_in(names))["lane"].to_list()
    return named


def used_kinds(bars: pl.DataFrame, transfers: pl.DataFrame) -> list[str]:
    """Return the drawn kinds, in the order of `JOB_KINDS`."""
    kinds = set(bars["kind"].unique().drop_nulls().to_list())
    if transfers.height:
        kinds |= {"send", "receive"}
    return [kind for kind in JOB_KIND.categories if kind in kinds]


def name_kinds(training: Training, kinds: Sequence[str]) -> dict[str, str]:
    """Return the text of each kind; that of other jobs is the name of the longest ones, or "compute"."""
    longest = (
        training.jobs.filter(kind="other")
        .group_by("label")
        .agg(total_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .sort("total_ns", "label", descending=[True, False])["label"]
    )
    other = f"{longest[0] or 'other'}{', …' * (len(longest) > 1)}" if len(longest) else "compute"
    return {kind: other if kind == "other" else kind.replace("_", " ") for kind in kinds}


def used_causes(bubbles: pl.DataFrame) -> list[str]:
    """Return the drawn causes, in the order of `CAUSES`."""
    return [cause for cause in CAUSES if cause in bubbles["cause"]]


def time_span(training: Training, bars: pl.DataFrame) -> tuple[int, int]:
    """Return the start and end of the chart in ns; (zero_ns, zero_ns + 1) if the chart is empty.

    Raises:
        NsysPPError: Its events are months apart: nothing could be seen, and a page has no exact times.
    """
    spans = pl.concat(
        frame.select(lane=lane, start=start, end=end)
        for frame, lane, start, end in [
            (training.steps, "lane", "start_ns", "end_ns"),
            (bars, "lane", "bar_start_ns", "bar_end_ns"),
            (training.transfers, "sender", "send_start_ns", "send_end_ns"),
            (training.transfers, "receiver", "receive_start_ns", "receive_end_ns"),
        ]
    )
    if spans.is_empty():
        return training.zero_ns, training.zero_ns + 1
    early, first = spans.select(pl.col("lane", "start").sort_by("start").first()).row(0)
    late, last = spans.select(pl.col("lane", "end").sort_by("end").last()).row(0)
    if last - min(first, training.zero_ns) > _LONGEST_NS:
        labels = training.lanes.filter(pl.col("lane").is_in([early, late]))["label"]
        names, days = " and ".join(f"`{label}`" for label in labels), (last - first) // NS_PER_DAY
        raise NsysPPError(
            f"no chart can show {names}: events are {days:,} days apart",
            "a report is damaged, or a clock was never set; name the other reports",
        )
    return first, max(first + 1, last)


def describe_run(training: Training) -> list[str]:
    """Describe the run as a whole, in short phrases."""
    schedule = training.schedule
    facts = []
    if schedule.name != "unknown":
        how = {
            "recognised": f", {100 * schedule.agreement:.0f} % of jobs in place",
            "uncertain": f": {schedule.reason}",
        }
        facts.append(f"schedule {schedule.name} ({schedule.source}{how.get(schedule.source, '')})")
    elif training.jobs.is_empty():
        facts.append("compute and bubbles, as no range tells jobs")
    elif schedule.reason:
        facts.append(f"schedule unknown: {schedule.reason}")
    counts = [
        (schedule.stage_count, "stage", "stages"),
        (schedule.micro_batch_count, "micro-batch", "micro-batches"),
        (schedule.chunk_count if schedule.chunk_count > 1 else 0, "chunk per stage", "chunks per stage"),
        (training.lanes.height, "lane", "lanes"),
    ]
    facts += [f"{count} {one if count == 1 else several}" for count, one, several in counts if count]
    if training.lanes.height > 1 and (clocks := _describe_clocks(training.lanes)):
        facts.append(clocks)
    return facts


def _describe_clocks(lanes: pl.DataFrame) -> str:
    """Describe the clocks of several lanes; "" if nothing is known of a single group."""
    if groups := describe_groups(lanes["clock_group"]):
        return groups
    bounds = lanes["bound_ns"].drop_nulls().to_numpy()
    unknown = f", except {count} with unknown clocks" if (count := len(lanes) - bounds.size) else ""
    return f"clocks of lanes agree within ± {bounds.max() / 1000:,.1f} us{unknown}" if bounds.size else ""


def describe_missing(training: Training) -> str:
    """Return the reason for an empty chart as a sentence; "" if the chart is not empty."""
    if not training.lanes.height:
        return "There is nothing to draw: no GPU process was found."
    if not training.jobs.height and not training.lane_states.height:
        return "There is nothing to draw: no kernel ran in a step."
    return ""


_LONGEST_NS = 1 << 52  # 52 days; pages have exact times up to twice as many

# Most jobs, messages and bubbles of a chart in a page; a page with two charts of so many has 5 MB.
MOST_BARS = 100_000

_STEP_FRAMES = ("steps", "jobs", "lane_states", "ideal", "transfers")


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
        NsysPPError: Not even one rank can be shown.
    """
    frames: dict[str, Any] = {name: getattr(training, name).filter(step=step) for name in _STEP_FRAMES}
    of_step = replace(training, **frames, notes=[])
    bar_counts = _count_by_lane(of_step)
    if (count := bar_counts["count"].sum()) <= most_bars:
        return of_step
    lanes = _select_lanes(of_step, bar_counts, most_bars, named)
    if lanes.is_empty():
        raise NsysPPError(
            f"This step has {count:,} bars, too many for this page; `nsys-pp chart REPORT... --steps"
            f" {step}:{step + 1} -o step.html`"
            " draws them."
        )
    note = (
        f"{len(lanes):,} of {len(training.lanes):,} ranks are shown, as the step has {count:,} bars: those"
        " that the verdict names, and of each stage those that compute longest"
    )
    return _renumber(of_step, lanes, note)


def _count_by_lane(training: Training) -> pl.DataFrame:
    """Count the bars of each lane: lane, count; without jobs, compute is drawn as jobs."""
    states = training.lane_states
    if len(training.jobs):
        states = states.filter(pl.col("cause").cast(pl.String).is_in(BUBBLE_CAUSES))
    parts = [training.jobs, states, training.transfers.select(lane="receiver")]
    return pl.concat([part.select("lane") for part in parts]).group_by("lane").agg(count=pl.len())


def _select_lanes(
    training: Training, bar_counts: pl.DataFrame, most_bars: int, named: Collection[int]
) -> pl.DataFrame:
    """Select the named lanes, and in turn the next lane of each stage by descending compute."""
    length = pl.col("end_ns") - pl.col("start_ns")
    compute = training.lane_states.filter(cause="compute").group_by("lane").agg(compute_ns=length.sum())
    ranked = (
        training.lanes.join(compute, on="lane", how="left")
        .join(bar_counts, on="lane", how="left")
        .with_columns(pl.col("compute_ns", "count").fill_null(0))
        .with_columns(
            turn=pl.col("compute_ns").rank("ordinal", descending=True).over("stage"),
            is_named=pl.col("lane").is_in([*named]),
        )
        .sort("is_named", "turn", "stage", "lane", descending=[True, False, False, False])
        .filter(pl.col("count").cum_sum() <= most_bars)
    )
    return training.lanes.filter(pl.col("lane").is_in(ranked["lane"].implode())).sort("lane")


def _renumber(training: Training, lanes: pl.DataFrame, note: str) -> Training:
    """Keep only these lanes, numbered from 0; a wait for another lane is for an unknown one."""
    new = pl.int_range(len(lanes), dtype=pl.UInt32, eager=True)
    frames: dict[str, Any] = {"lanes": lanes.with_columns(lane=new)}
    for name in _STEP_FRAMES:
        frame = getattr(training, name)
        keys = ["sender", "receiver"] if name == "transfers" else ["lane"]
        columns = [*keys, *({"waits_for"} & {*frame.columns})]
        numbered = pl.col(columns).replace_strict(lanes["lane"], new, default=None, return_dtype=pl.UInt32)
        frames[name] = frame.with_columns(numbered).drop_nulls(keys)
    return replace(training, **frames, notes=[note])
