"""Micro-batch, chunk and virtual stage of every job of a run, from names or from the order of a schedule."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import as_whole_numbers, index_rows, is_among, whole_numbers
from nsys_pp.arrays.order import order_rows
from nsys_pp.arrays.search import find_pairs
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import RUN_JOBS, SCHEDULED_KINDS
from nsys_pp.training.run.lanes import count_stages
from nsys_pp.training.run.orders import (
    BACKWARD,
    BOTH,
    FORWARD,
    WEIGHT_GRADIENT,
    Order,
    count_micro_batches,
    running_count,
)
from nsys_pp.training.run.schedule import LEAST_AGREEMENT, Fit, describe_mismatch, find_fits, is_as_good
from nsys_pp.training.run.sequences import Sequences, build_sequences


def resolve_jobs(
    lanes: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame, *, schedule_name: str | None = None
) -> tuple[pl.DataFrame, list[str]]:
    """Find the micro-batch, chunk and virtual stage of every job that ran on a GPU.

    Ids in names are kept; chunk and virtual stage are computed from each other. Other ids are inferred where the
    jobs of a lane in a step are in the order of a schedule: the n-th forward has the chunk of the schedule's n-th
    forward, and the next micro-batch of this chunk; likewise backwards and weight gradients. No ids are inferred in
    a step with missing jobs or in another order, or where several schedules fit but number the jobs differently.
    Groups of micro-batches of an interleaved schedule are assumed to have the usual size if this fits.
    Recomputation has the ids of its backward; jobs inside forwards and backwards have the ids of the outer job.

    Args:
        lanes: `LANES`.
        steps: `RUN_STEPS`, for `is_partial`.
        jobs: `LANE_JOBS`.
        schedule_name: Name of the schedule; None: recognised.

    Returns:
        `RUN_JOBS` without labels, and notes on inferred and refused ids. `confidence` is the share of the
        lane's jobs in the step at their positions in the schedule; equally good schedules are refused at any share.
    """
    listed = _list_jobs(lanes, jobs)
    sequences = build_sequences(lanes, steps, listed)
    fits = find_fits(sequences, schedule_name=schedule_name) if _needs_fit(sequences) else []
    best = fits[0] if fits and fits[0].is_good else None
    is_unique = best is not None and not _is_ambiguous(sequences, fits)
    ids = _infer(sequences, best if is_unique else None)
    filled = _copy_outer_ids(_add_ids(listed, sequences, ids))
    resolved = _add_virtual_stages(filled, _find_chunk_layout(ids, best, schedule_name))
    return conform(resolved, RUN_JOBS), _describe(sequences, ids, fits, is_unique=is_unique)


class _Ids(Struct, frozen=True, kw_only=True):
    """Ids of the jobs of `Sequences`, in their order; -1 where unknown."""

    micro_batch: Int64s
    chunk: Int64s
    backward_micro_batch: Int64s
    backward_chunk: Int64s
    is_inferred: Bools
    confidence: npt.NDArray[np.float64]  # nan where nothing is inferred


def _list_jobs(lanes: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """List the jobs that ran on a GPU, numbered, with chunks from virtual stages."""
    has_run = jobs["start_ns"].is_not_null() & jobs["lane"].is_not_null()
    ran = _sort_jobs(jobs if has_run.all() else jobs.filter(has_run))
    lane, job = whole_numbers(ran["lane"]), pl.Series("job", np.arange(len(ran), dtype=np.uint32))
    stage_of = np.full(int(lane.max(initial=-1)) + 1, -1)
    used = lanes.filter(pl.col("lane") < len(stage_of))
    stage_of[used["lane"].to_numpy()] = whole_numbers(used["stage"])
    chunk, backward_chunk = (
        pl.coalesce(f"{way}chunk", pl.col(f"{way}virtual_stage") // pl.col("_stages"))
        for way in ("", "backward_")
    )
    return ran.with_columns(
        job,
        _find_outer_jobs(ran, lane),
        _stage=as_whole_numbers(stage_of[lane]),
        _stages=pl.lit(count_stages(lanes) or None, pl.Int64),
        is_inferred=pl.lit(False),
        confidence=pl.lit(None, pl.Float64),
        phase=pl.lit(None, pl.Int64),
        label=pl.lit(None, pl.String),
    ).with_columns(chunk=chunk, backward_chunk=backward_chunk)


def _sort_jobs(jobs: pl.DataFrame) -> pl.DataFrame:
    """Sort jobs by lane, start_ns, host_start_ns and range_id; jobs of a lane are mostly sorted by the last two."""
    lane, start = whole_numbers(jobs["lane"]), jobs["start_ns"].to_numpy()
    order = order_rows(lane, start)
    alike = np.flatnonzero((np.diff(lane[order]) == 0) & (np.diff(start[order]) == 0))
    host, id_ = (whole_numbers(jobs[name])[order] for name in ("host_start_ns", "range_id"))
    before, after = host[alike], host[alike + 1]
    if ((before > after) | ((before == after) & (id_[alike] > id_[alike + 1]))).any():
        return jobs.sort("lane", "start_ns", "host_start_ns", "range_id", maintain_order=True)
    return index_rows(jobs, order)


def _find_outer_jobs(ran: pl.DataFrame, lane: Int64s) -> pl.Series:
    """Find the job around each job on its lane (`outer`)."""
    outer = np.full(len(ran), -1)
    nested = np.flatnonzero(ran["outer_id"].is_not_null().to_numpy())
    if len(nested):
        outer_id = whole_numbers(ran["outer_id"])
        outer[nested] = find_pairs(lane, whole_numbers(ran["range_id"]), lane[nested], outer_id[nested])
    return as_whole_numbers(outer, pl.UInt32).alias("outer")


def _needs_fit(sequences: Sequences) -> bool:
    """Return whether a schedule is needed for ids: micro-batches or chunks are unknown, or there are several chunks."""
    is_both = sequences.kind == BOTH
    unknown = min(sequences.micro_batch.min(initial=0), sequences.chunk.min(initial=0))
    of_both = min(
        sequences.backward_micro_batch[is_both].min(initial=0),
        sequences.backward_chunk[is_both].min(initial=0),
    )
    return bool(min(unknown, of_both) < 0 or sequences.chunk.max(initial=0) > 0)


def _is_ambiguous(sequences: Sequences, fits: list[Fit]) -> bool:
    """Return whether an equally good schedule numbers the jobs differently."""
    best = fits[0]
    alike = [fit for fit in fits[1:] if is_as_good(fit, best)]
    if all(fit.candidate.chunks == best.candidate.chunks == 1 for fit in alike):
        return False
    chunks = _find_expected_chunks(sequences, best)
    return any((_find_expected_chunks(sequences, fit) != chunks).any() for fit in alike)


def _infer(sequences: Sequences, fit: Fit | None) -> _Ids:
    """Infer missing ids from the order of a schedule, in the groups that follow it."""
    is_both = sequences.kind == BOTH
    is_sound = np.zeros(len(is_both), np.bool_)
    confidence = np.full(len(is_both), np.nan)
    chunk, backward_chunk = sequences.chunk, sequences.backward_chunk
    if fit is not None:
        is_whole = sequences.forwards == fit.micro_batches * fit.candidate.chunks
        sound = is_whole & (sequences.backwards == sequences.forwards) & (fit.by_group >= LEAST_AGREEMENT)
        if not sequences.is_complete.any():  # a capture may have cut off as many jobs of each step
            sound[:] = False
        is_sound = sound[sequences.group]
        expected = np.where(is_sound, _find_expected_chunks(sequences, fit), -1)
        chunk = np.where(chunk < 0, expected[0], chunk)
        backward_chunk = np.where(is_both & (backward_chunk < 0), expected[1], backward_chunk)
        confidence = fit.by_group[sequences.group]
    if _has_one_chunk(sequences):
        chunk, backward_chunk = np.zeros_like(chunk), np.where(is_both, 0, -1)
    counted = count_micro_batches(sequences.kind, chunk, backward_chunk, sequences.group)
    numbers = [
        np.where((named < 0) & is_sound & (of_chunk >= 0) & (number >= 0), number, named)
        for named, number, of_chunk in (
            (sequences.micro_batch, counted[0], chunk),
            (sequences.backward_micro_batch, counted[1], backward_chunk),
        )
    ]
    is_inferred = (numbers[0] != sequences.micro_batch) | (numbers[1] != sequences.backward_micro_batch)
    if fit is not None and fit.candidate.chunks > 1:
        is_inferred |= (chunk != sequences.chunk) | (backward_chunk != sequences.backward_chunk)
    return _Ids(
        micro_batch=numbers[0],
        chunk=chunk,
        backward_micro_batch=numbers[1],
        backward_chunk=backward_chunk,
        is_inferred=is_inferred,
        confidence=np.where(is_inferred, confidence, np.nan),
    )


def _has_one_chunk(sequences: Sequences) -> bool:
    """Return whether there is one chunk: no name has a chunk, and every micro-batch occurs once."""
    if not len(sequences.kind) or max(sequences.chunk.max(), sequences.backward_chunk.max()) >= 0:
        return False
    numbers = sequences.micro_batch
    key = (sequences.group * len(SCHEDULED_KINDS) + sequences.kind) * (int(numbers.max()) + 1) + numbers
    return bool((numbers >= 0).all() and running_count(key).max() == 0)


def _find_expected_chunks(sequences: Sequences, fit: Fit) -> Int64s:
    """Return the expected chunk of each job, and of the backward of each combined job; -1 where unknown.

    Forwards, backwards and weight gradients are counted separately, so that a forward swapped with a backward
    changes no chunk.
    """
    is_both = sequences.kind == BOTH
    if fit.candidate.chunks == 1:
        return np.stack([np.zeros(len(is_both), np.int64), np.where(is_both, 0, -1)])
    expected = np.full((2, len(is_both)), -1)
    for kind in (FORWARD, BACKWARD, WEIGHT_GRADIENT):
        jobs = np.flatnonzero((sequences.kind == kind) | (is_both & (kind != WEIGHT_GRADIENT)))
        streams = [_list_chunks(order, kind) for order in fit.orders]
        lengths = np.array([len(stream) for stream in streams])
        offsets = np.cumsum(lengths) - lengths
        order = fit.order[sequences.group[jobs]]
        rank = running_count(sequences.group[jobs])
        count = np.bincount(sequences.group[jobs], minlength=len(sequences.lane))[sequences.group[jobs]]
        is_placed = (order >= 0) & (count == lengths[order])
        jobs, position = jobs[is_placed], (offsets[order] + rank)[is_placed]
        column = is_both[jobs].astype(np.int64) if kind == BACKWARD else 0
        expected[column, jobs] = np.concatenate(streams)[position]
    return expected


def _list_chunks(order: Order, kind: int) -> Int64s:
    """List the chunks of the jobs of one kind in an order."""
    is_both = order.kind == BOTH
    if kind == BACKWARD:
        chunks, is_selected = (
            np.where(is_both, order.backward_chunk, order.chunk),
            is_both | (order.kind == kind),
        )
    else:
        chunks, is_selected = order.chunk, (order.kind == kind) | (is_both & (kind == FORWARD))
    selected: Int64s = chunks[is_selected]
    return selected


def _add_ids(jobs: pl.DataFrame, sequences: Sequences, ids: _Ids) -> pl.DataFrame:
    """Add the inferred ids to the jobs; ids in names are kept."""
    written = {
        name: _scatter(jobs, sequences.row, getattr(ids, name)) for name in ("chunk", "backward_chunk")
    }
    for name in ("micro_batch", "backward_micro_batch"):
        number = getattr(ids, name)
        written[name] = _scatter(jobs, sequences.row, np.where(number >= 0, number + sequences.base, -1))
    is_inferred = np.zeros(len(jobs), np.bool_)
    is_inferred[sequences.row] = ids.is_inferred
    confidence = np.full(len(jobs), np.nan)
    confidence[sequences.row] = ids.confidence
    return jobs.with_columns(
        *(pl.coalesce(name, series) for name, series in written.items()),
        is_inferred=is_inferred,
        confidence=pl.Series(confidence).fill_nan(None),
    )


def _scatter(jobs: pl.DataFrame, row: Int64s, values: Int64s) -> pl.Series:
    """Scatter values to all rows; null without a value."""
    scattered = np.full(len(jobs), -1)
    scattered[row] = values
    return as_whole_numbers(scattered)


def _copy_outer_ids(jobs: pl.DataFrame) -> pl.DataFrame:
    """Copy ids from outer jobs to inner jobs, and from backwards to recomputation."""
    kind, outer = jobs["kind"], whole_numbers(jobs["outer"])
    is_inner = is_among(kind, ("forward", "backward", "weight_gradient", "recompute")) & (outer >= 0)
    of_backward = is_inner & ~is_among(kind, ("forward",))
    of_backward &= is_among(kind, ("forward_backward",))[outer]
    rows, around, second = np.flatnonzero(is_inner), outer[is_inner], of_backward[is_inner]
    inherited = []
    for name in ("micro_batch", "chunk"):
        values, of_both = whole_numbers(jobs[name]).copy(), whole_numbers(jobs[f"backward_{name}"])
        while True:
            candidates = np.where(second, of_both[around], values[around])
            is_new = (values[rows] < 0) & (candidates >= 0)
            if not is_new.any():
                break
            values[rows[is_new]] = candidates[is_new]
        inherited.append(as_whole_numbers(values).alias(name))
    jobs = jobs.with_columns(inherited)
    return _copy_backward_ids(jobs) if is_among(kind, ("recompute",)).any() else jobs


def _copy_backward_ids(jobs: pl.DataFrame) -> pl.DataFrame:
    """Copy ids from the next backward to recomputation without an outer job."""
    is_both = pl.col("kind") == "forward_backward"
    is_unknown = (pl.col("kind") == "recompute") & pl.col("micro_batch").is_null()
    unknown = -1  # a value, not null: fill_null must not replace it by the ids of a later backward
    following = {
        name: pl.when(is_both)
        .then(pl.col(f"backward_{name}").fill_null(unknown))
        .when(pl.col("kind") == "backward")
        .then(pl.col(name).fill_null(unknown))
        .fill_null(strategy="backward")
        .over("lane", "step")
        .replace(unknown, None)
        for name in ("micro_batch", "chunk")
    }
    return jobs.with_columns(
        pl.when(is_unknown).then(values).otherwise(name).alias(name) for name, values in following.items()
    )


def _add_virtual_stages(jobs: pl.DataFrame, shape: str) -> pl.DataFrame:
    """Compute virtual stages from chunks; in a V (DualPipeV), the second chunks run back from the last stage."""
    if shape == "":
        return jobs

    def to_virtual_stage(chunk: str) -> pl.Expr:
        looped = pl.col(chunk) * pl.col("_stages") + pl.col("_stage")
        return (
            pl.when((pl.col(chunk) == 1) & (shape == "V"))
            .then(2 * pl.col("_stages") - 1 - pl.col("_stage"))
            .otherwise(looped)
        )

    return jobs.with_columns(
        virtual_stage=pl.coalesce("virtual_stage", to_virtual_stage("chunk")),
        backward_virtual_stage=pl.coalesce("backward_virtual_stage", to_virtual_stage("backward_chunk")),
    )


def _find_chunk_layout(ids: _Ids, best: Fit | None, schedule_name: str | None) -> str:
    """Return the layout of the chunks along the stages: "loop" or "V"; "" where unknown."""
    if max(ids.chunk.max(initial=0), ids.backward_chunk.max(initial=0)) == 0:
        return "loop"
    name = schedule_name or (best.candidate.name if best else "")
    return {"interleaved": "loop", "dualpipev": "V"}.get(name, "")


def _describe(sequences: Sequences, ids: _Ids, fits: list[Fit], *, is_unique: bool) -> list[str]:
    """Format notes on the inferred and the unknown ids."""
    notes = []
    inferred = int(ids.is_inferred.sum())
    if inferred:
        name = fits[0].candidate.name
        notes.append(
            f"the micro-batches or chunks of {inferred:,} jobs were inferred from their order, that of {name}"
        )
    unknown = int(((ids.micro_batch < 0) | (ids.chunk < 0)).sum())
    if unknown:
        notes.append(
            f"the micro-batches or chunks of {unknown:,} jobs are unknown: {_explain_refusal(fits, is_unique)}"
        )
    return notes


def _explain_refusal(fits: list[Fit], is_unique: bool) -> str:
    """Return the reason for unknown ids."""
    if not fits:
        return "their number fits no schedule"
    best = fits[0]
    if not best.is_good:
        return f"their order is most like that of {best.candidate.name}, but {describe_mismatch(best)}"
    if not is_unique:
        return "several schedules have jobs in this order, and number them differently"
    return f"their steps are cut, or not in the order of {best.candidate.name}"
