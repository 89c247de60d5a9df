"""Jobs within jobs: which one is around each, and which say nothing new."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.arrays.ancestors import has_marked_line
from nsys_pp.arrays.columns import NEVER, as_numbers, is_among
from nsys_pp.frames.training import MESSAGE_KINDS

Int64s = npt.NDArray[np.int64]

_BACKWARDS = ("backward", "forward_backward")
_OFTEN_ELSEWHERE = ("recompute", "weight_gradient")  # what threads of their own do for a backward


def place_inner_jobs(jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the job around each job, and leave out those that say nothing new.

    Around a job is what is so on its thread; around a part of a backward that another thread does (as
    PyTorch's autograd), where nothing is, the last backward of its process that holds it. Ranges that end on
    another thread stand alone, and so does the loading of data, which may go on beside all else.

    Args:
        jobs: Columns of `RANGES`, but `kind` of `JOB_KINDS`; in order of range_id.

    Returns:
        The jobs in the same order, with `outer_id`, without those directly in one of the same kind
        (of kind "other": and of the same name) and those within sends and receives.
    """
    if jobs.is_empty():
        return jobs.with_columns(outer_id=pl.lit(None, pl.Int64))
    parent = _find_parents(jobs)
    kind = jobs["kind"].to_physical().to_numpy()
    name = jobs["name"].to_physical().to_numpy()
    is_inner = parent >= 0
    says_it_again = is_inner & (kind[parent] == kind)
    says_it_again &= ~is_among(jobs["kind"], ("other",)) | (name[parent] == name)
    in_message = is_inner & has_marked_line(parent, is_among(jobs["kind"], MESSAGE_KINDS))[parent]
    is_dropped = says_it_again | in_message

    outer = parent.copy()
    rows = np.flatnonzero(is_inner)
    while len(rows := rows[(outer[rows] >= 0) & is_dropped[outer[rows]]]):
        outer[rows] = parent[outer[rows]]
    range_id = jobs["range_id"].to_numpy()
    outer_id = as_numbers("outer_id", np.where(outer >= 0, range_id[outer], NEVER))
    kept = jobs.hstack([outer_id])[np.flatnonzero(~is_dropped)]
    return _place_parts_of_backwards(kept)


def _find_parents(jobs: pl.DataFrame) -> Int64s:
    """Row of the innermost job around each, among those of its thread; -1 where there is none.

    In order of thread, start and longest first, that is the nearest row before that does not end before it.
    """
    stands = jobs["end_thread_key"].is_null().to_numpy() & ~is_among(jobs["kind"], ("data",))
    row = np.flatnonzero(stands)
    thread, start, end = (jobs[name].to_numpy()[row] for name in ("thread_key", "start_ns", "end_ns"))
    order = np.lexsort((-end, start, thread))
    row, thread, end = row[order], thread[order], end[order]
    above = np.arange(len(order)) - 1
    pending = np.arange(len(order))
    while len(pending):
        at = above[pending]
        above[pending] = np.where((at >= 0) & (thread[at] == thread[pending]), at, -1)
        pending = pending[above[pending] >= 0]
        pending = pending[end[above[pending]] < end[pending]]
        above[pending] = above[above[pending]]
    parent = np.full(len(jobs), -1, dtype=np.int64)
    parent[row] = np.where(above >= 0, row[above], -1)
    return parent


def _place_parts_of_backwards(jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the backwards around what other threads do for them."""
    holds = is_among(jobs["kind"], _BACKWARDS)
    is_without_calls = is_among(jobs["kind"], _OFTEN_ELSEWHERE) & jobs["outer_id"].is_null().to_numpy()
    if not holds.any() or not is_without_calls.any():
        return jobs
    around = jobs.filter(pl.Series(holds)).select(
        "process_key", "start_ns", around_id="range_id", around_end_ns="end_ns"
    )
    without_calls = jobs.filter(pl.Series(is_without_calls))
    found = (
        without_calls.sort("start_ns")
        .join_asof(around.sort("start_ns"), on="start_ns", by="process_key", check_sortedness=False)
        .filter(pl.col("end_ns") <= pl.col("around_end_ns"))
    )
    placed = jobs.join(
        found.select("range_id", "around_id"), on="range_id", how="left", maintain_order="left"
    )
    return placed.with_columns(outer_id=pl.coalesce("outer_id", "around_id")).drop("around_id")
