"""Phases: the ranges directly inside steps, where no range is a forward or a backward.

thread   [ iteration 7                                 )[ iteration 8 ...
           [ load )[ solve       )[ exchange )[ norm )     [ load ) ...
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import mark_categories, numbers
from nsys_pp.arrays.names import as_texts
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import conform_part
from nsys_pp.frames.training import JOB_KIND, SCHEDULED_KINDS
from nsys_pp.training.report.inner_jobs import find_parents
from nsys_pp.training.report.vocabulary import NAMED_JOBS

_IS_SCHEDULED = mark_categories(JOB_KIND, SCHEDULED_KINDS)
_LEAST_SHARE = 0.5  # of the steps, that contain a name
_MOST_PER_STEP = 64  # more ranges in a step are operators, not phases
_NUMBER = r"[0-9]+"


def find_phases(ranges: pl.DataFrame, step_ranges: pl.DataFrame, named_jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the phases of steps: ranges of the step's thread directly inside it, with a name that most steps have.

    Numbers in names do not distinguish them. If each step has a single phase, its own phases follow instead.

    Args:
        ranges: `RANGES`.
        step_ranges: `NAMED_STEPS`.
        named_jobs: `NAMED_JOBS`.

    Returns:
        `NAMED_JOBS` of kind "other", by range_id, without the ranges of `named_jobs`. Empty if a range is a forward or a
        backward, without steps, and for steps that contain more ranges than phases would be.
    """
    nothing = NAMED_JOBS.to_frame()
    if step_ranges.is_empty() or _IS_SCHEDULED[numbers(named_jobs["kind"])].any():
        return nothing
    threads = step_ranges["thread_key"].unique()
    own = ranges.filter(pl.col("thread_key").is_in(threads.implode()), pl.col("end_thread_key").is_null())
    range_id = own["range_id"].to_numpy()
    is_around = np.isin(range_id, step_ranges["range_id"].to_numpy())
    if not is_around.any():
        return nothing
    parent = find_parents(own, np.ones(len(own), dtype=np.bool_))
    is_phase = _list_inside(own, parent, is_around)
    if is_phase.sum() <= is_around.sum() and (inner := _list_inside(own, parent, is_phase)).any():
        is_phase = inner
    phases = own[np.flatnonzero(is_phase & ~np.isin(range_id, named_jobs["range_id"].to_numpy()))]
    return conform_part(phases.with_columns(kind=pl.lit("other")), NAMED_JOBS)


def _list_inside(ranges: pl.DataFrame, parent: Int64s, is_around: Bools) -> Bools:
    """Return the mask of the ranges directly inside some ranges, of names that most of these contain."""
    inside = np.flatnonzero((parent >= 0) & is_around[parent])
    around = parent[inside]
    is_phase = np.zeros(len(ranges), dtype=np.bool_)
    if len(inside) == 0 or len(inside) > _MOST_PER_STEP * is_around.sum():
        return is_phase
    folded = as_texts(ranges["name"][inside]).str.replace_all(_NUMBER, "0")
    counts = pl.DataFrame({"name": folded, "around": around}).with_columns(
        share=pl.col("around").n_unique().over("name") / int(is_around.sum())
    )
    is_phase[inside] = (counts["share"] >= _LEAST_SHARE).to_numpy()
    return is_phase
