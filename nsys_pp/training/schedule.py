"""The schedule of a pipeline: orders of jobs compared with known ones, ids and labels of jobs, and doubts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.columns import (
    as_whole_numbers,
    find_distinct,
    is_among,
    numbers,
    pack,
    whole_numbers,
)
from nsys_pp.arrays.intervals import has_marked_line, intersect, unite
from nsys_pp.arrays.search import order_rows
from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import (
    JOB_KINDS,
    MESSAGE_KINDS,
    RUN_JOBS,
    RUN_STEPS,
    SCHEDULED_KINDS,
    Schedule,
    mark_split_backwards,
)
from nsys_pp.options import SCHEDULES
from nsys_pp.training.lanes import count_stages
from nsys_pp.training.orders import (
    BACKWARD,
    BOTH,
    FORWARD,
    WEIGHT_GRADIENT,
    Order,
    count_micro_batches,
    order_jobs,
    running_count,
)

_IDS = ("micro_batch", "chunk", "backward_micro_batch", "backward_chunk")


class Sequences(Struct, frozen=True, kw_only=True):
    """Jobs by group and time. A group is one step (of one role) on one lane. Unknown ids are -1.

    Attributes:
        row: Row of the frame of jobs.
        kind: Index of `SCHEDULED_KINDS`.
        group: Number of the group, from 0.
        base: Least micro-batch of the step, which is subtracted from `micro_batch` and
            `backward_micro_batch`.
        micro_batch: Micro-batch, from 0 in each step.
        chunk: Chunk.
        backward_micro_batch: Micro-batch of the backward of a combined job.
        backward_chunk: Chunk of the backward of a combined job.
        position: Position among the jobs of the group that are not weight gradients; -1 for weight gradients.
        weight_rank: Position among the weight gradients of the group; -1 for other jobs.
        backwards_before: Number of earlier backwards of the group.
        lane: Lane of each group; all attributes below are per group as well, except `stages`.
        step: Number of the pair of step and role, from 0; not the number of the step.
        stage: Stage; 0 where the stages of all lanes are unknown.
        forwards: Number of forwards.
        backwards: Number of backwards.
        weights: Number of weight gradients.
        is_complete: Whether the step is not cut, and has backwards.
        stages: Number of stages of the pipeline; 0 where the stages of all lanes are unknown.
    """

    row: Int64s
    kind: Int64s
    group: Int64s
    base: Int64s
    micro_batch: Int64s
    chunk: Int64s
    backward_micro_batch: Int64s
    backward_chunk: Int64s
    position: Int64s
    weight_rank: Int64s
    backwards_before: Int64s
    lane: Int64s
    step: Int64s
    stage: Int64s
    forwards: Int64s
    backwards: Int64s
    weights: Int64s
    is_complete: Bools
    stages: int

    @property
    def is_weight(self) -> Bools:
        """Mask of the weight gradients: a schedule may delay them."""
        is_weight: Bools = self.kind == WEIGHT_GRADIENT
        return is_weight


def mark_top_level(jobs: pl.DataFrame, kinds: Sequence[str] = SCHEDULED_KINDS) -> Bools:
    """Return the mask of jobs of the kinds that are not inside a job of these kinds, or recomputation.

    Args:
        jobs: All `RUN_JOBS`: `outer` is a row of the frame.
        kinds: Kinds of jobs. Default: the kinds that schedules order.
    """
    outer = whole_numbers(jobs["outer"])
    top_level = is_among(jobs["kind"], kinds)
    nested = np.flatnonzero(outer >= 0)
    if len(nested):
        is_work = is_among(jobs["kind"], (*kinds, "recompute"))
        top_level[nested] &= ~has_marked_line(outer, is_work)[outer[nested]]
    return top_level


def build_sequences(lanes: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame) -> Sequences:
    """Sort the jobs of all lanes into sequences, by the start of their compute.

    Jobs outside all steps and jobs inside others are left out.

    Args:
        lanes: `LANES`.
        steps: `RUN_STEPS`.
        jobs: All `RUN_JOBS`.
    """
    rows = np.flatnonzero(mark_top_level(jobs) & jobs["step"].is_not_null().to_numpy())
    lane = whole_numbers(jobs["lane"])[rows]
    step, number = _number_steps(jobs, rows)
    computes = jobs["compute_start_ns"].is_not_null()
    at_ns = whole_numbers(jobs["compute_start_ns"].zip_with(computes, jobs["start_ns"]))[rows]
    order = order_rows(lane * (int(step.max(initial=0)) + 1) + step, at_ns)
    rows, lane, step, number = rows[order], lane[order], step[order], number[order]
    ids = {name: whole_numbers(jobs[name])[rows] for name in _IDS}
    code = {name: index for index, name in enumerate(SCHEDULED_KINDS)}
    kind = np.array([code.get(name, -1) for name in JOB_KINDS])[whole_numbers(jobs["kind"])[rows]]
    is_first = np.ones(len(lane), np.bool_)
    is_first[1:] = (lane[1:] != lane[:-1]) | (step[1:] != step[:-1])
    group = np.cumsum(is_first) - 1
    base = _find_bases([ids["micro_batch"], ids["backward_micro_batch"]], step)
    is_weight, is_backward = kind == WEIGHT_GRADIENT, (kind == BACKWARD) | (kind == BOTH)
    rank = running_count(2 * group + is_weight)
    groups = pl.DataFrame({"lane": lane[is_first], "step": step[is_first], "number": number[is_first]})
    count = len(groups)
    backwards = np.bincount(group, is_backward, count).astype(np.int64)
    stages = count_stages(lanes)
    stage, is_partial = _look_up(lanes, steps, groups)
    return Sequences(
        row=rows,
        kind=kind,
        group=group,
        base=base,
        micro_batch=_subtract(ids["micro_batch"], base),
        chunk=ids["chunk"],
        backward_micro_batch=_subtract(ids["backward_micro_batch"], base),
        backward_chunk=ids["backward_chunk"],
        position=np.where(is_weight, -1, rank),
        weight_rank=np.where(is_weight, rank, -1),
        backwards_before=_count_before(is_backward, group, is_first),
        lane=groups["lane"].to_numpy(),
        step=groups["step"].to_numpy(),
        stage=stage if stages else np.zeros_like(stage),
        forwards=np.bincount(group, (kind == FORWARD) | (kind == BOTH), count).astype(np.int64),
        backwards=backwards,
        weights=np.bincount(group, is_weight, count).astype(np.int64),
        is_complete=~is_partial & (backwards > 0),
        stages=stages,
    )


def _number_steps(jobs: pl.DataFrame, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Number the pairs of step and role of the rows; return the numbers of pairs and of steps."""
    number, role = whole_numbers(jobs["step"])[rows], jobs["role"]
    _, step = find_distinct(number)
    if role.null_count() < len(role):
        rank = numbers(role.rank("dense"), null=0)[rows]
        _, step = find_distinct(step * (int(rank.max(initial=0)) + 1) + rank)
    return step, number


