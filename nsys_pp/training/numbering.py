"""Steps of the whole run, with the same number on all lanes."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import gather, has_value, whole_numbers
from nsys_pp.arrays.search import expand_windows, find_pairs
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.training import IS_STEPLESS

STEP_NUMBERS = build_schema(
    {  # one row per step and lane; by lane, then time
        "lane": pl.UInt32,
        "step": pl.Int64,  # of `STEPS`
        "run_step": pl.Int64,  # of `RUN_STEPS`
    },
    name="STEP_NUMBERS",
)


def number_steps(steps: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Number the steps of each lane consistently over the run.

    Numbers in names are kept; other steps are counted. Captures may begin in different steps, so the
    consecutive steps of each capture of a lane are matched with consecutive steps of a reference, for the
    greatest overlap in time. The reference consists of the numbered steps of all lanes or, where no step is
    numbered, of the steps of the lane with the most steps; then the first step of any lane is number 0. Where
    the numbers of a lane do not ascend, a counter restarted, and names do not identify steps: all steps are
    counted.

    Steps of lanes of one report that do not overlap are not the same: its GPUs work in turn. Nor are those of
    two lanes of one rank, of which one took the place of the other.

    Args:
        steps: `LANE_STEPS`.
        lanes: lane, report and rank of each.

    Returns:
        `STEP_NUMBERS`, in which each number is of one step of a lane. A step has no number if another step of
        its lane has it: one with this number in its name, or an earlier one.
    """
    columns = ("lane", "report", "step", "is_numbered", "start_ns", "end_ns")
    of_rank = pl.coalesce("rank", -1 - pl.col("lane").cast(pl.Int64))
    placed = steps.join(lanes.select("lane", "report", of_rank=of_rank), on="lane", how="left")
    ordered = (
        placed.select(*columns, "of_rank", is_named="is_numbered")
        .sort("lane", "start_ns")
        .with_columns(is_of_restart=pl.col("lane").n_unique().over("of_rank") > 1)
    )
    follows = pl.col("step").sort_by("start_ns").diff().over("of_rank") > 0
    if not ordered.filter("is_numbered").select(follows.fill_null(value=True).all()).item():
        ordered = ordered.with_columns(is_numbered=pl.lit(value=False))
    counted = ordered.filter(~pl.col("is_numbered"))
    numbered = ordered.filter("is_numbered")
    if counted.is_empty():
        return conform(ordered.with_columns(run_step="step"), STEP_NUMBERS)
    if numbered.is_empty():
        longest = counted.group_by("lane").len().sort("len", "lane", descending=[True, False])["lane"][0]
        reference = counted.filter(lane=longest).with_columns(step=pl.int_range(pl.len()))
    else:
        reference = (
            numbered.group_by("step")
            .agg(
                pl.col("start_ns", "end_ns").median().cast(pl.Int64),
                pl.when(pl.col("report").n_unique() == 1).then(pl.col("report").first()),
            )
            .sort("start_ns")
        )
    mixed = ordered.filter((~pl.col("is_numbered")).any().over("lane"))
    matched = mixed.with_columns(run_step=pl.Series(_number_by_overlap(mixed, reference))).filter(
        ~pl.col("is_numbered")
    )
    if numbered.is_empty():
        matched = matched.with_columns(pl.col("run_step") - pl.col("run_step").min())
    named = numbered.with_columns(run_step="step")
    matched = matched.unique(["lane", "run_step"], keep="first", maintain_order=True)
    both = pl.concat([named, matched.join(named, on=["lane", "run_step"], how="anti")])
    return both.sort("lane", "start_ns").pipe(conform, STEP_NUMBERS)


def renumber_steps(frame: pl.DataFrame, numbers: pl.DataFrame) -> pl.DataFrame:
    """Replace the step numbers of the reports by the step numbers of the run.

    Args:
        frame: Any frame with `lane` and `step` of `STEPS`; null outside all steps.
        numbers: `STEP_NUMBERS`.

    Returns:
        The same rows in the same order; null where a step has no number.
    """
    (lane, step), (of_lane, of_step) = (
        (whole_numbers(rows["lane"]), whole_numbers(rows["step"])) for rows in (frame, numbers)
    )
    row = np.where(has_value(frame["step"]), find_pairs(of_lane, of_step, lane, step), -1)
    return frame.with_columns(gather(numbers["run_step"], row).alias("step"))


