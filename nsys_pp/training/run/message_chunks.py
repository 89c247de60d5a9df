"""Chunks of messages whose names have none: from the order of the jobs that send and receive them."""

from __future__ import annotations

import polars as pl

from nsys_pp.arrays.columns import list_distinct, numbers, pack, whole_numbers
from nsys_pp.frames.training import DIRECTION, MESSAGES
from nsys_pp.training.run.routes import Topology
from nsys_pp.training.run.step_positions import PositionFinder, mark_step_edges, number_in_steps

_KEY = ["lane", "verb", "direction"]


def infer_chunks(
    messages: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame, lanes: pl.DataFrame, topology: Topology
) -> pl.DataFrame:
    """Fill unknown chunks of messages: the n-th forward send of a step belongs to its n-th forward that sends.

    Not for steps with other numbers of messages than of jobs that send or receive so. The last forward along the model
    sends nothing, nor does a job whose result stays on its stage.

    Args:
        messages: `LANE_MESSAGES`.
        steps: `RUN_STEPS`.
        jobs: `RUN_JOBS`.
        lanes: `LANES`.
        topology: Of the stages.

    Returns:
        The messages, in order.
    """
    chunks = 1 + max(int(whole_numbers(jobs[name]).max(initial=0)) for name in ("chunk", "backward_chunk"))
    is_unknown = pl.col("chunk").is_null() & pl.col("direction").is_not_null()
    if topology.stages < 2 or chunks < 2 or not messages.select(is_unknown.any()).item():
        return messages
    rows = messages.with_row_index("row").with_columns(issue_ns=pl.coalesce("launch_ns", "start_ns"))
    directed = rows.drop_nulls(_KEY)
    halves = _list_halves(jobs, lanes, topology, last=chunks * topology.stages - 1)
    columns = ["row", "step", "issue_ns", *_KEY]
    both = pl.concat([directed.select(columns), halves.with_row_index("row").select(columns)])
    route = pl.Series("route", pack(*(whole_numbers(both[name]) for name in _KEY)))
    both = mark_step_edges(both.hstack([route]), steps)
    sent, expected = (number_in_steps(side) for side in (both[: len(directed)], both[len(directed) :]))
    routes = list_distinct(numbers(route))
    pairs = PositionFinder(sent, expected).pair(routes, routes)
    inferred = pl.DataFrame([sent["row"][pairs.send], halves["chunk"][pairs.receive].alias("inferred")])
    joined = rows.join(inferred, on="row", how="left", maintain_order="left")
    return joined.with_columns(chunk=pl.coalesce("chunk", "inferred")).select(messages.columns)


def _list_halves(jobs: pl.DataFrame, lanes: pl.DataFrame, topology: Topology, *, last: int) -> pl.DataFrame:
    """List the expected messages of jobs: lane, step, verb, direction, chunk, issue_ns (start of the job)."""
    stages = lanes.select("lane", "stage")
    parts = []
    for direction, kinds, prefix in (
        ("forward", ("forward", "forward_backward"), ""),
        ("backward", ("backward",), ""),
        ("backward", ("forward_backward",), "backward_"),
    ):
        virtual = pl.col(f"{prefix}virtual_stage")
        own = jobs.filter(pl.col("kind").is_in(kinds)).join(stages, on="lane")
        for verb in ("send", "receive"):
            other = virtual + (1 if (direction == "forward") == (verb == "send") else -1)
            holder = other % topology.stages
            if topology.is_folded:
                holder = pl.when(other < topology.stages).then(other).otherwise(last - other)
            parts.append(
                own.filter(other.is_between(0, last), holder != pl.col("stage")).select(
                    *("lane", "step"),
                    issue_ns="start_ns",
                    verb=pl.lit(verb),
                    direction=pl.lit(direction),
                    chunk=f"{prefix}chunk",
                )
            )
    return pl.concat(parts).with_columns(
        pl.col("verb").cast(MESSAGES["verb"]), pl.col("direction").cast(DIRECTION)
    )
