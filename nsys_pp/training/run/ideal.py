"""How long a step would take if nothing but the jobs themselves took time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import is_among
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import IDEAL, Schedule
from nsys_pp.training.run.columns import order_rows, whole_numbers
from nsys_pp.training.run.orders import KINDS
from nsys_pp.training.run.sequences import mark_top_level

_ASKED = [  # columns of jobs
    *("lane", "job", "step", "kind", "micro_batch", "chunk", "virtual_stage", "backward_micro_batch"),
    *("backward_chunk", "backward_virtual_stage", "compute_ns", "compute_start_ns", "start_ns"),
]


def build_ideal(
    lanes: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame, schedule: Schedule
) -> tuple[pl.DataFrame, list[str]]:
    """Run the jobs of every step again, without communication, launches or anything else between them.

    Every lane does the forwards, backwards and weight gradients that it did, in the order in which it did
    them, and its optimizer last. Each takes as long as jobs of its stage, kind and chunk take by the median
    over complete steps, of which only the time counts in which kernels other than communication run. A job
    starts when the lane is free and what it needs is done: a forward, that of the virtual stage before; a
    backward, that of the virtual stage after and its own forward; a weight gradient, its backward; a forward
    and a backward at once, what either needs. All lanes may start when the first one did. Lanes of one
    replica and tensor slice work together; where these are unknown, the n-th lanes of all stages do.

    Args:
        lanes: `LANES`.
        steps: `RUN_STEPS`: steps that are cut on some lane are left out.
        jobs: All `RUN_JOBS`.
        schedule: Of how many stages and chunks the pipeline is.

    Returns:
        `IDEAL`, and sentences on steps that cannot be run again: a job that another needs is missing or
        unknown, or the jobs of a lane are in an order in which they would wait for each other for ever.
    """
    nodes = _nodes(lanes, steps, jobs)
    if nodes.is_empty():
        return IDEAL.to_frame(), []
    needs, is_known = _needs(nodes, schedule.stage_count * schedule.chunk_count)
    run = nodes["run"].to_numpy()
    is_whole = ~np.isin(run, run[~is_known])
    start, is_done = _run(nodes, needs, is_whole)
    is_done &= ~np.isin(run, run[is_whole & ~is_done])
    notes = []
    if count := nodes.filter(pl.Series(~is_whole))["step"].n_unique():
        notes.append(
            f"{count:,} steps have no ideal: some of their forwards and backwards are unknown or missing"
        )
    if count := nodes.filter(pl.Series(is_whole & ~is_done))["step"].n_unique():
        notes.append(f"{count:,} steps have no ideal: their jobs would wait for each other for ever")
    if schedule.name == "unknown" and schedule.stage_count > 1 and is_done.any():
        notes.append(f"the ideal takes the {schedule.stage_count} stages that are seen for all there are")
    begun = nodes.with_columns(start_ns=pl.Series(start) + pl.col("zero_ns")).filter(pl.Series(is_done))
    timed = begun.with_columns(end_ns=pl.col("start_ns") + pl.col("cost_ns"))
    ordered: pl.DataFrame = timed[order_rows(whole_numbers(timed["lane"]), timed["start_ns"].to_numpy())]
    return conform(ordered, IDEAL), notes


def _nodes(lanes: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """List the jobs to run again by step and lane in order, with what they cost and who works together."""
    whole = (
        steps.group_by("step")
        .agg(zero_ns=pl.col("start_ns").min(), is_partial=pl.col("is_partial").any())
        .filter(~pl.col("is_partial"))
        .drop("is_partial")
    )
    cost = pl.col("compute_ns").fill_null(0).median().over("stage", "kind", "chunk", "backward_chunk")
    top_level = mark_top_level(jobs, [*KINDS, "recompute", "optimizer"])
    nodes = (
        jobs[_ASKED]
        .filter(pl.Series(top_level))
        .join(whole, on="step", maintain_order="left")
        .join(_pipes(lanes), on="lane", maintain_order="left")
        .with_columns(cost_ns=cost.round().cast(pl.Int64))
    )
    step = np.unique(nodes["step"].to_numpy(), return_inverse=True)[1]
    lane, pipe = whole_numbers(nodes["lane"]), whole_numbers(nodes["pipe"])
    is_last = is_among(nodes["kind"], ("optimizer",))
    begin = nodes["compute_start_ns"].zip_with(nodes["compute_start_ns"].is_not_null(), nodes["start_ns"])
    turn = 2 * (step * (int(lane.max(initial=0)) + 1) + lane) + is_last
    run = np.unique(pipe * (int(step.max(initial=0)) + 1) + step, return_inverse=True)[1]
    nodes = nodes.with_columns(run=pl.Series(run))[order_rows(turn, whole_numbers(begin))]
    return nodes.with_row_index("place")


def _pipes(lanes: pl.DataFrame) -> pl.DataFrame:
    """Number the lanes that work together: one of each stage."""
    staged = lanes.drop_nulls("stage").select("lane", "stage", "replica", "tensor")
    if staged.select(pl.any_horizontal(pl.col("replica", "tensor").is_null()).any()).item():
        return staged.select("lane", "stage", pipe=pl.int_range(pl.len()).over("stage"))
    return staged.select("lane", "stage", pipe=pl.struct("replica", "tensor").rank("dense").cast(pl.Int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The forwards, or the backwards, or the weight gradients: which node does which.

    Attributes:
        node: Place among the nodes.
        key: Run, virtual stage and micro-batch as one number.
        virtual: Virtual stage.
        is_known: Whether both are known.
    """

    node: Int64s
    key: Int64s
    virtual: Int64s
    is_known: Bools

    def find(self, key: Int64s) -> Int64s:
        """Return the nodes that do this; -1 where none does, or where several do."""
        keys, first, count = np.unique(self.key, return_index=True, return_counts=True)
        if not len(keys):
            return np.full(len(key), -1)
        place = np.searchsorted(keys, key).clip(0, len(keys) - 1)
        is_one = (keys[place] == key) & (count[place] == 1)
        return np.where(is_one, self.node[first[place]], -1)


