"""Ideal steps: the same jobs without communication, launches or gaps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import are_among, find_distinct, index_rows, is_among, whole_numbers
from nsys_pp.arrays.search import order_rows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import IDEAL, SCHEDULED_KINDS, Schedule
from nsys_pp.training.schedule import mark_top_level
from nsys_pp.units import format_count

_JOB_COLUMNS = [
    *("lane", "job", "step", "kind", "micro_batch", "chunk", "virtual_stage", "backward_micro_batch"),
    *("backward_chunk", "backward_virtual_stage", "compute_ns", "compute_start_ns", "start_ns"),
]


def build_ideal(
    lanes: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame, schedule: Schedule
) -> tuple[pl.DataFrame, list[str]]:
    """Replay the jobs of every step without communication, launches or gaps between them.

    Every lane runs its forwards, backwards and weight gradients in the recorded order, and its optimizer
    last. The duration of a job is the median compute time of the jobs of its stage, kind and chunk in
    complete steps. A job starts when the lane is free and its dependencies are done: for a forward, the
    forward of the previous virtual stage; for a backward, the backward of the next virtual stage and its own
    forward; for a weight gradient, its backward; for a combined job, the dependencies of both. All lanes may
    start when the first lane starts. Lanes of one replica and tensor slice form a pipeline; where these are
    unknown, the n-th lanes of all stages do.

    Args:
        lanes: `LANES`.
        steps: `RUN_STEPS`; partial steps are left out.
        jobs: All `RUN_JOBS`.
        schedule: Schedule, for the numbers of stages and chunks.

    Returns:
        `IDEAL`, and notes on steps without an ideal, where a dependency is missing or unknown, or jobs wait
        for each other. Empty without complete steps, and where the schedule is uncertain.
    """
    nodes = _list_nodes(lanes, steps, jobs)
    if nodes.is_empty() or schedule.source == "uncertain":  # compute without jobs would be a bubble
        return IDEAL.to_frame(), []
    needs, is_known = find_dependencies(nodes, schedule.stage_count * schedule.chunk_count)
    run = nodes["run"].to_numpy()
    is_whole = ~np.isin(run, run[~is_known])
    start, is_done = run_nodes(nodes, needs, is_whole)
    is_done &= ~np.isin(run, run[is_whole & ~is_done])
    notes = _describe_absent(nodes, is_whole)
    if count := nodes.filter(pl.Series(is_whole & ~is_done))["step"].n_unique():
        notes.append(f"{count:,} steps have no ideal: their jobs have a dependency cycle")
    if schedule.name == "unknown" and schedule.stage_count > 1 and is_done.any():
        notes.append(
            f"the ideal assumes that the {schedule.stage_count} recorded stages are all of the pipeline"
        )
    begun = nodes.with_columns(start_ns=pl.Series(start) + pl.col("zero_ns")).filter(pl.Series(is_done))
    timed = begun.with_columns(end_ns=pl.col("start_ns") + pl.col("cost_ns"))
    ordered: pl.DataFrame = timed[order_rows(whole_numbers(timed["lane"]), timed["start_ns"].to_numpy())]
    return conform(ordered, IDEAL), notes


def _describe_absent(nodes: pl.DataFrame, is_whole: Bools) -> list[str]:
    steps = (
        nodes.select("step", "pipe", is_whole=pl.Series(is_whole))
        .group_by("step", "pipe")
        .agg(pl.col("is_whole").all())
        .group_by("step")
        .agg(whole=pl.col("is_whole").sum(), count=pl.len())
    )
    reason = "unknown or missing"
    notes = []
    if count := steps.filter(whole=0).height:
        notes.append(f"{count:,} steps have no ideal: some of their forwards and backwards are {reason}")
    part = steps.filter(pl.col("whole") > 0, pl.col("whole") < pl.col("count"))
    if len(part):
        whole, pipelines = int(part["whole"].to_numpy().min()), int(part["count"].to_numpy().max())
        notes.append(
            f"the ideal of {format_count(len(part), 'step')} is of {whole:,} of {pipelines:,} pipelines: "
            "some forwards and backwards of the"
            f" others are {reason}"
        )
    return notes


def _list_nodes(lanes: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    # jobs to replay by step and lane in order, with their cost and their pipeline
    whole = (
        steps.group_by("step")
        .agg(zero_ns=pl.col("start_ns").min(), is_partial=pl.col("is_partial").any())
        .filter(~pl.col("is_partial"))
        .drop("is_partial")
    )
    cost = pl.col("compute_ns").fill_null(0).median().over("stage", "kind", "chunk", "backward_chunk")
    nodes = (
        jobs[_JOB_COLUMNS]
        .filter(pl.Series(mark_top_level(jobs, [*SCHEDULED_KINDS, "recompute", "optimizer"])))
        .join(whole, on="step", maintain_order="left")
        .join(number_pipelines(lanes), on="lane", maintain_order="left")
        .with_columns(cost_ns=cost.round().cast(pl.Int64))
    )
    _, step = find_distinct(nodes["step"].to_numpy())
    lane, pipe = whole_numbers(nodes["lane"]), whole_numbers(nodes["pipe"])
    is_last = is_among(nodes["kind"], ("optimizer",))
    begin = nodes["compute_start_ns"].zip_with(nodes["compute_start_ns"].is_not_null(), nodes["start_ns"])
    turn = 2 * (step * (int(lane.max(initial=0)) + 1) + lane) + is_last
    _, run = find_distinct(pipe * (int(step.max(initial=0)) + 1) + step)
    numbered = nodes.with_columns(run=pl.Series(run))
    return index_rows(numbered, order_rows(turn, whole_numbers(begin))).with_row_index("node")


def number_pipelines(lanes: pl.DataFrame) -> pl.DataFrame:
    """Number the pipelines: lanes that work together, one of each stage."""
    staged = lanes.drop_nulls("stage").select("lane", "stage", "replica", "tensor")
    if staged.select(pl.any_horizontal(pl.col("replica", "tensor").is_null()).any()).item():
        return staged.select("lane", "stage", pipe=pl.int_range(pl.len()).over("stage"))
    return staged.select("lane", "stage", pipe=pl.struct("replica", "tensor").rank("dense").cast(pl.Int64))


class _Work(Struct, frozen=True, kw_only=True):
    """Nodes of the forwards, of the backwards, or of the weight gradients.

    Attributes:
        node: Index of the node.
        key: Run, virtual stage and micro-batch as one number.
        virtual: Virtual stage.
        is_known: Whether virtual stage and micro-batch are known.
    """

    node: Int64s
    key: Int64s
    virtual: Int64s
    is_known: Bools

    def find(self, key: Int64s) -> Int64s:
        """Return the node of each key; -1 without a node, or with several."""
        keys, first, count = np.unique(self.key, return_index=True, return_counts=True)
        if not len(keys):
            return np.full(len(key), -1)
        index = np.searchsorted(keys, key).clip(0, len(keys) - 1)
        is_unique = (keys[index] == key) & (count[index] == 1)
        return np.where(is_unique, self.node[first[index]], -1)


def find_dependencies(nodes: pl.DataFrame, virtual_stages: int) -> tuple[Int64s, Bools]:
    """Find up to three dependencies of each node (`len(nodes)`: none).

    The second result is the mask of nodes with all known.
    """
    numbers = ["backward_micro_batch", "micro_batch"]
    virtual_stages_of = ["backward_virtual_stage", "virtual_stage"]
    ids = {name: whole_numbers(nodes[name]) for name in ("run", *numbers, *virtual_stages_of)}
    stride = 1 + max(int(ids[name].max()) for name in numbers)
    last = max(virtual_stages - 1, *(int(ids[name].max()) for name in virtual_stages_of))
    list_work = partial(_list_work, ids, nodes["kind"], stride=stride, last=last)
    forward = list_work({"forward": "", "forward_backward": ""})
    backward = list_work({"backward": "", "forward_backward": "backward_"})
    weight = list_work({"weight_gradient": ""})
    needs = np.full((len(nodes), 3), len(nodes))
    is_known = np.ones(len(nodes), np.bool_)
    for work in (forward, backward, weight):
        is_known[work.node[(work.find(work.key) != work.node) | ~work.is_known]] = False
    for column, work, does_need, needed in (
        (0, forward, forward.virtual > 0, forward.find(forward.key - stride)),
        (1, backward, backward.virtual >= 0, forward.find(backward.key)),
        (2, backward, backward.virtual < last, backward.find(backward.key + stride)),
        (0, weight, weight.virtual >= 0, backward.find(weight.key)),
    ):
        needs[work.node[does_need], column] = needed[does_need]
        is_known[work.node[does_need & (needed < 0)]] = False
    return needs, is_known


def _list_work(
    ids: Mapping[str, Int64s], kind: pl.Series, kinds: Mapping[str, str], *, stride: int, last: int
) -> _Work:
    # `kinds`: the prefix of the ids of each kind
    nodes = [np.flatnonzero(is_own) for is_own in are_among(kind, *([name] for name in kinds))]
    virtual, number = (
        np.concatenate(
            [ids[f"{prefix}{name}"][own] for own, prefix in zip(nodes, kinds.values(), strict=True)]
        )
        for name in ("virtual_stage", "micro_batch")
    )
    node = np.concatenate(nodes)
    return _Work(
        node=node,
        key=(ids["run"][node] * (last + 2) + virtual) * stride + number,
        virtual=virtual,
        is_known=(virtual >= 0) & (number >= 0),
    )


def run_nodes(
    nodes: pl.DataFrame,
    needs: Int64s,
    is_whole: Bools,
    *,
    lag_ns: Int64s | int = 0,
    free_ns: Int64s | int = 0,
) -> tuple[Int64s, Bools]:
    """Compute the start of every node, and the mask of nodes that can start.

    In each round every lane of every step runs its next node if its dependencies are done: there are as many
    rounds as nodes in the longest chain, and the last round has no node to run.

    Args:
        nodes: lane, step and cost_ns, by step and lane in order.
        needs: Dependencies of each node, `len(nodes)`: none.
        is_whole: Nodes to run; of a lane and step all, or none.
        lag_ns: Time that each dependency takes to reach the node.
        free_ns: Time before which no node of its lane and step begins.
    """
    cost = nodes["cost_ns"].to_numpy()
    lane, step = nodes["lane"].to_numpy(), nodes["step"].to_numpy()
    never = 1 << 62
    end = np.full(len(nodes) + 1, never)
    end[-1] = -never  # the dependency `len(nodes)`: none
    start = np.zeros(len(nodes), np.int64)
    lags, frees = np.broadcast_to(lag_ns, needs.shape), np.broadcast_to(free_ns, start.shape)
    is_first = np.ones(len(nodes), np.bool_)
    is_first[1:] = (lane[1:] != lane[:-1]) | (step[1:] != step[:-1])
    head = np.flatnonzero(is_first)
    stop = np.append(head[1:], len(nodes))
    head, stop = head[is_whole[head]], stop[is_whole[head]]
    free = frees[head]
    while len(head):
        ready_ns = np.maximum((end[needs[head]] + lags[head]).max(axis=1), free)
        can = ready_ns < never
        if not can.any():
            break
        done = head[can]
        start[done] = ready_ns[can]
        end[done] = free[can] = start[done] + cost[done]
        head = head + can
        is_left = head < stop
        head, stop, free = head[is_left], stop[is_left], free[is_left]
    return start, end[:-1] < never
