"""Phases of training: jobs by kind, and steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.aggregates.item_sums import sum_instances
from nsys_pp.aggregates.windows import step_on_device, step_on_host
from nsys_pp.arrays.ancestors import has_marked_line
from nsys_pp.arrays.scratch_frames import list_blocks
from nsys_pp.frames.aggregates import ALL_JOBS
from nsys_pp.frames.report import NAME

_STEP = ["process_key", "device_id", "step"]


def sum_phases(
    jobs: pl.DataFrame, gpu_ops: pl.DataFrame, steps: pl.DataFrame, *, kinds: Sequence[str]
) -> pl.DataFrame:
    """Add up jobs by kind, jobs of all kinds, and steps.

    A job inside another of its kind, on any level, does not count; a job inside a job of another kind
    does, so rows overlap. In `ALL_JOBS` only outermost jobs count.

    Args:
        jobs: `JOBS`.
        gpu_ops: `GPU_OPS`.
        steps: `STEPS`.
        kinds: Kinds of operation that count for jobs and steps.

    Returns:
        `ITEM_AGGREGATES` of item "phase", measures "host" and "gpu". "host" counts a job or step once, however many devices it
        reached; "gpu" of a step adds up the operations that began in it. Calls are not counted.
    """
    on_host = step_on_host(jobs, steps, time="host_start_ns")
    jobs = jobs.with_columns(step=pl.coalesce("step", on_host))
    parts = [*_sum_jobs(jobs), *_sum_steps(gpu_ops, steps, kinds)]
    return pl.concat(parts)


def _sum_jobs(jobs: pl.DataFrame) -> list[pl.DataFrame]:
    of_kinds = jobs.filter(~_is_inside_its_kind(jobs)).with_columns(
        name=pl.col("kind").cast(pl.String).cast(NAME)
    )
    of_all = jobs.filter(pl.col("outer_id").is_null()).with_columns(name=pl.lit(ALL_JOBS, NAME))
    outermost = pl.concat([of_kinds, of_all])
    on_host = outermost.unique(["range_id", "name"], keep="first", maintain_order=True)
    on_device = outermost.filter(pl.col("start_ns").is_not_null())
    measured = {
        "host": on_host.select(
            "process_key", "step", "name", value_ns=pl.col("host_end_ns") - pl.col("host_start_ns")
        ),
        "gpu": on_device.select(*_STEP, "name", value_ns="total_ns"),
    }
    return [sum_instances(rows, item="phase", measure=measure) for measure, rows in measured.items()]


def _sum_steps(gpu_ops: pl.DataFrame, steps: pl.DataFrame, kinds: Sequence[str]) -> list[pl.DataFrame]:
    parts = pl.concat([_sum_ops(gpu_ops[rows], steps, kinds) for rows in list_blocks(len(gpu_ops))])
    ran = parts.group_by(_STEP).agg(pl.col("total_ns").sum())
    on_device = steps.join(ran, on=_STEP, how="left", maintain_order="left").with_columns(
        pl.col("total_ns").fill_null(0), name=pl.lit("step", NAME)
    )
    on_host = on_device.group_by("process_key", "step", "name", maintain_order=True).agg(
        value_ns=pl.col("host_end_ns").max() - pl.col("host_start_ns").min()
    )
    measured = {
        "host": on_host,
        "gpu": on_device.select(*_STEP, "name", value_ns="total_ns"),
    }
    return [sum_instances(rows, item="phase", measure=measure) for measure, rows in measured.items()]


def _sum_ops(gpu_ops: pl.DataFrame, steps: pl.DataFrame, kinds: Sequence[str]) -> pl.DataFrame:
    """Sum the durations of operations of some kinds by step."""
    ops = gpu_ops.filter(pl.col("kind").is_in(list(kinds)))
    return (
        ops.with_columns(step_on_device(ops, steps))
        .drop_nulls("step")
        .group_by(_STEP)
        .agg(total_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    )


def _is_inside_its_kind(jobs: pl.DataFrame) -> pl.Series:
    """Return the mask of jobs inside a job of the same kind, on any level."""
    distinct = jobs.select("range_id", "outer_id", "kind").unique("range_id", maintain_order=True)
    rows = distinct.select("range_id").with_row_index("outer_row")
    parent = (
        distinct.join(rows, left_on="outer_id", right_on="range_id", how="left", maintain_order="left")[
            "outer_row"
        ]
        .cast(pl.Int64)
        .fill_null(-1)
        .to_numpy()
    )
    kind = distinct["kind"].to_physical().to_numpy()
    is_inside = np.zeros(len(distinct), dtype=np.bool_)
    for code in np.unique(kind):
        is_inside |= (kind == code) & _is_below(parent, kind == code)
    inside = distinct.select("range_id", inside=pl.Series(is_inside))
    return jobs.join(inside, on="range_id", how="left", maintain_order="left")["inside"]


def _is_below(parent: npt.NDArray[np.int64], marked: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the mask of rows with a marked ancestor."""
    line = has_marked_line(parent, marked)
    return np.asarray((parent >= 0) & line[parent])
