"""Which micro-batch and which part of the model every job is about, as far as that can be known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.arrays.columns import is_among
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import RUN_JOBS
from nsys_pp.training.run.columns import as_whole_numbers, find_pairs, order_rows, whole_numbers
from nsys_pp.training.run.orders import (
    BACKWARD,
    BOTH,
    FORWARD,
    KINDS,
    WEIGHT_GRADIENT,
    Order,
    count_micro_batches,
    running_count,
)
from nsys_pp.training.run.schedule import LEAST_AGREEMENT, Fit, find_fits, is_as_good, tell_mismatch
from nsys_pp.training.run.sequences import Sequences, build_sequences


def resolve_jobs(
    lanes: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame, *, given: str | None = None
) -> tuple[pl.DataFrame, list[str]]:
    """Find the micro-batch, chunk and virtual stage of every job that ran on a GPU.

    What names say is kept. Chunk and virtual stage follow from each other. What names do not say is inferred
    where the jobs of a lane in a step stand in the order of a schedule: the n-th forward is then about the
    chunk that the schedule's n-th forward is about, and about the next micro-batch of that chunk; likewise
    backwards and weight gradients. Nothing is inferred in a step whose jobs are not all there and in that
    order, nor where several orders fit that would number the jobs differently. Recomputation is about what
    its backward is about, and jobs within forwards and backwards about what those are about.

    Args:
        lanes: `LANES`.
        steps: `RUN_STEPS`: which are complete.
        jobs: `JOBS` by lane, `step` being that of `RUN_STEPS`.
        given: Name of the schedule, if it is known.

    Returns:
        `RUN_JOBS` without labels, and sentences on what was inferred or refused. `confidence` is the share of
        the lane's jobs in that step that are where the schedule has them; orders between which nothing
        decides are refused, whatever their share.
    """
    known = _list_jobs(lanes, jobs)
    sequences = build_sequences(lanes, steps, known)
    fits = find_fits(sequences, given=given) if _needs_fit(sequences) else []
    best = fits[0] if fits and fits[0].is_good else None
    is_unique = best is not None and not _is_ambiguous(sequences, fits)
    found = _infer(sequences, best if is_unique else None)
    filled = _inherit(_fill(known, sequences, found))
    resolved = _add_virtual_stages(filled, _shape(found, best, given))
    return conform(resolved, RUN_JOBS), _describe(sequences, found, fits, is_unique=is_unique)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Ids of the jobs of `Sequences`, by their positions; -1 where unknown."""

    micro_batch: Int64s
    chunk: Int64s
    backward_micro_batch: Int64s
    backward_chunk: Int64s
    is_inferred: Bools
    confidence: npt.NDArray[np.float64]  # nan where nothing is inferred


