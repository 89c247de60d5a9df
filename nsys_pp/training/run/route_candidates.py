"""Candidates for messages: pairs of routes, one of sends and one of receives, that may belong together."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import find_distinct, index_rows, whole_numbers
from nsys_pp.frames.columns import select_columns
from nsys_pp.training.run.routes import SLICE, Topology

_MOST_CHUNKS = 1 << 20


def list_candidates(messages: pl.DataFrame, topology: Topology) -> pl.DataFrame:
    """List the pairs of routes that may be two sides of the same messages.

    Where stages are known: routes to and from the same stages. Else: routes in the same direction and, where chunks are
    known, of the same or the next chunk.

    Args:
        messages: From `locate_messages`.
        topology: Of the stages.

    Returns:
        candidate, send_route, receive_route, near, far, near_lane, far_lane and kind. Each near has one far, and each
        far one near: lanes, for each neighbouring stage; without stages lanes, earlier and later along the model; where
        chunks are known but stages are not, routes. The lanes of candidates of one kind (direction and chunks; 0 in
        other cases) mostly have the same distance.
    """
    # all messages of a route have the same verb, direction and target
    first, _ = find_distinct(whole_numbers(messages["route"]))
    columns = ["verb", "route", "lane", "stage", "target", "direction", "chunk", *SLICE]
    routes = index_rows(select_columns(messages, columns), np.sort(first)).filter(
        pl.col("verb").is_not_null(),
        pl.col("direction").is_not_null(),
        pl.col("target").is_not_null() == (topology.stages > 1),
    )
    sends, receives = (routes.filter(verb=verb).drop("verb") for verb in ("send", "receive"))
    # all pairs of a direction are too many where there are many lanes
    own, other = ["direction"], ["direction"]
    if topology.stages > 1:
        own, other = [*own, "stage", "target"], [*other, "target", "stage"]
    pairs = sends.join(
        receives,
        left_on=own,
        right_on=other,
        suffix="_of_receive",
        coalesce=False,
        maintain_order="right_left",
    )
    send, receive = pl.col("lane").cast(pl.Int64), pl.col("lane_of_receive").cast(pl.Int64)
    is_alike = [(pl.col(name) == pl.col(f"{name}_of_receive")).fill_null(True) for name in SLICE]
    is_possible = [send != receive, *is_alike]
    kind = pl.lit(0)
    is_chunked = topology.stages <= 1 and (routes["chunk"] > 0).any()
    if topology.stages > 1:
        span = topology.stages  # one partner in each stage
        is_ahead = send < receive  # lanes are in order of stages
        near, far = send * span + pl.col("target"), receive * span + pl.col("stage")
    elif is_chunked:
        is_possible.append((pl.col("chunk") - pl.col("chunk_of_receive")).abs().fill_null(0) <= 1)
        near, far = pl.col("route"), pl.col("route_of_receive")
        is_ahead = pl.lit(True)
        direction, *chunks = (
            pl.col(name).to_physical().cast(pl.Int64).fill_null(-1) + 1
            for name in ("direction", "chunk", "chunk_of_receive")
        )
        kind = (direction * _MOST_CHUNKS + chunks[0]) * _MOST_CHUNKS + chunks[1]
    else:
        near, far = send, receive
        is_ahead = pl.col("direction") == "forward"
    ordered = order_sides(is_ahead, near=near, far=far, near_lane=send, far_lane=receive)
    return (
        pairs.filter(is_possible)
        .select(send_route="route", receive_route="route_of_receive", kind=kind, **ordered)
        .with_row_index("candidate")
    )


def order_sides(
    is_ahead: pl.Expr, *, near: pl.Expr, far: pl.Expr, near_lane: pl.Expr, far_lane: pl.Expr
) -> dict[str, pl.Expr]:
    """Order the sides of pairs along the model: near, far, near_lane and far_lane, exchanged unless `is_ahead`."""
    columns = {
        "near": (near, far),
        "far": (far, near),
        "near_lane": (near_lane, far_lane),
        "far_lane": (far_lane, near_lane),
    }
    return {
        name: pl.when(is_ahead).then(first).otherwise(second).cast(pl.Int64)
        for name, (first, second) in columns.items()
    }
