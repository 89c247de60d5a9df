"""Peers of messages whose route is unknown: neither name nor stage distinguishes the next lane from the previous one.

A lane exchanges such messages with two others at most. These are found by evidence of all messages, and then each
message belongs to the one of them that has a message with the same end.
"""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.clock import CLOCK, SKEW_NS, is_comparable, relative_bound
from nsys_pp.frames.training import DIRECTION
from nsys_pp.training.run.assignment import choose_pairs
from nsys_pp.training.run.lane_pairs import score_candidates
from nsys_pp.training.run.nccl_peers import PEERS
from nsys_pp.training.run.route_candidates import order_sides
from nsys_pp.training.run.routes import SLICE, Topology

_PART = 0.3  # of the messages of a lane belong to each of its partners at least: about half, or all
_SEEN = 0.8  # least share of a lane's messages that end together with one of a partner
_NARROW = 0.15  # greatest distance of ends as a share of the interval between messages
_CLEARLY, _CLEARLY_NS = 4, 20_000  # the end on the other partner is farther by this factor and distance
_WAYS = 1 + len(DIRECTION.categories)


def find_mixed_peers(
    messages: pl.DataFrame,
    located: pl.DataFrame,
    partners: pl.DataFrame,
    job_times: pl.DataFrame,
    lanes: pl.DataFrame,
    topology: Topology,
) -> pl.DataFrame:
    """Find the peers of messages whose route has several partners (`PEERS` with is_doubtful).

    Args:
        messages: From `number_in_steps`; those of mixed routes: either all have a direction, or none has.
        located: The same, all messages without an NCCL peer.
        partners: lane, peer_lane of lanes that exchange messages of other routes, or must exchange all.
        job_times: From `measure_jobs`.
        lanes: `LANES`.
        topology: Of the stages; there are two or more.
    """
    nothing = PEERS.to_frame().with_columns(is_doubtful=pl.lit(False))
    if messages.is_empty():
        return nothing
    sides = located.drop_nulls("verb" if messages["direction"].has_nulls() else ["verb", "direction"])
    sides = sides.with_columns(
        route=_number_route("lane", pl.col("verb") == "receive"),
        # positions in steps mix the messages of both partners
        has_first=pl.lit(False),
        has_last=pl.lit(False),
    )
    candidates = _list_candidates(sides, messages, topology)
    if candidates.is_empty():
        return nothing
    scored = score_candidates(sides, candidates, job_times, share=_PART)
    chosen = choose_pairs(scored, lanes, has_others=True)
    pairs = candidates.join(chosen, on=["near", "far"]).cast({"near_lane": pl.UInt32, "far_lane": pl.UInt32})
    both = [
        pairs.select("is_doubtful", lane=own, peer_lane=other)
        for own, other in (("near_lane", "far_lane"), ("far_lane", "near_lane"))
    ]
    known = partners.with_columns(is_doubtful=pl.lit(False))
    columns = ["lane", "peer_lane", "is_doubtful"]
    partners = pl.concat([known.select(columns), *(part.select(columns) for part in both)])
    return _choose_messages(messages, sides, partners.unique(columns[:2], keep="first", maintain_order=True))


def _number_route(lane: str, is_receive: pl.Expr) -> pl.Expr:
    """Number the messages of one lane with the same verb and direction."""
    way = pl.col("direction").to_physical().cast(pl.Int64).fill_null(-1) + 1
    return (pl.col(lane).cast(pl.Int64) * 2 + is_receive.cast(pl.Int64)) * _WAYS + way


