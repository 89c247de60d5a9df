"""Peers of messages whose route is unknown: neither name nor stage distinguishes the next lane from the previous one.

A lane exchanges such messages with two others at most. These are found by evidence of all messages, and then each
message belongs to the one of them that has a message with the same end.
"""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.clock import SKEW_NS
from nsys_pp.frames.clock_relations import CLOCK, is_comparable, relative_bound
from nsys_pp.frames.conform import conform
from nsys_pp.training.run.end_evidence import CLEAR
from nsys_pp.training.run.lane_pairs import score_candidates
from nsys_pp.training.run.nccl_peers import PEERS
from nsys_pp.training.run.routes import SLICE, Topology

_PARTNERS = 2  # the previous and the next lane
_SEEN = 0.8  # least share of a lane's messages that end together with one of a partner
_NARROW = 0.15  # greatest distance of ends as a share of the interval between messages
_CLEARLY, _CLEARLY_NS = 4, 20_000  # the end on the other partner is farther by this factor and distance


def find_mixed_peers(
    messages: pl.DataFrame,
    located: pl.DataFrame,
    partners: pl.DataFrame,
    job_times: pl.DataFrame,
    topology: Topology,
) -> pl.DataFrame:
    """Find the peers of messages whose route has several partners (`PEERS`).

    Args:
        messages: From `number_in_steps`; those of mixed routes.
        located: The same, all messages without an NCCL peer.
        partners: lane, peer_lane of lanes that exchange messages of other routes, or must exchange all.
        job_times: From `measure_jobs`.
        topology: Of the stages.
    """
    if messages.is_empty():
        return PEERS.to_frame()
    is_receive = pl.col("verb") == "receive"
    sides = located.drop_nulls("verb").with_columns(
        route=pl.col("lane").cast(pl.Int64) * 2 + is_receive,
        # positions in steps mix the messages of both partners
        has_first=pl.lit(False),
        has_last=pl.lit(False),
    )
    candidates = _list_candidates(sides, messages, topology)
    if candidates.is_empty():
        return PEERS.to_frame()
    scored = score_candidates(sides, candidates, job_times)
    is_clear = pl.all_horizontal(pl.col("score", "contrast") >= CLEAR)
    for side in ("lane", "peer_lane"):
        third = pl.col("score").sort(descending=True).slice(_PARTNERS, 1).first().over(side).fill_null(0.0)
        is_clear &= pl.col("score") >= third + CLEAR
    found = scored.filter(is_clear).select("lane", "peer_lane")
    both = pl.concat(
        [found, found.select(lane="peer_lane", peer_lane="lane"), partners.select(found.columns)]
    )
    return _choose_messages(messages, sides, both.unique())


def _list_candidates(sides: pl.DataFrame, messages: pl.DataFrame, topology: Topology) -> pl.DataFrame:
    """List the lanes that may exchange messages: candidate, send_route, receive_route, lane (sender), peer_lane.

    At least one of them has messages of mixed routes. Lanes of stages that are no neighbours exchange none.
    """
    columns = ["route", "lane", "stage", *SLICE]
    routes = sides.select("verb", *columns).unique("route", maintain_order=True)
    sends, receives = (routes.filter(verb=verb).select(columns) for verb in ("send", "receive"))
    pairs = sends.join(receives, how="cross", suffix="_of_receive")
    mixed = messages["lane"].unique().implode()
    is_possible = [
        pl.col("lane") != pl.col("lane_of_receive"),
        pl.col("lane").is_in(mixed) | pl.col("lane_of_receive").is_in(mixed),
        *((pl.col(name) == pl.col(f"{name}_of_receive")).fill_null(True) for name in SLICE),
    ]
    if topology.stages:
        apart = (pl.col("stage") - pl.col("stage_of_receive")).abs()
        is_possible.append((apart == 1) | ((apart == topology.stages - 1) & pl.lit(not topology.is_line)))
    return (
        pairs.filter(is_possible)
        .select(
            send_route="route", receive_route="route_of_receive", lane="lane", peer_lane="lane_of_receive"
        )
        .with_row_index("candidate")
    )


def _choose_messages(messages: pl.DataFrame, sides: pl.DataFrame, partners: pl.DataFrame) -> pl.DataFrame:
    """Choose for each message the partner with a message that ends at the same time, clearly closer than any other.

    If many messages of a lane have none, although partners have messages at the time, those of others are due to chance.
    """
    opposite = (pl.col("verb") == "send").cast(pl.Int64)
    own = messages.select("row", "lane", "direction", "end_ns", *CLOCK, opposite=opposite)
    own = own.join(partners, on="lane").with_columns(
        route=pl.col("peer_lane").cast(pl.Int64) * 2 + pl.col("opposite")
    )
    others = sides.select("route", "end_ns", "direction", *CLOCK, other_ns="end_ns")
    spans = others.group_by("route").agg(
        first_ns=pl.col("end_ns").min(),
        last_ns=pl.col("end_ns").max(),
        interval_ns=pl.col("end_ns").sort().diff().median(),
    )
    near = (
        own.sort("end_ns")
        .join_asof(
            others.sort("end_ns"),
            on="end_ns",
            by="route",
            strategy="nearest",
            check_sortedness=False,
            suffix="_of_other",
        )
        .join(spans, on="route")
        .filter(pl.col("end_ns").is_between("first_ns", "last_ns"))
        .with_columns(apart=(pl.col("other_ns") - pl.col("end_ns")).abs())
        .sort("apart")
    )
    reach = SKEW_NS + relative_bound("_of_other")
    is_near = (
        (pl.col("direction") == pl.col("direction_of_other")).fill_null(True)
        & is_comparable("_of_other")
        & (pl.col("apart") <= reach).fill_null(False)
        # else most messages are near another one by chance
        & (reach <= _NARROW * pl.col("interval_ns")).fill_null(True)
    )
    second = pl.col("apart").filter(is_near).slice(1, 1).first().over("row")
    is_clear = second.is_null() | (second > _CLEARLY * pl.col("apart") + _CLEARLY_NS)
    is_seen = pl.col("row").filter(is_near).n_unique() >= _SEEN * pl.col("row").n_unique()
    return (
        near.with_columns(is_near=is_near, is_seen=is_seen.over("lane", "opposite"), is_clear=is_clear)
        .filter("is_near", "is_seen", "is_clear")
        .filter(pl.col("apart") == pl.col("apart").first().over("row"))
        .unique("row", keep="first", maintain_order=True)
        .select("row", "peer_lane", is_guess=pl.lit(True))
        .pipe(conform, PEERS)
    )
