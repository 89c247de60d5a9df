"""Routes of messages along the pipeline: from the virtual stage of the sender to the stage of the peer."""

from __future__ import annotations

from typing import Any

import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import find_distinct, gather_rows, pack, whole_numbers
from nsys_pp.arrays.search import find_rows
from nsys_pp.frames.clock import CLOCK
from nsys_pp.frames.training import DIRECTION
from nsys_pp.training.lanes import count_stages

SLICE = ("replica", "tensor")


class Topology(Struct, frozen=True, kw_only=True):
    """Order in which a micro-batch visits the stages.

    Attributes:
        stages: Number of stages; 0 where the stage of a lane is unknown.
        is_line: The model is surely not cut into more parts than stages: messages are between neighbours, and none leaves
            the first or the last stage outward.
        is_folded: The model runs along the stages and back (DualPipeV). Neither line nor folded: it loops.
    """

    stages: int
    is_line: bool
    is_folded: bool


UNKNOWN = Topology(stages=0, is_line=False, is_folded=False)
"""Topology where the stage of a lane is unknown."""


def count_located(lanes: pl.DataFrame) -> int:
    """Count the stages of the run; 0 where the stage of a lane is unknown."""
    return 0 if lanes["stage"].has_nulls() else count_stages(lanes)


def list_topologies(lanes: pl.DataFrame, messages: pl.DataFrame, jobs: pl.DataFrame) -> list[Topology]:
    """List the possible topologies: one, or a loop and a fold where names of chunks do not distinguish them.

    Second chunks run back if their virtual stages do or, where these are unknown, if all forward sends of the last
    stage are from its second chunk. In a line, the last stage sends nothing forward, and the first receives nothing.

    Args:
        lanes: `LANES`.
        messages: `LANE_MESSAGES`.
        jobs: `RUN_JOBS`.
    """
    count = count_located(lanes)
    if not count:
        return [UNKNOWN]
    stages = lanes.select("lane", "stage")
    for frame in (jobs, messages):
        last_stage: Any = frame["virtual_stage"].max()
        if last_stage is None or last_stage < count:
            continue
        second = (
            frame[["lane", "virtual_stage"]].filter(pl.col("virtual_stage") >= count).join(stages, on="lane")
        )
        if len(second):
            is_back = second["virtual_stage"] == 2 * count - 1 - second["stage"]
            return [Topology(stages=count, is_line=False, is_folded=2 * int(is_back.sum()) > len(second))]
    forward = messages.select("lane", "verb", "direction", "chunk").filter(direction="forward")
    forward = forward.join(stages, on="lane")
    last = forward.filter(verb="send", stage=count - 1)
    chunks = last["chunk"].drop_nulls()
    if len(chunks):
        return [Topology(stages=count, is_line=False, is_folded=bool((chunks == 1).all()))]
    if len(last):
        return [Topology(stages=count, is_line=False, is_folded=folded) for folded in (False, True)]
    is_sure = len(forward) > 0 or jobs["chunk"].max() == 0
    is_line = (
        is_sure and not has_chunks(messages, jobs) and forward.filter(verb="receive", stage=0).is_empty()
    )
    return [Topology(stages=count, is_line=is_line, is_folded=False)]


def has_chunks(messages: pl.DataFrame, jobs: pl.DataFrame) -> bool:
    """Return whether a stage holds several parts of the model, by `LANE_MESSAGES` or `RUN_JOBS`."""
    return any(bool((frame["chunk"] > 0).any()) for frame in (jobs, messages))


def locate_messages(lanes: pl.DataFrame, messages: pl.DataFrame, topology: Topology) -> pl.DataFrame:
    """Find the stage of each message, its link, and the stage of its peer.

    At the ends of a line, the verb implies the direction of messages without names.

    Args:
        lanes: `LANES`.
        messages: `LANE_MESSAGES`.
        topology: Of the stages.

    Returns:
        The messages, in order, with row, issue_ns (launch, or start where it is unknown), stage, `CLOCK`, `SLICE`, link
        (virtual stage of the sender), target (stage of the peer), and route (number of the messages of one lane with the
        same verb, direction and target, or chunk where stages are unknown); null where unknown, route without a verb.
    """
    of_lane = find_rows(whole_numbers(lanes["lane"]), whole_numbers(messages["lane"]))
    located = messages.with_row_index("row").hstack(gather_rows(lanes, ("stage", *CLOCK, *SLICE), of_lane))
    located = located.with_columns(_infer_direction(topology), issue_ns=pl.coalesce("launch_ns", "start_ns"))
    located = _add_links(located, topology)
    names = ("lane", "verb", "direction", "target", *(() if topology.stages else ("chunk",)))
    _, route = find_distinct(pack(*(whole_numbers(located[name]) for name in names)))
    return located.with_columns(route=pl.when(pl.col("verb").is_not_null()).then(pl.Series(route)))


def _infer_direction(topology: Topology) -> pl.Expr:
    """Infer the direction of messages of the first and the last stage of a line, if none of their verb has one."""
    if not topology.is_line or topology.stages < 2:
        return pl.col("direction")
    is_send, stage = pl.col("verb") == "send", pl.col("stage")
    is_end = (stage == 0) | (stage == topology.stages - 1)
    is_forward = (stage == 0) == is_send
    word = pl.when(is_forward).then(pl.lit("forward", DIRECTION)).otherwise(pl.lit("backward", DIRECTION))
    # where names distinguish directions, messages without one are not along the pipeline
    has_names = pl.col("direction").is_not_null().any().over("verb")
    inferred = pl.when(is_end & pl.col("verb").is_not_null() & ~has_names).then(word)
    return pl.coalesce("direction", inferred).alias("direction")


def _add_links(messages: pl.DataFrame, topology: Topology) -> pl.DataFrame:
    """Add link, the virtual stage of the sender, and target, the stage of the peer."""
    count, stage, chunk = topology.stages, pl.col("stage"), pl.col("chunk")
    back = pl.when(chunk == 0).then(stage).when(chunk > 0).then(2 * count - 1 - stage)
    virtual = pl.coalesce("virtual_stage", back if topology.is_folded else chunk * count + stage)
    along = pl.when(pl.col("direction") == "forward").then(1).when(pl.col("direction") == "backward").then(-1)
    is_send = pl.col("verb") == "send"
    step = pl.when(is_send).then(along).otherwise(-along)  # to the virtual stage of the peer
    ahead = virtual + step
    if count < 2:
        target = pl.lit(None, pl.Int64)
    elif topology.is_folded:
        target = pl.when(ahead < count).then(ahead).otherwise(2 * count - 1 - ahead)
    elif topology.is_line:
        target = stage + step
    else:
        target = (stage + step) % count
    return messages.with_columns(
        link=pl.when(along.is_not_null()).then(pl.when(is_send).then(virtual).otherwise(virtual - along)),
        target=pl.when(target.is_between(0, count - 1)).then(target).cast(pl.Int64),
    )