def _list_candidates(sides: pl.DataFrame, messages: pl.DataFrame, topology: Topology) -> pl.DataFrame:
    """List the routes that may be two sides of the same messages.

    At least one of their lanes has messages of mixed routes. Lanes of stages that are no neighbours exchange none.

    Returns:
        As `list_candidates`.
    """
    columns = ["route", "lane", "stage", "direction", *SLICE]
    routes = sides.select("verb", *columns).unique("route", maintain_order=True)
    sends, receives = (routes.filter(verb=verb).select(columns) for verb in ("send", "receive"))
    pairs = sends.join(receives, on="direction", nulls_equal=True, suffix="_of_receive")
    mixed = messages["lane"].unique().implode()
    apart = (pl.col("stage") - pl.col("stage_of_receive")).abs()
    is_possible = [
        pl.col("lane") != pl.col("lane_of_receive"),
        pl.col("lane").is_in(mixed) | pl.col("lane_of_receive").is_in(mixed),
        (apart == 1) | ((apart == topology.stages - 1) & pl.lit(not topology.is_line)),
        *((pl.col(name) == pl.col(f"{name}_of_receive")).fill_null(True) for name in SLICE),
    ]
    send, receive = pl.col("lane").cast(pl.Int64), pl.col("lane_of_receive").cast(pl.Int64)
    return (
        pairs.filter(is_possible)
        .select(
            send_route="route",
            receive_route="route_of_receive",
            kind=pl.lit(0),
            **order_sides(
                send < receive,  # lanes are in order of stages
                near=send * topology.stages + pl.col("stage_of_receive"),
                far=receive * topology.stages + pl.col("stage"),
                near_lane=send,
                far_lane=receive,
            ),
        )
        .with_row_index("candidate")
    )


def _choose_messages(messages: pl.DataFrame, sides: pl.DataFrame, partners: pl.DataFrame) -> pl.DataFrame:
    """Choose for each message the partner with a message that ends at the same time, clearly closer than any other.

    If many messages of a lane have none, although partners have messages at the time, those of others are due to chance.
    """
    opposite = pl.col("verb") == "send"
    own = messages.select("row", "lane", "direction", "end_ns", *CLOCK, opposite=opposite)
    own = own.join(partners, on="lane").with_columns(route=_number_route("peer_lane", pl.col("opposite")))
    others = sides.select("route", "end_ns", *CLOCK, other_ns="end_ns", other_row="row")
    spans = others.group_by("route").agg(
        first_ns=pl.col("end_ns").min(),
        last_ns=pl.col("end_ns").max(),
        interval_ns=pl.col("end_ns").sort().diff().median(),
    )
    reach = SKEW_NS + relative_bound("_of_other").fill_null(0)
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
        .filter(pl.col("end_ns").is_between(pl.col("first_ns") - reach, pl.col("last_ns") + reach))
        .with_columns(apart=(pl.col("other_ns") - pl.col("end_ns")).abs())
        .sort("apart")
    )
    is_near = (
        is_comparable("_of_other")
        & (pl.col("apart") <= reach).fill_null(False)
        # else most messages are near another one by chance
        & (reach <= _NARROW * pl.col("interval_ns")).fill_null(True)
    )
    second = pl.col("apart").filter(is_near).slice(1, 1).first().over("row")
    is_clear = second.is_null() | (second > _CLEARLY * pl.col("apart") + _CLEARLY_NS)
    is_seen = pl.col("row").filter(is_near).n_unique() >= _SEEN * pl.col("row").n_unique()
    chosen = (
        near.with_columns(is_near=is_near, is_seen=is_seen.over("lane", "opposite"), is_clear=is_clear)
        .filter("is_near", "is_seen", "is_clear")
        .filter(pl.col("apart") == pl.col("apart").first().over("row"))
        .unique("row", keep="first", maintain_order=True)
    )
    # both sides of a message choose each other, so that neither is missing in the order of the other
    back = chosen.select(other_row="row", back_row="other_row")
    is_routed = ~pl.col("other_row").is_in(messages["row"].implode())
    return (
        chosen.join(back, on="other_row", how="left", maintain_order="left")
        .filter(is_routed | (pl.col("back_row") == pl.col("row")))
        .select("row", "peer_lane", "is_doubtful", is_guess=pl.lit(True))
        .select(*PEERS, "is_doubtful")
    )
