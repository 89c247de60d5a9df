"""Nesting of jobs: the job around each job, and removal of repeated inner jobs."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.ancestors import find_unmarked, has_marked_line
from nsys_pp.arrays.columns import NEVER, as_numbers, has_value, keep_rows, mark_categories, numbers
from nsys_pp.arrays.nesting import find_parents as find_enclosing
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.training import JOB_KIND, JOB_KINDS, MESSAGE_KINDS

_DATA, _OTHER = map(JOB_KINDS.index, ("data", "other"))
_IS_MESSAGE = mark_categories(JOB_KIND, MESSAGE_KINDS)
_IS_BACKWARD = mark_categories(JOB_KIND, ("backward", "forward_backward"))
_IS_BACKWARD_PART = mark_categories(
    JOB_KIND, ("recompute", "weight_gradient")
)  # often on threads of their own


def nest_jobs(jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the job around each job, and drop repeated inner jobs.

    The outer job is the innermost job around it on the same thread. A part of a backward (recomputation, weight
    gradients) may run on another thread, as in PyTorch's autograd: without an outer job on its thread, its outer job
    is the last backward of the process around it. Ranges that end on another thread, and data loading, which may
    overlap any job, have neither outer nor inner jobs.

    Args:
        jobs: Columns of `RANGES`, with `kind` one of `JOB_KINDS`; in order of range_id.

    Returns:
        The jobs in the same order, with `outer_id`; without jobs directly inside one of the same kind
        (for kind "other": and of the same name) and without jobs inside sends and receives.
    """
    if jobs.is_empty():
        return jobs.with_columns(outer_id=pl.lit(None, pl.Int64))
    kind = numbers(jobs["kind"])
    parent = find_parents(jobs, ~has_value(jobs["end_thread_key"]) & (kind != _DATA))
    is_inner = parent >= 0
    is_dropped = is_inner & (kind[parent] == kind)
    if (is_dropped & (kind == _OTHER)).any():
        name = numbers(jobs["name"], null=-1)
        is_dropped &= (kind != _OTHER) | (name[parent] == name)
    if is_inner.any():
        is_dropped |= is_inner & has_marked_line(parent, _IS_MESSAGE[kind])[parent]

    outer = find_unmarked(parent, is_dropped)
    range_id = jobs["range_id"].to_numpy()
    outer_id = as_numbers("outer_id", np.where(outer >= 0, range_id[outer], NEVER))
    kept = keep_rows(jobs.hstack([outer_id]), ~is_dropped)
    return _nest_backward_parts(kept, kind[~is_dropped])


def find_parents(jobs: pl.DataFrame, is_nestable: Bools) -> Int64s:
    """Find the row of the innermost job around each job on its thread; -1 without one.

    In order of thread, start and descending end, it is the nearest previous row that does not end earlier.

    Args:
        jobs: Columns thread_key, start_ns and end_ns, of jobs or other ranges, in any order.
        is_nestable: Mask of the rows that have outer and inner rows.
    """
    row = np.flatnonzero(is_nestable)
    thread, start, end = (jobs[name].to_numpy()[row] for name in ("thread_key", "start_ns", "end_ns"))
    above, _ = find_enclosing(thread, start, end)
    parent = np.full(len(jobs), -1, dtype=np.int64)
    parent[row] = np.where(above >= 0, row[above], -1)
    return parent


def _nest_backward_parts(jobs: pl.DataFrame, kind: Int64s) -> pl.DataFrame:
    """Find the backwards around recomputation and weight gradients on other threads; `kind`: code of each kind."""
    is_backward, is_part = _IS_BACKWARD[kind], _IS_BACKWARD_PART[kind]
    if not is_backward.any() or not is_part.any():
        return jobs
    is_part &= ~has_value(jobs["outer_id"])
    if not is_part.any():
        return jobs
    around = jobs.filter(pl.Series(is_backward)).select(
        "process_key",
        "start_ns",
        around_id="range_id",
        around_thread_key="thread_key",
        around_start_ns="start_ns",
        around_end_ns="end_ns",
    )
    parts = jobs.filter(pl.Series(is_part))
    outer_jobs = (
        parts.sort("start_ns")
        .join_asof(around.sort("start_ns"), on="start_ns", by="process_key", check_sortedness=False)
        .filter(pl.col("end_ns") <= pl.col("around_end_ns"))
        # equal ranges of one thread are nested already, maybe the other way round
        .filter(
            (pl.col("thread_key") != pl.col("around_thread_key"))
            | (pl.col("start_ns") > pl.col("around_start_ns"))
            | (pl.col("end_ns") < pl.col("around_end_ns"))
        )
    )
    nested = jobs.join(
        outer_jobs.select("range_id", "around_id"), on="range_id", how="left", maintain_order="left"
    )
    return nested.with_columns(outer_id=pl.coalesce("outer_id", "around_id")).drop("around_id")