def _needs(nodes: pl.DataFrame, virtual_stages: int) -> tuple[Int64s, Bools]:
    """Find the nodes that each node needs, at most three (`len(nodes)`: none), and whether all are known."""
    numbers = ["backward_micro_batch", "micro_batch"]
    places = ["backward_virtual_stage", "virtual_stage"]
    ids = nodes.select(pl.col("run", *numbers, *places).fill_null(-1), pl.col("kind").cast(pl.String))
    stride = 1 + max(int(ids[name].to_numpy().max()) for name in numbers)
    last = max(virtual_stages - 1, *(int(ids[name].to_numpy().max()) for name in places))
    forward = _work(ids, {"forward": "", "forward_backward": ""}, stride=stride, last=last)
    backward = _work(ids, {"backward": "", "forward_backward": "backward_"}, stride=stride, last=last)
    weight = _work(ids, {"weight_gradient": ""}, stride=stride, last=last)
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


def _work(ids: pl.DataFrame, kinds: dict[str, str], *, stride: int, last: int) -> _Work:
    """List the nodes of some kinds, whose ids are in columns of these prefixes."""
    parts = [
        ids.with_row_index("node")
        .filter(kind=kind)
        .select("node", "run", virtual=f"{prefix}virtual_stage", number=f"{prefix}micro_batch")
        for kind, prefix in kinds.items()
    ]
    node, run, virtual, number = (each.to_numpy() for each in pl.concat(parts).cast(pl.Int64).get_columns())
    return _Work(
        node=node,
        key=(run * (last + 2) + virtual) * stride + number,
        virtual=virtual,
        is_known=(virtual >= 0) & (number >= 0),
    )


def _run(nodes: pl.DataFrame, needs: Int64s, is_whole: Bools) -> tuple[Int64s, Bools]:
    """Start every node when its lane is free and what it needs is done; say when, and which ever start.

    Round by round every lane of every step does its next node if that can be done, so there are as many
    rounds as the longest chain has nodes, and the last round is the one in which nobody can go on.
    """
    cost = nodes["cost_ns"].to_numpy()
    lane, step = nodes["lane"].to_numpy(), nodes["step"].to_numpy()
    never = np.iinfo(np.int64).max
    end = np.full(len(nodes) + 1, never)
    end[-1] = 0  # of what needs nothing
    start = np.zeros(len(nodes), np.int64)
    is_first = np.ones(len(nodes), np.bool_)
    is_first[1:] = (lane[1:] != lane[:-1]) | (step[1:] != step[:-1])
    head = np.flatnonzero(is_first)
    stop = np.append(head[1:], len(nodes))
    head, stop = head[is_whole[head]], stop[is_whole[head]]
    free = np.zeros(len(head), np.int64)
    while len(head):
        ready_ns = np.maximum(end[needs[head]].max(axis=1), free)
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
