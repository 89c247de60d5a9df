"""Peers of messages: the other lane of every send and receive."""

from __future__ import annotations

import polars as pl

from nsys_pp.arrays.columns import keep_rows, whole_numbers
from nsys_pp.arrays.members import mark_members
from nsys_pp.frames.columns import build_frame
from nsys_pp.frames.conform import extend_schema
from nsys_pp.training.run.assignment import choose_pairs
from nsys_pp.training.run.lane_pairs import measure_jobs, score_candidates
from nsys_pp.training.run.mixed_routes import find_mixed_peers
from nsys_pp.training.run.nccl_peers import PEERS, find_nccl_peers
from nsys_pp.training.run.pair_checks import ENDS
from nsys_pp.training.run.route_candidates import list_candidates
from nsys_pp.training.run.routes import SLICE, Topology, locate_messages
from nsys_pp.training.run.step_positions import mark_step_edges, number_in_steps

NCCL_PEER, ONLY, STAGES = "peer and order", "only peer and order", "stages and order"

_PEERS = extend_schema(PEERS, {"peer_source": pl.String, "is_doubtful": pl.Boolean}, name="_PEERS")


def find_peers(
    *,
    lanes: pl.DataFrame,
    messages: pl.DataFrame,
    steps: pl.DataFrame,
    jobs: pl.DataFrame,
    topology: Topology,
) -> pl.DataFrame:
    """Find the peer lane of each message.

    The peer is found by the first source that applies: its rank in the NCCL communicator; the stage of the neighbour
    along the pipeline in the direction of the message (of several lanes in this stage, the lane whose messages end
    at the same times); where stages are unknown, the only other lane, or the lane whose messages end at the same times;
    where directions or chunks are unknown too, of these lanes the one with a message that ends at the same time.

    Args:
        lanes: `LANES`.
        messages: `LANE_MESSAGES`.
        steps: `RUN_STEPS`.
        jobs: `RUN_JOBS`, for their durations.
        topology: Of the stages.

    Returns:
        The messages, in order, with the columns of `locate_messages` and `mark_step_edges`, peer_lane and peer_source
        (`NCCL_PEER`, `ONLY`, `STAGES` or `ENDS`), both null where unknown, and is_doubtful. An NCCL peer without a lane has
        a peer_source, but a null peer_lane. is_guess is false for the peers whose rank is recorded.
    """
    located = mark_step_edges(locate_messages(lanes, messages, topology), steps).pipe(number_in_steps)
    by_nccl = find_nccl_peers(located, lanes).with_columns(
        peer_source=pl.lit(NCCL_PEER), is_doubtful=pl.lit(False)
    )
    if topology.stages < 2:
        by_nccl = pl.concat([by_nccl, _find_only_peers(located, by_nccl, lanes)])
    rest = _omit(located, by_nccl)
    job_times = measure_jobs(jobs)
    forced = _list_forced(lanes, topology)
    by_route = _find_route_peers(rest, lanes, job_times, topology, forced)
    peers = pl.concat([by_nccl, by_route])
    unrouted = _omit(rest, by_route)
    if len(unrouted):
        unrouted = unrouted.filter(_is_mixed(rest, topology))
    if unrouted.is_empty():
        return located.join(peers, on="row", how="left", maintain_order="left")
    routed = rest.select("row", "lane").join(by_route, on="row").select("lane", "peer_lane").unique()
    partners = pl.concat([routed, forced]).unique()
    mixed = find_mixed_peers(unrouted, rest, partners, job_times, lanes, topology)
    by_end = mixed.with_columns(peer_source=pl.lit(ENDS))
    peers = pl.concat([peers, by_end.select(by_nccl.columns)])
    # messages of a mixed route are found one by one: those that are missing shift the positions of others
    is_mixed = pl.col("row").is_in(mixed["row"].implode())
    return located.join(peers, on="row", how="left", maintain_order="left").with_columns(
        pl.col("has_first", "has_last") & ~is_mixed
    )


def _omit(messages: pl.DataFrame, peers: pl.DataFrame) -> pl.DataFrame:
    """Return the messages without a peer in a frame of peers, in order; all of them without a copy."""
    return keep_rows(messages, ~mark_members(whole_numbers(messages["row"]), whole_numbers(peers["row"])))