def _list_jobs(lanes: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """List the jobs that ran on a GPU, numbered, with chunks that virtual stages tell."""
    has_run = jobs["start_ns"].is_not_null() & jobs["lane"].is_not_null()
    ran = _in_order(jobs if has_run.all() else jobs.filter(has_run))
    lane, job = whole_numbers(ran["lane"]), pl.Series("job", np.arange(len(ran), dtype=np.uint32))
    stage_of = np.full(int(lane.max(initial=-1)) + 1, -1)
    known = lanes.filter(pl.col("lane") < len(stage_of))
    stage_of[known["lane"].to_numpy()] = whole_numbers(known["stage"])
    chunk, backward_chunk = (
        pl.coalesce(f"{way}chunk", pl.col(f"{way}virtual_stage") // pl.col("_stages"))
        for way in ("", "backward_")
    )
    return ran.with_columns(
        job,
        _around(ran, lane),
        _stage=as_whole_numbers(stage_of[lane]),
        _stages=pl.lit(lanes["stage"]).max() + 1,
        is_inferred=pl.lit(False),
        confidence=pl.lit(None, pl.Float64),
        phase=pl.lit(None, pl.Int64),
        label=pl.lit(None, pl.String),
    ).with_columns(chunk=chunk, backward_chunk=backward_chunk)


def _in_order(jobs: pl.DataFrame) -> pl.DataFrame:
    """Sort jobs by lane, start_ns, host_start_ns and range_id; those of a lane are mostly in order of the last two."""
    lane, start = whole_numbers(jobs["lane"]), jobs["start_ns"].to_numpy()
    order = order_rows(lane, start)
    alike = np.flatnonzero((np.diff(lane[order]) == 0) & (np.diff(start[order]) == 0))
    host, id_ = (whole_numbers(jobs[name])[order] for name in ("host_start_ns", "range_id"))
    before, after = host[alike], host[alike + 1]
    if ((before > after) | ((before == after) & (id_[alike] > id_[alike + 1]))).any():
        return jobs.sort("lane", "start_ns", "host_start_ns", "range_id", maintain_order=True)
    ordered: pl.DataFrame = jobs[order]
    return ordered


def _around(ran: pl.DataFrame, lane: Int64s) -> pl.Series:
    """Find the job around each on its lane (`outer`)."""
    outer = np.full(len(ran), -1)
    nested = np.flatnonzero(ran["outer_id"].is_not_null().to_numpy())
    if len(nested):
        outer_id = whole_numbers(ran["outer_id"])
        outer[nested] = find_pairs(lane, whole_numbers(ran["range_id"]), lane[nested], outer_id[nested])
    return as_whole_numbers(outer, pl.UInt32).alias("outer")


def _needs_fit(sequences: Sequences) -> bool:
    """Whether names leave anything open: numbers, or how several chunks of a stage form the model."""
    is_both = sequences.kind == BOTH
    unknown = min(sequences.micro_batch.min(initial=0), sequences.chunk.min(initial=0))
    of_both = min(
        sequences.backward_micro_batch[is_both].min(initial=0),
        sequences.backward_chunk[is_both].min(initial=0),
    )
    return bool(min(unknown, of_both) < 0 or sequences.chunk.max(initial=0) > 0)


def _is_ambiguous(sequences: Sequences, fits: list[Fit]) -> bool:
    """Whether another schedule fits as well that would number the jobs differently."""
    best = fits[0]
    alike = [fit for fit in fits[1:] if is_as_good(fit, best)]
    if all(fit.candidate.chunks == best.candidate.chunks == 1 for fit in alike):
        return False
    chunks = _expected_chunks(sequences, best)
    return any((_expected_chunks(sequences, fit) != chunks).any() for fit in alike)


def _infer(sequences: Sequences, fit: Fit | None) -> _Found:
    """Complete the ids by the order of a schedule, in the groups that follow it."""
    is_both = sequences.kind == BOTH
    is_sound = np.zeros(len(is_both), np.bool_)
    confidence = np.full(len(is_both), np.nan)
    chunk, backward_chunk = sequences.chunk, sequences.backward_chunk
    if fit is not None:
        is_whole = sequences.forwards == fit.micro_batches * fit.candidate.chunks
        sound = is_whole & (sequences.backwards == sequences.forwards) & (fit.by_group >= LEAST_AGREEMENT)
        is_sound = sound[sequences.group]
        expected = np.where(is_sound, _expected_chunks(sequences, fit), -1)
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
    return _Found(
        micro_batch=numbers[0],
        chunk=chunk,
        backward_micro_batch=numbers[1],
        backward_chunk=backward_chunk,
        is_inferred=is_inferred,
        confidence=np.where(is_inferred, confidence, np.nan),
    )


def _has_one_chunk(sequences: Sequences) -> bool:
    """Whether every micro-batch comes once, and no name says of which chunk it is: there is but one."""
    if not len(sequences.kind) or max(sequences.chunk.max(), sequences.backward_chunk.max()) >= 0:
        return False
    numbers = sequences.micro_batch
    key = (sequences.group * len(KINDS) + sequences.kind) * (int(numbers.max()) + 1) + numbers
    return bool((numbers >= 0).all() and running_count(key).max() == 0)


def _expected_chunks(sequences: Sequences, fit: Fit) -> Int64s:
    """Say about which chunk each job should be, and the backward of each that is both; -1 where unknown.

    Forwards, backwards and weight gradients are counted apart: that a forward and a backward have changed
    places does no harm.
    """
    is_both = sequences.kind == BOTH
    if fit.candidate.chunks == 1:
        return np.stack([np.zeros(len(is_both), np.int64), np.where(is_both, 0, -1)])
    expected = np.full((2, len(is_both)), -1)
    for kind in (FORWARD, BACKWARD, WEIGHT_GRADIENT):
        jobs = np.flatnonzero((sequences.kind == kind) | (is_both & (kind != WEIGHT_GRADIENT)))
        streams = [_chunks_of(order, kind) for order in fit.orders]
        lengths = np.array([len(stream) for stream in streams])
        offsets = np.cumsum(lengths) - lengths
        order = fit.order[sequences.group[jobs]]
        rank = running_count(sequences.group[jobs])
        count = np.bincount(sequences.group[jobs], minlength=len(sequences.lane))[sequences.group[jobs]]
        is_there = (order >= 0) & (count == lengths[order])
        jobs, place = jobs[is_there], (offsets[order] + rank)[is_there]
        column = is_both[jobs].astype(np.int64) if kind == BACKWARD else 0
        expected[column, jobs] = np.concatenate(streams)[place]
    return expected


def _chunks_of(order: Order, kind: int) -> Int64s:
    """List the chunks of all forwards, of all backwards, or of all weight gradients of an order."""
    is_both = order.kind == BOTH
    if kind == BACKWARD:
        chunks, is_meant = (
            np.where(is_both, order.backward_chunk, order.chunk),
            is_both | (order.kind == kind),
        )
    else:
        chunks, is_meant = order.chunk, (order.kind == kind) | (is_both & (kind == FORWARD))
    found: Int64s = chunks[is_meant]
    return found


def _fill(known: pl.DataFrame, sequences: Sequences, found: _Found) -> pl.DataFrame:
    """Write what was found beside what names say."""
    written = {
        name: _written(known, sequences.row, getattr(found, name)) for name in ("chunk", "backward_chunk")
    }
    for name in ("micro_batch", "backward_micro_batch"):
        number = getattr(found, name)
        written[name] = _written(known, sequences.row, np.where(number >= 0, number + sequences.base, -1))
    is_inferred = np.zeros(len(known), np.bool_)
    is_inferred[sequences.row] = found.is_inferred
    confidence = np.full(len(known), np.nan)
    confidence[sequences.row] = found.confidence
    return known.with_columns(
        *(pl.coalesce(name, series) for name, series in written.items()),
        is_inferred=is_inferred,
        confidence=pl.Series(confidence).fill_nan(None),
    )


def _written(known: pl.DataFrame, row: Int64s, values: Int64s) -> pl.Series:
    """Spread values over all rows; null where there is none."""
    spread = np.full(len(known), -1)
    spread[row] = values
    return as_whole_numbers(spread)


def _inherit(jobs: pl.DataFrame) -> pl.DataFrame:
    """Give jobs within others the ids of the job around them, and recomputation those of its backward."""
    kind, outer = jobs["kind"], whole_numbers(jobs["outer"])
    takes = is_among(kind, ("forward", "backward", "weight_gradient", "recompute")) & (outer >= 0)
    of_backward = takes & ~is_among(kind, ("forward",))
    of_backward &= is_among(kind, ("forward_backward",))[outer]
    rows, around, second = np.flatnonzero(takes), outer[takes], of_backward[takes]
    inherited = []
    for name in ("micro_batch", "chunk"):
        values, of_both = whole_numbers(jobs[name]).copy(), whole_numbers(jobs[f"backward_{name}"])
        while True:
            offered = np.where(second, of_both[around], values[around])
            is_new = (values[rows] < 0) & (offered >= 0)
            if not is_new.any():
                break
            values[rows[is_new]] = offered[is_new]
        inherited.append(as_whole_numbers(values).alias(name))
    jobs = jobs.with_columns(inherited)
    return _inherit_from_next(jobs) if is_among(kind, ("recompute",)).any() else jobs


def _inherit_from_next(jobs: pl.DataFrame) -> pl.DataFrame:
    """Give recomputation that stands by itself the ids of the next backward, as far as that has any."""
    is_both = pl.col("kind") == "forward_backward"
    again = (pl.col("kind") == "recompute") & pl.col("micro_batch").is_null()
    unknown = -1  # so that a backward without ids is not passed over for the one after it
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
        pl.when(again).then(found).otherwise(name).alias(name) for name, found in following.items()
    )


def _add_virtual_stages(jobs: pl.DataFrame, shape: str) -> pl.DataFrame:
    """Place every chunk in the whole model; in a V, the second chunks stand in reverse order."""
    if shape == "":
        return jobs

    def place(chunk: str) -> pl.Expr:
        looped = pl.col(chunk) * pl.col("_stages") + pl.col("_stage")
        return (
            pl.when((pl.col(chunk) == 1) & (shape == "V"))
            .then(2 * pl.col("_stages") - 1 - pl.col("_stage"))
            .otherwise(looped)
        )

    return jobs.with_columns(
        virtual_stage=pl.coalesce("virtual_stage", place("chunk")),
        backward_virtual_stage=pl.coalesce("backward_virtual_stage", place("backward_chunk")),
    )


def _shape(found: _Found, best: Fit | None, given: str | None) -> str:
    """Say how the chunks of the stages form the model: "loop" or "V"; "" where unknown."""
    if max(found.chunk.max(initial=0), found.backward_chunk.max(initial=0)) == 0:
        return "loop"
    name = given or (best.candidate.name if best else "")
    return {"interleaved": "loop", "dualpipev": "V"}.get(name, "")


def _describe(sequences: Sequences, found: _Found, fits: list[Fit], *, is_unique: bool) -> list[str]:
    """Say what was inferred, and what could not be."""
    notes = []
    inferred = int(found.is_inferred.sum())
    if inferred:
        name = fits[0].candidate.name
        notes.append(
            f"the micro-batches or chunks of {inferred:,} jobs were inferred from their order, that of {name}"
        )
    unknown = int(((found.micro_batch < 0) | (found.chunk < 0)).sum())
    if unknown:
        notes.append(
            f"the micro-batches or chunks of {unknown:,} jobs are unknown: {_why_not(fits, is_unique)}"
        )
    return notes


def _why_not(fits: list[Fit], is_unique: bool) -> str:
    """Say why nothing could be inferred of some jobs."""
    if not fits:
        return "their number fits no schedule"
    best = fits[0]
    if not best.is_good:
        return f"their order is most like that of {best.candidate.name}, but {tell_mismatch(best)}"
    if not is_unique:
        return "several schedules have jobs in this order, and number them differently"
    return f"their steps are cut, or not in the order of {best.candidate.name}"
