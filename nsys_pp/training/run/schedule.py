"""Recognition of the schedule of a run by the order of its jobs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.choices import SCHEDULES
from nsys_pp.frames.training import Schedule
from nsys_pp.training.run.orders import BACKWARD, BOTH, FORWARD, WEIGHT_GRADIENT, Order, order_jobs
from nsys_pp.training.run.sequences import Sequences, build_sequences

LEAST_AGREEMENT = 0.95
"""Least share of jobs at their positions in a schedule, and of steps with the warm-up of the schedule.

One job in twenty may be out of order, as where a capture lost events. Two different schedules agree in fewer jobs, or
differ in their warm-up (as 1F1B and interleaved 1F1B of many micro-batches).
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

    The jobs of every lane in every complete step are compared, position by position, with the jobs of its stage in
    each schedule: kind, and micro-batch and chunk where they are known. The n-th weight gradient may be anywhere after
    the n-th backward, since zero-bubble schedules move weight gradients into bubbles. Recomputation is part of its
    backward.

    Args:
        lanes: `LANES`.
        steps: `RUN_STEPS`, for `is_partial`.
        jobs: All `RUN_JOBS`.
        schedule_name: Name of the schedule, to compute only its agreement; None: recognised.

    Returns:
        The schedule; "unknown" with a reason where no schedule or several schedules fit. The numbers of chunks and
        micro-batches are 0 where several of them fit equally well: with 6 interleaved stages, 15 micro-batches in 4
        chunks have the same order as 12 micro-batches in 5 chunks.

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
    """Count the micro-batches of a complete step without a schedule: by ids, else by forwards; 0 where unknown."""
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

    Interleaved schedules with groups of unusual sizes are tried only if no other schedule fits. Incomplete steps are
    compared only if no step is complete.
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
    """Return the expected number of forwards of each group: the most common in its step, or else in all steps."""
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
    """List the possible numbers of chunks per stage: from names, else from forwards per micro-batch, else all."""
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
        Mask of the jobs at their positions; number of expected jobs of each group, without weight gradients; mask of
        the groups with the expected warm-up.
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
