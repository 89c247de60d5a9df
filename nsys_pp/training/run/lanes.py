"""Lanes of a run: its GPU processes, and their pipeline stages."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.arrays.natural_sort import natural_key
from nsys_pp.frames.clock_relations import CLOCK, is_comparable, relative_bound
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import LANES, SCHEDULED_KINDS

_KEYS = ("report", "process_key", "device_id")
_JOB_COLUMNS = [
    *(*_KEYS, "kind", "step", "stage", "virtual_stage", "backward_virtual_stage"),
    *("start_ns", "compute_start_ns", "compute_end_ns"),
]
_BEFORE = "_before"  # suffix of the columns of the lane before
_SAME_STAGE, _NEXT_STAGE = 0.5, 0.8
"""Limits of the delay between the first forwards of two lanes, in durations of a forward.

Up to `_SAME_STAGE` the lanes are of the same stage. From `_NEXT_STAGE` they are of successive stages, since a stage
needs the result of a whole forward of the previous stage. Between these limits the delay is ambiguous: replicas may
begin at different times.
"""


def build_lanes(
    roster: pl.DataFrame, jobs: pl.DataFrame, steps: pl.DataFrame | None = None
) -> tuple[pl.DataFrame, list[str]]:
    """List the GPU processes of all reports, and find their stages.

    Stages are from the roster (`--layout`, or names written with NVTX); else from job names. If no stage is
    known, they are from the order of the first forwards of a step, by the median over steps, unless ranks are
    missing, since whole stages may be missing then.

    Args:
        roster: `ROSTER_WITH_BOUNDS`.
        jobs: `GATHERED_FRAMES`: jobs.
        steps: `GATHERED_FRAMES`: steps. The first recorded forward of a partial step may not be the first
            forward of the step. None: all steps count.

    Returns:
        `LANES`, and notes on inferred and unknown stages. Empty without operations on a GPU.
    """
    located = roster.drop_nulls(["process_key", "device_id"]).unique(_KEYS, keep="first", maintain_order=True)
    jobs = jobs[_JOB_COLUMNS].filter(pl.col("kind").is_in(SCHEDULED_KINDS) & pl.col("start_ns").is_not_null())
    named = _join(located, _find_stages_of_names(jobs)).with_columns(
        stage=pl.coalesce("stage", "named_stage"),
        stage_source=pl.when(pl.col("stage").is_not_null())
        .then("stage_source")
        .when(pl.col("named_stage").is_not_null())
        .then(pl.lit("job names")),
    )
    notes: list[str] = []
    working = named.join(jobs.select(_KEYS).unique(), on=_KEYS, how="semi", nulls_equal=True)
    if named["stage"].count() == 0:
        by_time, notes = _find_stages_of_first_forwards(
            working, jobs, steps, missing=_list_missing_ranks(named)
        )
        named = _join(named.drop("stage"), by_time).with_columns(
            stage_source=pl.when(pl.col("stage").is_not_null()).then(pl.lit("first forwards"))
        )
    elif count := working["stage"].null_count():
        notes = [f"the stages of {count:,} GPU processes that ran jobs are unknown; specify `--layout`"]
    return conform(_label_lanes(_sort_lanes(named)), LANES), notes


def _list_missing_ranks(lanes: pl.DataFrame) -> list[int]:
    """List the ranks below the last one without a lane; empty if lanes of unknown rank may have these ranks."""
    ranks = set(lanes["rank"].drop_nulls())
    missing = sorted(set(range(max(ranks, default=-1) + 1)) - ranks)
    return missing if len(missing) > lanes["rank"].null_count() else []


def _join(lanes: pl.DataFrame, located: pl.DataFrame) -> pl.DataFrame:
    return lanes.join(located, on=_KEYS, how="left", maintain_order="left")


def _find_stages_of_names(jobs: pl.DataFrame) -> pl.DataFrame:
    """Find stages from job names: stages in names, or the least virtual stage of a lane.

    Virtual stages continue in a loop over the stages, or back in a V: either way, the first chunk of a stage is the
    virtual stage of the same number.
    """
    virtual = pl.concat(
        jobs.select(*_KEYS, virtual=name).drop_nulls("virtual")
        for name in ("virtual_stage", "backward_virtual_stage")
    )
    held = virtual.group_by(_KEYS).agg(least=pl.col("virtual").min(), chunks=pl.col("virtual").n_unique())
    stages = (virtual.select(pl.col("virtual").max() + 1) // held.select(pl.col("chunks").max())).to_series()
    named = jobs.group_by(_KEYS).agg(stage=pl.col("stage").drop_nulls().mode().min())
    of_virtual = pl.when(pl.col("least") < pl.lit(stages).max()).then("least")
    return _join(named, held).select(*_KEYS, named_stage=pl.coalesce("stage", of_virtual))


def _find_stages_of_first_forwards(
    lanes: pl.DataFrame, jobs: pl.DataFrame, steps: pl.DataFrame | None, *, missing: list[int]
) -> tuple[pl.DataFrame, list[str]]:
    """Group lanes into stages by the start of their first forwards; empty where groups are ambiguous."""
    nothing = lanes.select(*_KEYS, "stage").clear()
    forwards = jobs.filter(pl.col("kind").is_in(["forward", "forward_backward"]))
    started = lanes.join(_measure_delays(_find_first_forwards(forwards, steps)), on=_KEYS, how="inner").sort(
        "delay_ns"
    )
    if len(started) < 2:
        return nothing, []
    duration = (pl.col("compute_end_ns") - pl.col("compute_start_ns")).median()
    cost = forwards.filter(kind="forward").group_by(_KEYS).agg(forward_ns=duration)
    before = pl.col("forward_ns").shift(1)
    clocks = [
        pl.col(name).shift(1, fill_value=pl.col(name).first()).alias(f"{name}{_BEFORE}") for name in CLOCK
    ]
    bound = relative_bound(_BEFORE)
    gaps = (
        _join(started, cost)
        .with_columns(clocks)
        .with_columns(
            gap=(pl.col("delay_ns").diff() / before).fill_null(0.0),
            uncertainty=pl.when(is_comparable(_BEFORE) & (bound > 0)).then(bound / before),
            is_certain=is_comparable(_BEFORE) & (bound == 0),
        )
    )
    staged = gaps.with_columns(stage=(pl.col("gap") > _SAME_STAGE).cast(pl.Int64).cum_sum())
    spread = (pl.col("delay_ns") - pl.col("delay_ns").min().over("stage")) / pl.col("forward_ns")
    is_unclear = pl.col("gap").is_between(_SAME_STAGE, _NEXT_STAGE) | (spread > _SAME_STAGE)
    sizes = np.bincount(staged["stage"].to_numpy())
    is_uncertain = ~pl.col("is_certain") & (pl.col("uncertainty").fill_null(1.0) > _SAME_STAGE)
    if missing:
        reason = f"rank {missing[0]} is missing" + (
            f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        )
    elif staged.select(is_uncertain.any()).item():
        reason = "clocks are not known well enough to order the first forwards"
    elif staged.select(is_unclear.any()).item() or sizes.min() < sizes.max():
        reason = "GPUs do not begin their first forwards in groups of one size, one after the other"
    else:
        by_rank = staged.sort("rank", nulls_last=True)["stage"]
        is_expected = staged["rank"].null_count() == 0 and by_rank.is_sorted()
        note = f"that there are {len(sizes)} stages is inferred from when GPUs begin their first forwards"
        return staged.select(*_KEYS, "stage"), [] if is_expected or len(sizes) == 1 else [note]
    return nothing, [f"stages are unknown: {reason}; specify `--layout`"]


def _find_first_forwards(forwards: pl.DataFrame, steps: pl.DataFrame | None) -> pl.DataFrame:
    """Find the start of the first forward of each lane and step; only complete steps of lanes with complete steps."""
    first = (
        forwards.drop_nulls("step")
        .group_by(*_KEYS, "step")
        .agg(start_ns=pl.coalesce("compute_start_ns", "start_ns").min(), is_partial=pl.lit(False))
    )
    if steps is not None:
        cut = steps.select(*_KEYS, "step", "is_partial")
        first = first.drop("is_partial").join(cut, on=[*_KEYS, "step"], how="left")
    is_partial = pl.col("is_partial").fill_null(False)
    return first.filter(~is_partial | is_partial.all().over(_KEYS)).sort(*_KEYS, "start_ns")


def _measure_delays(first: pl.DataFrame) -> pl.DataFrame:
    """Measure the median delay of the first forwards of each lane after the first forwards of a reference lane."""
    times = first.group_by(_KEYS, maintain_order=True).agg("start_ns")
    if times.is_empty():
        return times.select(*_KEYS, delay_ns=pl.lit(None, pl.Float64))
    starts = [series.to_numpy() for series in times["start_ns"]]
    reference = max(starts, key=len)
    return times.select(_KEYS).with_columns(
        delay_ns=pl.Series([float(np.median(_subtract_nearest(start, reference))) for start in starts])
    )


def _subtract_nearest(
    times: npt.NDArray[np.int64], reference: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the difference of each time and the nearest reference time; both ascend.

    >>> _subtract_nearest(np.array([12, 29]), np.array([10, 20, 30]))
    array([ 2, -1])
    """
    right = np.searchsorted(reference, times).clip(0, len(reference) - 1)
    left = (right - 1).clip(0)
    nearest = np.where(abs(times - reference[left]) < abs(times - reference[right]), left, right)
    after: npt.NDArray[np.int64] = times - reference[nearest]
    return after