def _find_bases(numbers: list[Int64s], step: Int64s) -> Int64s:
    """Find the least micro-batch of each row's step: some programs continue counting from step to step."""
    unknown = np.iinfo(np.int64).max
    least = np.full(int(step.max(initial=-1)) + 1, unknown)
    for number in numbers:
        np.minimum.at(least, step[number >= 0], number[number >= 0])
    bases: Int64s = np.where(least == unknown, 0, least)[step]
    return bases


def _subtract(number: Int64s, base: Int64s) -> Int64s:
    return np.where(number >= 0, number - base, -1)


def _count_before(marked: Bools, group: Int64s, is_first: Bools) -> Int64s:
    """Count the earlier marked jobs of the group for each job."""
    before: Int64s = np.cumsum(marked) - marked
    counted: Int64s = before - before[is_first][group]
    return counted


def _look_up(lanes: pl.DataFrame, steps: pl.DataFrame, groups: pl.DataFrame) -> tuple[Int64s, Bools]:
    """Find the stage of each group, -1 where unknown, and the mask of groups in partial steps."""
    lane = pl.col("lane").cast(pl.Int64)
    joined = groups.join(lanes.select(lane, "stage"), on="lane", how="left", maintain_order="left").join(
        steps.select(lane, "is_partial", number="step"),
        on=["lane", "number"],
        how="left",
        maintain_order="left",
    )
    return joined["stage"].fill_null(-1).to_numpy(), joined["is_partial"].fill_null(True).to_numpy()


LEAST_AGREEMENT = 0.95
"""Least share of jobs at their positions in a schedule, and of steps with the warm-up of the schedule.

One job in twenty may be out of order, as where a capture lost events. Two different schedules agree in fewer
jobs, or differ in their warm-up (as 1F1B and interleaved 1F1B of many micro-batches).
"""
_MOST_CHUNKS = 16  # largest number of chunks tried, where names have no chunks
_MOST_GROUPS = 16  # number of group sizes tried