def _find_only_peers(messages: pl.DataFrame, by_nccl: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Find the peers of the other messages of a run of two ranks (columns of `by_nccl`)."""
    if sorted(lanes["rank"].fill_null(-1)) != [0, 1]:
        return by_nccl.clear()
    rest = _omit(messages, by_nccl).drop_nulls("verb")
    others = lanes.select("lane", peer_lane=pl.col("lane").reverse())
    found = rest.select("row", "lane").join(others, on="lane", maintain_order="left")
    return found.select(
        "row", "peer_lane", is_guess=pl.lit(True), peer_source=pl.lit(ONLY), is_doubtful=pl.lit(False)
    )


def _is_mixed(messages: pl.DataFrame, topology: Topology) -> pl.Expr:
    """Return the mask of messages whose route may have several partners, of those whose route has no peer.

    They have no known chunk in a fold, or no direction, if no name has one: else these are messages between replicas.
    Where stages are unknown, the ends of messages without a direction do not distinguish senders from receivers: in a
    ring, all members end together.
    """
    is_unknown = pl.col("target").is_null() & pl.col("direction").is_not_null() & pl.col("chunk").is_null()
    is_mixed = is_unknown & pl.lit(topology.is_folded) | pl.lit(messages["direction"].count() == 0)
    return pl.col("verb").is_not_null() & is_mixed & pl.lit(topology.stages > 1)


def _list_forced(lanes: pl.DataFrame, topology: Topology) -> pl.DataFrame:
    """List the lanes that must exchange all messages: lane, peer_lane, of the same slice and neighbouring stages."""
    forced = lanes.filter(_is_forced(lanes) & pl.lit(topology.stages > 1)).select("lane", "stage", *SLICE)
    if forced.is_empty():
        return build_frame([forced["lane"], forced["lane"].alias("peer_lane")])
    pairs = forced.join(forced, on=SLICE, nulls_equal=True, suffix="_of_peer")
    apart = (pl.col("stage") - pl.col("stage_of_peer")).abs()
    is_next = (apart == 1) | ((apart == topology.stages - 1) & pl.lit(not topology.is_line))
    return pairs.filter(is_next & (apart > 0)).select("lane", peer_lane="lane_of_peer")


def _find_route_peers(
    messages: pl.DataFrame,
    lanes: pl.DataFrame,
    job_times: pl.DataFrame,
    topology: Topology,
    forced: pl.DataFrame,
) -> pl.DataFrame:
    """Find the peers of routes: between stages or, where these are unknown, along the model; `forced` is from `_list_forced`."""
    with_stage = topology.stages > 1
    candidates = list_candidates(messages, topology)
    if len(forced):
        candidates = candidates.join(
            forced.select(near_lane=pl.col("lane").cast(pl.Int64)).unique(),
            on="near_lane",
            how="anti",
            maintain_order="left",
        )
        candidates = candidates.drop("candidate").with_row_index("candidate")
    forced = forced.with_columns(is_doubtful=pl.lit(False))
    chosen = choose_pairs(score_candidates(messages, candidates, job_times), lanes)
    routes = candidates.join(chosen, on=["near", "far"])
    if with_stage:
        both = [
            routes.select("is_doubtful", lane=own, peer_lane=other).cast(
                {"lane": pl.UInt32, "peer_lane": pl.UInt32}
            )
            for own, other in (("near_lane", "far_lane"), ("far_lane", "near_lane"))
        ]
        pairs = pl.concat([part.select("lane", "peer_lane", "is_doubtful") for part in (forced, *both)])
        targets = lanes.select(peer_lane="lane", target="stage")
        found = messages.select("row", "lane", "target").join(
            pairs.unique().join(targets, on="peer_lane"), on=["lane", "target"], maintain_order="left"
        )
    else:
        lane_of = messages.select("route", "lane").unique()
        both = [
            routes.select("is_doubtful", route=own, other=other).join(
                lane_of.select(other="route", peer_lane="lane"), on="other"
            )
            for own, other in (("send_route", "receive_route"), ("receive_route", "send_route"))
        ]
        found = messages.select("row", "route").join(pl.concat(both), on="route", maintain_order="left")
    return found.with_columns(
        is_guess=pl.lit(True), peer_source=pl.lit(STAGES if with_stage else ENDS)
    ).select(*_PEERS)


def _is_forced(lanes: pl.DataFrame) -> pl.Expr:
    """Return the mask of lanes with one possible peer in each stage, also without evidence of times.

    Their slice is known; or each stage has one lane, and no rank is missing.
    """
    ranks = lanes["rank"].drop_nulls()
    is_complete = len(ranks) == 0 or ranks.max() == len(lanes) - 1
    is_single = is_complete and bool(lanes["stage"].is_unique().all())
    return pl.all_horizontal(pl.col(name).is_not_null() for name in SLICE) | pl.lit(is_single)