def _sort_lanes(lanes: pl.DataFrame) -> pl.DataFrame:
    """Sort lanes for display, and number them."""
    gpus = sorted(lanes["gpu"].drop_nulls().unique(), key=natural_key)
    gpu_order = pl.col("gpu").replace_strict(gpus, range(len(gpus)), default=None, return_dtype=pl.Int64)
    keys = ("stage", "replica", "tensor", "rank", "machine_order")
    return lanes.sort(*keys, gpu_order, "report", "process_key", "device_id", nulls_last=True).with_row_index(
        "lane"
    )


def _label_lanes(lanes: pl.DataFrame) -> pl.DataFrame:
    """Label each lane with its shortest unique name."""
    gpu = pl.concat_str("machine", "gpu", separator=" ", ignore_nulls=True)
    rank = pl.concat_str(pl.lit("rank "), "rank")
    process = pl.concat_str(pl.lit("process "), "pid")
    longer = (
        pl.concat_str(rank, "gpu", separator=", ", ignore_nulls=True),
        pl.concat_str(rank, gpu, process, separator=", ", ignore_nulls=True),
        pl.concat_str(
            rank, gpu, process, pl.concat_str(pl.lit("lane "), "lane"), separator=", ", ignore_nulls=True
        ),
    )
    labelled = lanes.with_columns(label=pl.coalesce(rank, gpu))
    for label in longer:
        labelled = labelled.with_columns(
            label=pl.when(pl.len().over("label") == 1).then("label").otherwise(label)
        )
    return labelled