def _number_by_overlap(steps: pl.DataFrame, reference: pl.DataFrame) -> Int64s:
    """Number the steps of each lane as the reference steps with the greatest overlap in time."""
    start, end = (steps[name].to_numpy() for name in ("start_ns", "end_ns"))
    since, until = reference["start_ns"].to_numpy(), reference["end_ns"].to_numpy()
    begin, group = _number_stretches(steps)
    position = np.arange(len(start)) - begin[group]
    first = np.searchsorted(np.maximum.accumulate(until), start, side="right")
    last = np.maximum(np.searchsorted(since, end), first)
    mine, other = np.repeat(np.arange(len(start)), last - first), expand_windows(first, last)
    overlap = np.minimum(end[mine], until[other]) - np.maximum(start[mine], since[other])
    shift = np.searchsorted(since, start[begin])  # for lanes without overlap: by their start
    # before all others of their report, or of processes that a restart replaced
    report, own = reference["report"].unique(), whole_numbers(steps["report"])[begin]
    is_own = own == (-1 if len(report) > 1 or report.null_count() else report[0])
    is_own |= steps["is_of_restart"].to_numpy()[begin]
    count = np.diff(np.append(begin, len(start)))
    shift -= np.where(is_own & (end[begin + count - 1] <= since[0]), count, 0)
    best = (
        pl.DataFrame({"group": group[mine], "shift": other - position[mine], "overlap": overlap.clip(0)})
        .group_by("group", "shift")
        .agg(pl.col("overlap").sum())
        .filter(pl.col("overlap") > 0)
        .sort("overlap", "shift", descending=[True, False])
        .unique("group", keep="first", maintain_order=True)
    )
    shift[best["group"].to_numpy()] = best["shift"].to_numpy()
    return _extrapolate(reference["step"].to_numpy(), shift[group] + position)


def _number_stretches(steps: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Number the stretches of consecutive steps.

    A lane, or of a lane with several captures each, where their steps are counted.

    Steps with a number in their name follow one another, also where names do not identify steps.

    Returns:
        Row of the first step of each stretch, and the stretch of each step.
    """
    lane, step, is_named = (steps[name].to_numpy() for name in ("lane", "step", "is_named"))
    is_apart = ~(is_named[1:] | is_named[:-1]) & (np.diff(step) != 1)
    begins = np.append(True, (lane[1:] != lane[:-1]) | is_apart)[: len(lane)]
    return np.flatnonzero(begins), np.cumsum(begins) - 1


def _extrapolate(numbers: Int64s, positions: Int64s) -> Int64s:
    """Return the numbers at positions.

    They are extrapolated beyond both ends by 1 per position from the least and largest.

    >>> _extrapolate(np.array([10, 11, 13]), np.array([-1, 0, 2, 4]))
    array([ 9, 10, 13, 15])
    """
    last = len(numbers) - 1
    inside = numbers[positions.clip(0, last)]
    before, after = numbers.min() + positions, numbers.max() + positions - last
    return np.asarray(np.where(positions < 0, before, np.where(positions > last, after, inside)))


def describe_sources(steps: pl.DataFrame, lanes: pl.DataFrame) -> list[str]:
    """Describe the evidence for steps found by repetition, and the reason for steps of the whole capture.

    Args:
        steps: `LANE_STEPS`.
        lanes: `LANES`.

    Returns:
        A sentence per source, with the first lane if there are several; none if ranges or jobs are the
        source.
    """
    notes = []
    treated = (
        "the whole capture is treated as one"
        if steps.filter(IS_STEPLESS).is_empty()
        else "it is not compared with steps of others"
    )
    first = steps.drop_nulls("reason").unique("lane", keep="first", maintain_order=True)
    labelled = first.join(lanes.select("lane", "label"), on="lane").sort("lane")
    for (source,), own in labelled.partition_by("source", as_dict=True, maintain_order=True).items():
        is_repeated = source == "inferred"
        where = f" {'of' if is_repeated else 'on'} {own['label'][0]}" if len(lanes) > 1 else ""
        where += f" and {len(own) - 1:,} more" if len(own) > 1 else ""
        notes.append(
            f"steps{where} are inferred from launches: {own['reason'][0]}"
            if is_repeated
            else f"no steps found{where}; {treated} (`--step-pattern` names them): {own['reason'][0]}"
        )
    return notes


def describe_restart(steps: pl.DataFrame, numbers: pl.DataFrame) -> list[str]:
    """Describe numbers in names that do not identify steps, as they restart during the run.

    Args:
        steps: `LANE_STEPS`, with the numbers of the reports.
        numbers: `STEP_NUMBERS` of them.

    Returns:
        A sentence; none if the steps of the run have the numbers in their names.
    """
    named = steps.filter("is_numbered").join(numbers, on=["lane", "step"])
    if (named["step"] == named["run_step"]).all():
        return []
    return ["the numbers in the names of steps restart during the run: its steps are counted, from 0"]


def describe_cuts(steps: pl.DataFrame) -> list[str]:
    """Describe captures that cut every step on some lane: means are then of few lanes, or of parts of steps.

    Args:
        steps: `RUN_STEPS`.

    Returns:
        A sentence; none if a step is whole on all lanes that recorded it, and without steps.
    """
    if steps.is_empty() or steps.filter("is_partial")["step"].n_unique() < steps["step"].n_unique():
        return []
    whole, count = steps.filter(~pl.col("is_partial"))["lane"].n_unique(), steps["lane"].n_unique()
    if not whole:
        return [
            "every step is cut by the capture on every rank: times of steps are those of the recorded parts"
        ]
    return [
        f"every step is cut by the capture on some rank: means of stages and lanes are of the {whole:,} of "
        f"{count:,} ranks with a whole step"
    ]
