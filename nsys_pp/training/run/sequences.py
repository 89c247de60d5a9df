"""Sequences of the jobs of each lane in each step, for the comparison with schedules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.ancestors import has_marked_line
from nsys_pp.arrays.columns import find_distinct, is_among, numbers, whole_numbers
from nsys_pp.arrays.order import order_rows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.training import JOB_KINDS, SCHEDULED_KINDS
from nsys_pp.training.run.lanes import count_stages
from nsys_pp.training.run.orders import BACKWARD, BOTH, FORWARD, WEIGHT_GRADIENT, running_count

_IDS = ("micro_batch", "chunk", "backward_micro_batch", "backward_chunk")


class Sequences(Struct, frozen=True, kw_only=True):
    """Jobs by group and time. A group is one step (of one role) on one lane. Unknown ids are -1.

    Attributes:
        row: Row of the frame of jobs.
        kind: Index of `SCHEDULED_KINDS`.
        group: Number of the group, from 0.
        base: Least micro-batch of the step, which is subtracted from `micro_batch` and `backward_micro_batch`.
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
    """Return the mask of jobs of the kinds that are neither inside a job of these kinds nor inside recomputation.

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