class Candidate(Struct, frozen=True, kw_only=True):
    """Schedule to compare with the jobs."""

    name: str
    chunks: int
    group: int | None = None  # micro-batches of a group, as for `order_jobs`; None: the usual size


class Fit(Struct, frozen=True, kw_only=True):
    """Agreement of a schedule with the jobs.

    Attributes:
        candidate: The schedule.
        agreement: Share of the jobs of complete steps at their positions in the schedule.
        warm_up: Share of these steps with as many forwards in the warm-up as the schedule.
        by_group: Agreement of each group of `Sequences` (one step on one lane).
        micro_batches: Number of micro-batches of each group.
        orders: The distinct orders of the groups.
        order: Index in `orders` for each group; -1 without an order.
    """

    candidate: Candidate
    agreement: float
    warm_up: float
    by_group: Floats
    micro_batches: Int64s
    orders: list[Order]
    order: Int64s

    @property
    def is_good(self) -> bool:
        """Whether the jobs follow the schedule."""
        return min(self.agreement, self.warm_up) >= LEAST_AGREEMENT


def recognise_schedule(
    lanes: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame, *, schedule_name: str | None = None
) -> Schedule:
    """Recognise the schedule of the jobs.

    The jobs of every lane in every complete step are compared, position by position, with the jobs of its
    stage in each schedule: kind, and micro-batch and chunk where they are known. The n-th weight gradient may
    be anywhere after the n-th backward, since zero-bubble schedules move weight gradients into bubbles.
    Recomputation is part of its backward.

    Args:
        lanes: `LANES`.
        steps: `RUN_STEPS`, for `is_partial`.
        jobs: All `RUN_JOBS`.
        schedule_name: Name of the schedule, to compute only its agreement; None: recognised.

    Returns:
        The schedule; "unknown" with a reason where no schedule or several schedules fit. The numbers of
        chunks and micro-batches are 0 where several of them fit equally well: with 6 interleaved stages, 15
        micro-batches in 4 chunks have the same order as 12 micro-batches in 5 chunks.

    Raises:
        ValueError: The name of the schedule is unknown.
    """
    if schedule_name is not None and schedule_name not in SCHEDULES:
        raise ValueError(f"unknown schedule {schedule_name!r}; expected one of {', '.join(SCHEDULES)}")
    sequences = build_sequences(lanes, steps, jobs)
    fits = find_fits(sequences, schedule_name=schedule_name) if sequences.is_complete.any() else []
    reason = "" if schedule_name else _explain_unknown(sequences, fits)
    best = fits[0] if fits and not reason else None
    alike = [fit for fit in fits if best is not None and is_as_good(fit, best)]
    chunk_counts = {fit.candidate.chunks for fit in alike} or {
        max(int(sequences.chunk.max(initial=-1)) + 1, 1)
    }
    chunks = chunk_counts.pop() if len(chunk_counts) == 1 else 0
    if not chunks:
        micro_batches = 0
    elif best is not None:
        micro_batches = _most_common(best.micro_batches[sequences.is_complete])
    else:
        micro_batches = _count_micro_batches(sequences, chunks)
    return Schedule(
        name=schedule_name or (best.candidate.name if best else "unknown"),
        source="given" if schedule_name else "recognised" if best else "",
        stage_count=sequences.stages,
        micro_batch_count=micro_batches,
        chunk_count=chunks,
        agreement=fits[0].agreement if fits else 0.0,
        reason=reason,
    )


