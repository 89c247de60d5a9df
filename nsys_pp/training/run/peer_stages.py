"""Stages of a pipeline by the peers of its messages, as NCCL recorded them: no clock is compared with another one.

In each step, a stage other than the first one begins its first forward with what it received from the stage before. What it
receives from the stage after are gradients, which come later.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.types import Int64s
from nsys_pp.training.run.nccl_peers import find_nccl_peers

_KEYS = ("report", "process_key", "device_id")
_NEARLY_ALL = 0.9  # of the steps of a lane, in which it receives before its first forward, or does not
_NONE = -1


def find_stages_of_peers(
    lanes: pl.DataFrame, first_forwards: pl.DataFrame, messages: pl.DataFrame
) -> pl.DataFrame:
    """Find the stage of each lane by the lanes that its first forwards receive from.

    Args:
        lanes: Lanes that ran jobs, with report, process_key, device_id and rank.
        first_forwards: First forward of each lane and step: report, process_key, device_id, step, start_ns, host_end_ns.
        messages: `GATHERED_FRAMES`: messages.

    Returns:
        report, process_key, device_id and stage of all lanes; empty without at least two stages of as many lanes each, or where a
        rank is unknown, a peer has no lane, or a message connects lanes that are not neighbours in a pipeline.
    """
    nothing = lanes.select(*_KEYS, pl.lit(None, pl.Int64).alias("stage")).clear()
    if len(lanes) < 2 or lanes["rank"].null_count() or messages["peer"].count() == 0:
        return nothing
    numbered = lanes.select(*_KEYS, "rank", lane=pl.int_range(pl.len(), dtype=pl.UInt32))
    requested = (
        messages.drop_nulls(["communicator", "peer", "verb"])
        .join(numbered.drop("rank"), on=_KEYS, nulls_equal=True)
        .with_row_index("row")
        .with_columns(stage=pl.lit(None, pl.Int64))
    )
    peers = requested.join(find_nccl_peers(requested, numbered), on="row", how="left")
    if peers.is_empty() or peers["peer_lane"].has_nulls():
        return nothing
    upstream = _find_upstream(
        peers, first_forwards.join(numbered.drop("rank"), on=_KEYS, nulls_equal=True), len(lanes)
    )
    if upstream is None:
        return nothing
    stage = _follow(upstream)
    if stage is None or not _connects_neighbours(peers, stage, upstream):
        return nothing
    return numbered.select(*_KEYS, stage=pl.Series(stage, dtype=pl.Int64))


def _find_upstream(peers: pl.DataFrame, first_forwards: pl.DataFrame, count: int) -> Int64s | None:
    """Find the lane that the first forwards of each lane receive from, -1 for none; None where its steps differ."""
    steps = np.bincount(first_forwards["lane"].to_numpy(), minlength=count)
    received = (
        first_forwards.join(
            peers.filter(pl.col("verb") == "receive"), on=["lane", "step"], suffix="_of_message"
        )
        .filter(pl.col("launch_ns") < pl.col("host_end_ns"), pl.col("end_ns") <= pl.col("start_ns"))
        .group_by("lane", "peer_lane")
        .agg(steps=pl.col("step").n_unique())
    )
    share = received["steps"].to_numpy() / steps[received["lane"].to_numpy()]
    often = received.filter(pl.Series(share >= _NEARLY_ALL))
    is_clear = ((share >= _NEARLY_ALL) | (share <= 1 - _NEARLY_ALL)).all()
    if not steps.all() or not is_clear or not often["lane"].is_unique().all():
        return None
    upstream = np.full(count, _NONE)
    upstream[often["lane"].to_numpy()] = often["peer_lane"].to_numpy()
    return upstream


def _follow(upstream: Int64s) -> Int64s | None:
    """Number the stages along the chains of lanes; None without chains of one length, of at least two lanes.

    >>> _follow(np.array([-1, 0, -1, 2])).tolist()
    [0, 1, 0, 1]
    >>> [_follow(np.array(lanes)) for lanes in ([-1, 0, -1], [1, 0], [-1, 0, 0], [-1, -1])]
    [None, None, None, None]
    """
    stage = np.zeros(len(upstream), dtype=np.int64)
    lane = upstream
    while (lane != _NONE).any():
        if stage.max() >= len(upstream):  # a circle
            return None
        stage += lane != _NONE
        lane = np.where(lane == _NONE, _NONE, upstream[lane])
    sizes = np.bincount(stage)
    has_branches = len(np.unique(upstream[upstream != _NONE])) < (upstream != _NONE).sum()
    if len(sizes) < 2 or has_branches or sizes.min() < sizes.max():
        return None
    return stage


def _connects_neighbours(peers: pl.DataFrame, stage: Int64s, upstream: Int64s) -> bool:
    """Whether each message is between neighbours of one chain; the last stage and the first one are neighbours, too."""
    first = np.arange(len(stage))
    for _ in range(int(stage.max())):
        first = np.where(upstream[first] == _NONE, first, upstream[first])
    lane, peer = peers["lane"].to_numpy(), peers["peer_lane"].to_numpy()
    apart = np.abs(stage[lane] - stage[peer])
    is_next = (apart == 1) | (apart == stage.max())
    return bool((is_next & (first[lane] == first[peer])).all())