def _count_micro_batches(sequences: Sequences, chunks: int) -> int:
    """Count the micro-batches of a complete step without a schedule: by ids, else by forwards.

    0 where unknown.
    """
    is_forward = (sequences.kind == FORWARD) | (sequences.kind == BOTH)
    is_forward &= sequences.is_complete[sequences.group]
    numbers, group = sequences.micro_batch[is_forward], sequences.group[is_forward]
    if len(numbers) and (numbers >= 0).all():
        most = int(numbers.max()) + 1
        distinct = np.unique(group * most + numbers)
        return _most_common(np.unique(distinct // most, return_counts=True)[1])
    forwards = _most_common(sequences.forwards[sequences.is_complete])
    return forwards // chunks if forwards % chunks == 0 else 0


def _explain_unknown(sequences: Sequences, fits: list[Fit]) -> str:
    """Return the reason for an unknown schedule; empty where it is known."""
    missing = [
        kind
        for kind, counts in (("forwards", sequences.forwards), ("backwards", sequences.backwards))
        if not counts.any()
    ]
    if missing:
        return f"there are no {' and '.join(missing)} within steps"
    if not sequences.stages:
        return "the stages of the GPUs are unknown"
    if sequences.stages == 1:
        return "there is one stage: no pipeline"
    if not sequences.is_complete.any():
        return "no step is complete"
    if not fits:
        return "the number of jobs fits no schedule"
    best = fits[0]
    if not best.is_good:
        return f"the order of jobs is most like {best.candidate.name}, but {describe_mismatch(best)}"
    names = sorted({fit.candidate.name for fit in fits if is_as_good(fit, best)})
    return "" if len(names) == 1 else f"the jobs would be in this order under {' and '.join(names)} alike"


def describe_mismatch(fit: Fit) -> str:
    """Format the mismatch of a fit that is not good."""
    if fit.agreement < LEAST_AGREEMENT:
        return f"only {fit.agreement:.0%} agree"
    return f"{1 - fit.warm_up:.0%} of steps have another warm-up"


def is_as_good(fit: Fit, best: Fit) -> bool:
    """Return whether a fit is at least as good as the best one."""
    return fit.agreement >= best.agreement and fit.warm_up >= best.warm_up


def find_fits(sequences: Sequences, *, schedule_name: str | None = None) -> list[Fit]:
    """Compare the jobs with every possible schedule; the best fit first.

    Interleaved schedules with groups of unusual sizes are tried only if no other schedule fits. Incomplete
    steps are compared only if no step is complete.
    """
    is_counted = sequences.is_complete
    if not is_counted.any():
        is_counted = sequences.backwards > 0
    forwards = _count_expected_forwards(sequences, is_counted)
    candidates = list(_list_candidates(sequences, forwards[is_counted], schedule_name))
    fits: list[Fit] = []
    for is_usual in (True, False):
        tried = [candidate for candidate in candidates if (candidate.group is None) == is_usual]
        possible = [_fit(candidate, sequences, forwards, is_counted) for candidate in tried]
        fits += [fit for fit in possible if fit is not None]
        fits.sort(key=lambda fit: (-fit.agreement, -fit.warm_up))
        if fits and fits[0].is_good:
            break
    return fits


def _count_expected_forwards(sequences: Sequences, is_counted: npt.NDArray[np.bool_]) -> Int64s:
    """Return the expected number of forwards of each group.

    The most common in its step, or else in all steps.
    """
    groups = pl.DataFrame({"step": sequences.step, "forwards": sequences.forwards})
    common = (
        groups.filter(pl.Series(is_counted))
        .group_by("step", "forwards")
        .len()
        .sort("step", "len", "forwards", descending=[False, True, True])
        .unique("step", keep="first", maintain_order=True)
    )
    of_all = _most_common(sequences.forwards[is_counted])
    of_step = groups.select("step").join(common, on="step", how="left", maintain_order="left")["forwards"]
    return of_step.fill_null(of_all).to_numpy()


def _list_candidates(
    sequences: Sequences, forwards: Int64s, schedule_name: str | None
) -> Iterator[Candidate]:
    """List the possible schedules, by the numbers of chunks and micro-batches."""
    has_weights = bool((sequences.kind == WEIGHT_GRADIENT).any())
    count = _most_common(forwards)
    stages = max(sequences.stages, 1)
    names = (
        [schedule_name] if schedule_name else ["zb-h1" if has_weights else "1f1b", "interleaved", "dualpipev"]
    )
    if schedule_name is None and sequences.stages > 1:
        names.append("gpipe")  # a single stage may be the first one of an interleaved schedule
    for chunks in _list_chunk_counts(sequences, count):
        if chunks == 1:
            yield from (
                Candidate(name=name, chunks=1) for name in names if name in ("1f1b", "zb-h1", "gpipe")
            )
            continue
        if "interleaved" in names:
            yield Candidate(name="interleaved", chunks=chunks)
            yield from (
                Candidate(name="interleaved", chunks=chunks, group=group)
                for group in _list_group_sizes(stages, count // chunks)
            )
        if "dualpipev" in names and chunks == 2 and count // 2 >= 2 * stages:
            yield Candidate(name="dualpipev", chunks=2)


def _list_chunk_counts(sequences: Sequences, forwards: int) -> list[int]:
    """List the possible numbers of chunks per stage.

    From names, else from forwards per micro-batch, else all.
    """
    last_chunk = max(sequences.chunk.max(initial=-1), sequences.backward_chunk.max(initial=-1))
    if last_chunk >= 0:
        return [int(last_chunk) + 1]
    is_forward = (sequences.kind == FORWARD) | (sequences.kind == BOTH)
    numbers, group = sequences.micro_batch[is_forward], sequences.group[is_forward]
    if len(numbers) and (numbers >= 0).all():
        keys = group * (int(numbers.max()) + 1) + numbers
        return [_most_common(np.unique(keys, return_counts=True)[1])]
    least = max(sequences.stages, 1)  # interleaved schedules need at least one micro-batch per stage
    return [1] + [
        chunks
        for chunks in range(2, _MOST_CHUNKS + 1)
        if sequences.stages > 1 and forwards % chunks == 0 and forwards // chunks >= least
    ]


def _list_group_sizes(stages: int, micro_batches: int) -> list[int]:
    """List the group sizes that Megatron-LM accepts, without the usual one: the number of stages.

    >>> _list_group_sizes(4, 12)
    [6, 7, 8, 12]
    """
    sizes = range(stages + (micro_batches % stages == 0), micro_batches + 1)
    whole = [size for size in sizes if micro_batches % size == 0 or micro_batches % size >= stages]
    return whole[:_MOST_GROUPS]


def _fit(
    candidate: Candidate, sequences: Sequences, forwards: Int64s, is_counted: npt.NDArray[np.bool_]
) -> Fit | None:
    """Compare every job with the schedule's job at its position; None for an impossible schedule."""
    micro_batches = forwards // candidate.chunks
    is_possible = (sequences.stage >= 0) & (forwards > 0) & (forwards % candidate.chunks == 0)
    if candidate.name == "dualpipev":
        is_possible &= micro_batches >= 2 * max(sequences.stages, 1)
    if not (is_possible & is_counted).any():
        return None
    keys = np.where(is_possible, sequences.stage * (int(micro_batches.max()) + 1) + micro_batches, -1)
    distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    orders = [
        order_jobs(
            candidate.name,
            stage=int(sequences.stage[group]),
            stages=max(sequences.stages, 1),
            micro_batches=int(micro_batches[group]),
            chunks=candidate.chunks,
            group=candidate.group,
        )
        for key, group in zip(distinct.tolist(), first.tolist(), strict=True)
        if key >= 0
    ]
    order = inverse - int(distinct[0] < 0)
    agrees, expected, starts_right = _compare(sequences, orders, order)
    count = np.bincount(sequences.group, minlength=len(order))
    size = np.maximum(count, expected + sequences.weights)
    hits = np.bincount(sequences.group, agrees, len(order))
    counted = is_counted & (sequences.stage >= 0)
    return Fit(
        candidate=candidate,
        agreement=float(hits[counted].sum() / size[counted].sum()),
        warm_up=float(starts_right[counted].mean()),
        by_group=hits / size,
        micro_batches=micro_batches,
        orders=orders,
        order=order,
    )


def _compare(
    sequences: Sequences, orders: list[Order], order_of_group: Int64s
) -> tuple[npt.NDArray[np.bool_], Int64s, npt.NDArray[np.bool_]]:
    """Compare jobs with the orders of their groups.

    Returns:
        Mask of the jobs at their positions; number of expected jobs of each group, without weight gradients;
        mask of the groups with the expected warm-up.
    """
    kept = [order.kind != WEIGHT_GRADIENT for order in orders]
    lengths = np.array([int(keep.sum()) for keep in kept])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    warm_ups = np.array([_count_warm_up(order.kind[keep]) for order, keep in zip(orders, kept, strict=True)])
    mine = order_of_group[sequences.group]
    is_inside = (mine >= 0) & (sequences.position >= 0) & (sequences.position < lengths[mine])
    position = np.where(is_inside, offsets[mine] + sequences.position, 0)
    agrees = is_inside.copy()
    for name in ("kind", "micro_batch", "chunk", "backward_micro_batch", "backward_chunk"):
        wanted = np.concatenate(
            [getattr(order, name)[keep] for order, keep in zip(orders, kept, strict=True)]
        )
        actual = getattr(sequences, name)
        agrees &= (actual == wanted[position]) | (actual < 0)
    agrees |= sequences.is_weight & (mine >= 0) & (sequences.weight_rank < sequences.backwards_before)
    is_backward = ((sequences.kind == BACKWARD) | (sequences.kind == BOTH)) & (
        sequences.backwards_before == 0
    )
    actual_warm_up = np.full(len(order_of_group), -1)
    actual_warm_up[sequences.group[is_backward]] = sequences.position[is_backward]
    has_order = order_of_group >= 0
    expected = np.where(has_order, lengths[order_of_group], 0)
    return agrees, expected, has_order & (actual_warm_up == warm_ups[order_of_group])


def _count_warm_up(kind: Int64s) -> int:
    """Count the jobs before the first backward."""
    is_backward = kind != FORWARD
    return int(is_backward.argmax()) if is_backward.any() else len(kind)


def _most_common(values: Int64s) -> int:
    """Return the most frequent value, the greater one of a tie; 0 without values.

    >>> _most_common(np.array([3, 8, 8, 3, 1]))
    8
    """
    distinct, count = np.unique(values, return_counts=True)
    return int(distinct[::-1][count[::-1].argmax()]) if len(values) else 0


def resolve_jobs(
    lanes: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame, *, schedule_name: str | None = None
) -> tuple[pl.DataFrame, list[str]]:
    """Find the micro-batch, chunk and virtual stage of every job that ran on a GPU.

    Ids in names are kept; chunk and virtual stage are computed from each other. Other ids are inferred where
    the jobs of a lane in a step are in the order of a schedule: the n-th forward has the chunk of the
    schedule's n-th forward, and the next micro-batch of this chunk; likewise backwards and weight gradients.
    No ids are inferred in a step with missing jobs or in another order, or where several schedules fit but
    number the jobs differently. Groups of micro-batches of an interleaved schedule are assumed to have the
    usual size if this fits. Recomputation has the ids of its backward; jobs inside forwards and backwards
    have the ids of the outer job.

    Args:
        lanes: `LANES`.
        steps: `RUN_STEPS`, for `is_partial`.
        jobs: `LANE_JOBS`.
        schedule_name: Name of the schedule; None: recognised.

    Returns:
        `RUN_JOBS` without labels, and notes on inferred and refused ids. `confidence` is the share of the
        lane's jobs in the step at their positions in the schedule; equally good schedules are refused at any
        share.
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
    """List the jobs that ran on a GPU, numbered, with the job around each and chunks from virtual stages."""
    ran = jobs.drop_nulls(["lane", "start_ns"])
    ran = ran.sort("lane", "start_ns", "host_start_ns", "range_id", maintain_order=True).with_row_index("job")
    around = ran.select("lane", outer_id="range_id", outer="job").unique(["lane", "outer_id"], keep="first")
    located = ran.join(around, on=["lane", "outer_id"], how="left", maintain_order="left")
    stages = lanes.select("lane", _stage="stage")
    chunk, backward_chunk = (
        pl.coalesce(f"{way}chunk", pl.col(f"{way}virtual_stage") // pl.col("_stages"))
        for way in ("", "backward_")
    )
    return (
        located.join(stages, on="lane", how="left", maintain_order="left")
        .with_columns(
            _stages=pl.lit(count_stages(lanes) or None, pl.Int64),
            is_inferred=pl.lit(False),
            confidence=pl.lit(None, pl.Float64),
            phase=pl.lit(None, pl.Int64),
            label=pl.lit(None, pl.String),
        )
        .with_columns(chunk=chunk, backward_chunk=backward_chunk)
    )


def _needs_fit(sequences: Sequences) -> bool:
    """Return whether a schedule is needed for ids.

    Micro-batches or chunks are unknown, or there are several chunks.
    """
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
    found = {name: getattr(ids, name) for name in (*_IDS, "is_inferred", "confidence")}
    for name in ("micro_batch", "backward_micro_batch"):
        found[name] = np.where(found[name] >= 0, found[name] + sequences.base, -1)
    of_job = pl.DataFrame({"job": sequences.row.astype(np.uint32), **found})
    filled = {
        name: pl.coalesce(name, pl.when(pl.col(f"{name}_found") >= 0).then(f"{name}_found")) for name in _IDS
    }
    return jobs.join(of_job, on="job", how="left", maintain_order="left", suffix="_found").with_columns(
        **filled,
        is_inferred=pl.col("is_inferred_found").fill_null(value=False),
        confidence=pl.col("confidence_found").fill_nan(None),
    )


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
    """Compute virtual stages from chunks.

    In a V (DualPipeV), the second chunks run back from the last stage.
    """
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
            f"the micro-batches or chunks of {inferred:,} jobs were inferred from the order of {name}"
        )
    unknown = int(((ids.micro_batch < 0) | (ids.chunk < 0)).sum())
    if unknown:
        notes.append(
            f"the micro-batches or chunks of {unknown:,} jobs are unknown: "
            f"{_explain_refusal(fits, is_unique)}"
        )
    return notes


def _explain_refusal(fits: list[Fit], is_unique: bool) -> str:
    """Return the reason for unknown ids."""
    if not fits:
        return "their number fits no schedule"
    best = fits[0]
    if not best.is_good:
        return f"their order is most like {best.candidate.name}, but {describe_mismatch(best)}"
    if not is_unique:
        return "several schedules have jobs in this order, and number them differently"
    return f"their steps are cut, or not in the order of {best.candidate.name}"


_WORDS = {  # labels of jobs without a micro-batch, or in addition to it
    "forward": "F",
    "backward": "B",
    "weight_gradient": "W",
    "recompute": "R",
    "forward_backward": "F+B",
    "optimizer": "opt",
    "send": "send",
    "receive": "recv",
    "send_receive": "send+recv",
    "data": "data",
    "other": "",
}


def label_jobs(jobs: pl.DataFrame, lanes: pl.DataFrame, schedule: Schedule) -> pl.DataFrame:
    """Label the jobs, and add the phases of a DualPipeV schedule.

    The label of a forward or backward is its micro-batch; the halves of a split backward are `3b` and `3w`, a
    recomputation is `3r`, a combined forward and backward `7F+13B`. DualPipeV has the labels of
    msprof-analyze: micro-batch k of the second chunk is number m + k of m micro-batches, and backwards are
    `3B`. Other jobs are labelled by a word for their kind, messages by a word and their micro-batch.

    Args:
        jobs: All `RUN_JOBS`.
        lanes: `LANES`.
        schedule: The schedule of the run.

    Returns:
        `RUN_JOBS` with `label`, and `phase` where a lane has the number of jobs of DualPipeV in a step.
    """
    is_v = schedule.name == "dualpipev"
    phase = _find_phases(jobs, lanes, schedule) if is_v else as_whole_numbers(np.full(len(jobs), -1))
    jobs = jobs.with_columns(phase=phase)
    is_split = mark_split_backwards(jobs)
    # few labels are distinct
    keys = jobs[["kind", "phase", *_IDS]].hstack([is_split.alias("is_split")])
    ids = (whole_numbers(jobs[name]) for name in ("kind", "phase", *_IDS))
    code = pack(*ids, is_split.to_numpy().astype(np.int64))
    first, distinct = find_distinct(code)
    text = _build_label(base=schedule.micro_batch_count if is_v else 0, is_v=is_v)
    label = keys[first].select(text).to_series()
    return conform(jobs.with_columns(label=label[distinct]), RUN_JOBS)


def _build_label(*, base: int, is_v: bool) -> pl.Expr:
    """Build the label of a job; micro-batches of the second chunk count from `base`."""
    number = pl.col("micro_batch") + base * pl.col("chunk").fill_null(0)
    partner = pl.col("backward_micro_batch") + base * pl.col("backward_chunk").fill_null(0)
    kind = pl.col("kind").cast(pl.String)
    word = kind.replace_strict(_WORDS, return_dtype=pl.String)
    half = pl.when("is_split").then(pl.concat_str(number, pl.lit("b")))
    forms = {
        "forward": pl.when(pl.col("phase") == 3).then(pl.concat_str(number, pl.lit("F"))),
        "backward": pl.coalesce(half, pl.concat_str(number, pl.lit("B"))) if is_v else half,
        "weight_gradient": pl.concat_str(number, pl.lit("w")),
        "recompute": pl.concat_str(number, pl.lit("r")),
        "forward_backward": pl.concat_str(number, pl.lit("F+"), partner, pl.lit("B")),
        **{message: pl.concat_str(word, number, separator=" ") for message in MESSAGE_KINDS},
    }
    form = pl.coalesce(pl.when(kind == name).then(form) for name, form in forms.items())
    return pl.coalesce(form, pl.when(kind.is_in(["forward", "backward"])).then(number.cast(pl.String)), word)


def _find_phases(jobs: pl.DataFrame, lanes: pl.DataFrame, schedule: Schedule) -> pl.Series:
    """Return the phase of DualPipeV of each job by its position, in groups with all jobs."""
    sequences = build_sequences(lanes, RUN_STEPS.to_frame(), jobs)
    stages, micro_batches = schedule.stage_count, schedule.micro_batch_count
    if not 0 < 2 * stages <= micro_batches:
        return as_whole_numbers(np.full(len(jobs), -1))
    orders = [
        order_jobs("dualpipev", stage=stage, stages=stages, micro_batches=micro_batches, chunks=2)
        for stage in range(stages)
    ]
    kept = [order.phase[order.kind != WEIGHT_GRADIENT] for order in orders]
    lengths = np.array([len(phases) for phases in kept])
    stage = sequences.stage[sequences.group]
    count = np.bincount(sequences.group) - sequences.weights
    is_whole = (stage >= 0) & (count[sequences.group] == lengths[stage])
    # a weight gradient has the phase of the job before it
    before = running_count(sequences.group) - sequences.weight_rank - 1
    position = np.where(sequences.is_weight, before.clip(0), sequences.position)
    offsets = np.cumsum(lengths) - lengths
    phase = np.full(len(jobs), -1)
    phase[sequences.row[is_whole]] = np.concatenate(kept)[(offsets[stage] + position)[is_whole]]
    return as_whole_numbers(phase)


_MOST_UNEXPLAINED = 0.05  # casts, norms and sums of gradients between jobs are a few percent


def doubt_schedule(
    schedule: Schedule, jobs: pl.DataFrame, compute_segments: pl.DataFrame
) -> tuple[Schedule, list[str]]:
    """Add the share of unexplained compute to a schedule, which is uncertain if the share is large.

    Weight gradients without ranges, for example, turn the order of jobs of ZB-H1 into that of 1F1B.

    Args:
        schedule: A schedule.
        jobs: `RUN_JOBS`.
        compute_segments: `LANE_COMPUTE_SEGMENTS`.

    Returns:
        The schedule, and a note if the share is large.
    """
    share = measure_unexplained(jobs, compute_segments)
    schedule = replace(schedule, unexplained=share)
    if share is None or share <= _MOST_UNEXPLAINED:
        return schedule, []
    reason = f"{share:.0%} of the compute between jobs belongs to no job"
    if schedule.source == "recognised":
        schedule = replace(schedule, source="uncertain", reason=reason)
        reason += f", so the schedule {schedule.name} is uncertain"
    return schedule, [f"{reason}: name the ranges of further jobs with `--job`, or choose `--preset`"]


def measure_unexplained(jobs: pl.DataFrame, compute_segments: pl.DataFrame) -> float | None:
    """Measure the share of compute outside of all jobs, from the first job of each lane and step on.

    It counts until the optimizer, or else until the last job, since few rules name all of an optimizer.

    Args:
        jobs: `RUN_JOBS`.
        compute_segments: `LANE_COMPUTE_SEGMENTS`.

    Returns:
        The share, from 0 to 1; None without compute between jobs.
    """
    ran = jobs.select(
        "lane", "step", "kind", start_ns="compute_start_ns", end_ns="compute_end_ns"
    ).drop_nulls(["start_ns", "end_ns"])
    is_scheduled = pl.col("kind").is_in(SCHEDULED_KINDS)
    last_ns = pl.col("end_ns").filter(is_scheduled).max()
    updates = pl.col("start_ns").filter((pl.col("kind") == "optimizer") & (pl.col("start_ns") >= last_ns))
    spans = (
        ran.drop_nulls("step")
        .group_by("lane", "step")
        .agg(
            start_ns=pl.col("start_ns").filter(is_scheduled).min(), end_ns=pl.coalesce(updates.min(), last_ns)
        )
        .drop_nulls()
    )
    inside = intersect(*_list_intervals(compute_segments), unite(*_list_intervals(spans)))
    lane = whole_numbers(compute_segments["lane"])[inside.row]
    explained = intersect(lane, inside.start, inside.end, unite(*_list_intervals(ran)))
    total, of_jobs = (int((parts.end - parts.start).sum()) for parts in (inside, explained))
    return (total - of_jobs) / total if total else None


def _list_intervals(frame: pl.DataFrame) -> tuple[Int64s, Int64s, Int64s]:
    return whole_numbers(frame["lane"]), frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
