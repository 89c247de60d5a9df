"""Peers of messages: the other lane of every send and receive."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.order import order_rows
from nsys_pp.frames.clock import SKEW_NS

NCCL_PEER, STAGES, ENDS = "peer and order", "stages and order", "ends"

_MOSTLY = 0.9  # a lane is the peer of all messages of a channel if it is the peer of at least this share
_OFTEN = 0.5  # messages of two lanes that end together by chance have less than this share
_SAMPLE = 100  # messages of a lane compared to choose its peer among the members of a stage
_CLEARLY, _CLEARLY_NS = 2, 1_000  # the second closest member is farther by this factor and this distance
_SLICE = ("replica", "tensor")


def find_peers(*, lanes: pl.DataFrame, messages: pl.DataFrame, is_folded: bool) -> pl.DataFrame:
    """Find the peer lane of each message.

    The peer is found by the first source that applies: its rank in the NCCL communicator; the stage of the neighbour
    along the pipeline in the direction of the message (of several lanes in this stage, the lane with messages that
    end at the same times, or with the same position by rank); a message of the opposite verb that ends at the same
    time.

    Args:
        lanes: `LANES`.
        messages: `LANE_MESSAGES`.
        is_folded: Whether the model runs along the stages and back (DualPipeV); else it loops.

    Returns:
        The messages, in order, with stage, link (virtual stage of the sender, null where unknown), peer_lane and
        peer_source (`NCCL_PEER`, `STAGES` or `ENDS`), both null where unknown. An NCCL peer without a lane has
        a peer_source, but a null peer_lane.
    """
    slices = lanes.select("lane", "stage", "bound_ns", *(pl.col(name).fill_null(-1) for name in _SLICE))
    located = messages.with_row_index("row").join(slices, on="lane", how="left", maintain_order="left")
    count = count_stages(lanes)
    located = _add_links(located, count, is_folded=is_folded)
    by_nccl = _find_nccl_peers(located, lanes).with_columns(peer_source=pl.lit(NCCL_PEER))
    rest = located.join(by_nccl, on="row", how="anti", maintain_order="left")
    neighbour_messages = _list_neighbour_messages(rest, count, is_folded=is_folded)
    neighbours = _list_neighbours(neighbour_messages, slices)
    is_single = pl.len().over("route") == 1
    single, several = neighbours.filter(is_single), neighbours.filter(~is_single)
    by_stage = neighbour_messages.join(single, on="route").select(
        "row", "peer_lane", peer_source=pl.lit(STAGES)
    )
    neighbour_messages = neighbour_messages.join(several, on="route", how="semi", maintain_order="left")
    peers = pl.concat([by_nccl, by_stage, _choose_members(neighbour_messages, located, several, lanes)])
    # among several members of a stage, the nearest end is often the end of another pair
    rest = rest.join(pl.concat([peers.select("row"), neighbour_messages.select("row")]), on="row", how="anti")
    peers = pl.concat([peers, _find_peers_by_ends(rest, located).with_columns(peer_source=pl.lit(ENDS))])
    return located.join(peers, on="row", how="left", maintain_order="left").drop("row")


def count_stages(lanes: pl.DataFrame) -> int:
    """Count the stages up to the last stage with a lane; 0 where the stage of a lane is unknown."""
    last = lanes["stage"].max()
    return 0 if lanes["stage"].has_nulls() or not isinstance(last, int) else last + 1


def _is_ahead() -> pl.Expr:
    """Return whether the peer holds a later part of the model."""
    return (pl.col("direction") == "forward") == (pl.col("verb") == "send")


def _add_links(messages: pl.DataFrame, count: int, *, is_folded: bool) -> pl.DataFrame:
    """Add `link`: the virtual stage of the sender of each message."""
    stage, chunk = pl.col("stage"), pl.col("chunk")
    back = pl.when(chunk == 0).then(stage).when(chunk > 0).then(2 * count - 1 - stage)
    virtual = pl.coalesce("virtual_stage", back if is_folded else chunk * count + stage)
    along = pl.when(pl.col("direction") == "forward").then(1).otherwise(-1)
    sender = pl.when(pl.col("verb") == "send").then(virtual).otherwise(virtual - along)
    return messages.with_columns(
        virtual=virtual, link=pl.when(pl.col("direction").is_not_null()).then(sender)
    )


def _find_nccl_peers(messages: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Find the peers of messages with an NCCL peer (row, peer_lane; null where the peer has no lane).

    The rank of a lane in a communicator is recorded if the communicator was created during the capture. Else it is
    assumed to be its stage, or its position among the lanes of the communicator, provided that this makes peers mutual:
    if lane A has messages with lane B, then B has messages with A.
    """
    requested = messages.filter(pl.col("communicator").is_not_null(), pl.col("peer").is_not_null())
    if requested.is_empty():
        return _no_peers()
    numbers = lanes.select("lane", order=pl.col("rank").fill_null(pl.col("lane").cast(pl.Int64)))
    members = (
        requested.join(numbers, on="lane")
        .group_by("communicator", "lane")
        .agg(pl.col("rank", "stage", "order").first(), pl.col("peer").unique())
    )
    position = pl.col("order").rank("ordinal").over("communicator").cast(pl.Int64) - 1
    resolved = []
    for number in (pl.col("rank"), pl.col("stage"), position):
        numbered = members.with_columns(number=number).filter(
            pl.col("number").is_not_null().all().over("communicator"),
            pl.col("number").is_unique().over("communicator"),
        )
        member_lanes = numbered.select("communicator", peer="number", peer_lane="lane")
        directed = numbered.select("communicator", "number", "peer").explode("peer")
        opposite = directed.select("communicator", number="peer", peer="number").with_columns(is_mutual=True)
        mutual = (
            directed.join(
                numbered.select("communicator", peer="number", is_member=True),
                on=["communicator", "peer"],
                how="left",
            )
            .join(opposite, on=["communicator", "number", "peer"], how="left")
            .group_by("communicator")
            .agg(
                (pl.col("is_mutual").is_not_null() | pl.col("is_member").is_null())
                .all()
                .alias("is_consistent"),
                pl.col("is_mutual").any().alias("has_mutual"),
            )
            .filter("is_consistent", "has_mutual")
        )
        resolved.append(member_lanes.join(mutual, on="communicator", how="semi"))
        members = members.join(mutual, on="communicator", how="anti")
    member_lanes = pl.concat(resolved)
    return (
        requested.join(member_lanes, on="communicator", how="semi")
        .join(member_lanes, on=["communicator", "peer"], how="left")
        .select("row", "peer_lane")
    )


def _list_neighbour_messages(messages: pl.DataFrame, count: int, *, is_folded: bool) -> pl.DataFrame:
    """List the messages between neighbours along the pipeline.

    Returns:
        row, route (own lane and stage of the peer as one number), lane, next_stage, verb, end_ns, bound_ns.
    """
    directed = messages.filter(
        pl.col("stage").is_not_null(), pl.col("verb").is_not_null(), pl.col("direction").is_not_null(),
        pl.lit(count >= 2),
    )  # fmt: skip
    step = pl.when(_is_ahead()).then(1).otherwise(-1)
    if is_folded:
        directed = directed.filter(pl.col("virtual").is_not_null())
        ahead = pl.col("virtual") + step
        stage = pl.when(ahead < count).then(ahead).otherwise(2 * count - 1 - ahead)
    else:
        stage = (pl.col("stage") + step) % count
    directed = directed.select("row", "lane", "verb", "end_ns", "bound_ns", next_stage=stage)
    return directed.filter(pl.col("next_stage").is_between(0, count - 1)).with_columns(
        route=pl.col("lane").cast(pl.Int64) * count + pl.col("next_stage")
    )


def _list_neighbours(neighbour_messages: pl.DataFrame, slices: pl.DataFrame) -> pl.DataFrame:
    """List the lanes of the next stage in the same replica and tensor slice (route, lane, peer_lane)."""
    candidates = slices.select(*_SLICE, next_stage="stage", peer_lane="lane")
    return (
        neighbour_messages.unique("route", maintain_order=True)
        .join(slices.select("lane", *_SLICE), on="lane", maintain_order="left")
        .join(candidates, on=[*_SLICE, "next_stage"], maintain_order="left")
        .filter(pl.col("peer_lane") != pl.col("lane"))
        .select("route", "lane", "peer_lane")
    )


def _choose_members(
    neighbour_messages: pl.DataFrame, messages: pl.DataFrame, candidates: pl.DataFrame, lanes: pl.DataFrame
) -> pl.DataFrame:
    """Choose the peer among the members of a stage (row, peer_lane, peer_source), the same for all messages of a route.

    Two lanes are peers if their messages end closer together than with any other member. Where ends are ambiguous, as
    between tensor slices or with buffered messages, peers are the members with the same position by rank, unless
    messages of other members end together more often.
    """
    if candidates.is_empty():
        return _no_peers().with_columns(peer_source=pl.lit(STAGES))
    near = _measure_nearest(_sample(neighbour_messages).join(candidates.drop("lane"), on="route"), messages)
    low, high = pl.min_horizontal("lane", "peer_lane"), pl.max_horizontal("lane", "peer_lane")
    later = pl.when(pl.col("lane") < pl.col("peer_lane")).then(1).otherwise(-1)
    apart, bound = pl.col("apart_ns"), pl.col("bound_ns")
    # clocks may differ by a constant offset, at most the bound
    offset = pl.max_horizontal(-bound, pl.min_horizontal(bound, apart.median().over("low", "high")))
    ends = (
        near.with_columns(low=low, high=high, apart_ns=apart * later)
        .with_columns(off_ns=(apart - offset).abs().clip(upper_bound=SKEW_NS))
        .group_by("low", "high")
        .agg(pl.col("off_ns").mean(), share=(apart.abs() <= SKEW_NS + bound).mean())
    )
    pairs = pl.concat(
        [
            ends.rename({"low": first, "high": second})
            for first, second in (("lane", "peer_lane"), ("peer_lane", "lane"))
        ],
        how="diagonal",
    )
    pairs = candidates.select("lane", "peer_lane").unique().join(pairs, on=["lane", "peer_lane"])
    numbered = _number_members(lanes)
    pairs = pairs.join(numbered, on="lane", how="left").join(
        numbered.rename({"lane": "peer_lane"}), on="peer_lane", how="left", suffix="_of_peer"
    )
    sides = (["lane", "stage_of_peer"], ["peer_lane", "stage"])
    chosen = pairs.with_columns(
        is_closest=pl.all_horizontal(_is_clearly_least("off_ns", side) for side in sides)
        & (pl.col("share") >= _OFTEN),
        is_alike=pl.all_horizontal(_is_as_often("share", side) for side in sides)
        & (pl.col("member") == pl.col("member_of_peer")),
    )
    is_settled = pl.any_horizontal(pl.col("is_closest").any().over(side) for side in sides)
    peer_source = pl.when("is_closest").then(pl.lit(ENDS)).otherwise(pl.lit(STAGES))
    peers = chosen.with_columns(peer_source=peer_source).filter(
        pl.col("is_closest") | (pl.col("is_alike").fill_null(value=False) & ~is_settled)
    )
    peer_of_route = candidates.join(
        peers.select("lane", "peer_lane", "peer_source"), on=["lane", "peer_lane"]
    )
    return neighbour_messages.join(peer_of_route, on="route").select("row", "peer_lane", "peer_source")


def _sample(directed: pl.DataFrame) -> pl.DataFrame:
    """Sample up to `_SAMPLE` messages of each route, evenly in order of their ends."""
    route = directed["route"].to_numpy()
    order = order_rows(route, directed["end_ns"].to_numpy())
    first = np.flatnonzero(np.diff(route[order], prepend=-1))
    count = np.diff(np.append(first, len(order)))
    turn = (np.arange(len(order)) - np.repeat(first, count)) * _SAMPLE // np.repeat(count, count)
    is_next = np.diff(turn, prepend=-1) != 0
    is_next[first] = True
    sample: pl.DataFrame = directed[order[is_next]]
    return sample


def _measure_nearest(directed: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Measure the distance from each message (with `peer_lane`) to the nearest end of the opposite verb on the peer.

    Returns:
        lane, peer_lane, apart_ns, bound_ns (of both clocks); only for ends during the capture of the peer.
    """
    others = messages.select(
        "end_ns",
        verb=pl.col("verb").replace({"send": "receive", "receive": "send"}),
        peer_lane="lane",
        other_ns="end_ns",
        other_bound_ns="bound_ns",
    ).sort("end_ns")
    spans = others.group_by("peer_lane").agg(first_ns=pl.col("end_ns").min(), last_ns=pl.col("end_ns").max())
    return (
        directed.sort("end_ns")
        .join_asof(others, on="end_ns", by=["peer_lane", "verb"], strategy="nearest", check_sortedness=False)
        .join(spans, on="peer_lane")
        .filter(pl.col("end_ns").is_between("first_ns", "last_ns"), pl.col("other_ns").is_not_null())
        .select(
            *("lane", "peer_lane"),
            apart_ns=pl.col("end_ns") - pl.col("other_ns"),
            bound_ns=pl.sum_horizontal("bound_ns", "other_bound_ns"),
        )
    )


def _number_members(lanes: pl.DataFrame) -> pl.DataFrame:
    """Number the lanes of each stage by rank (lane, stage, member).

    `member` is null unless the ranks of all stages have the same pattern, so that lanes with equal numbers form a
    pipeline.
    """
    group = ["stage", *_SLICE]
    member = pl.col("rank").rank("ordinal").over(group)
    since = pl.col("rank") - pl.col("rank").min().over(group)
    numbered = lanes.with_columns(pl.col(name).fill_null(-1) for name in _SLICE).drop_nulls("stage")
    numbered = numbered.with_columns(member=member, since=since)
    is_even = (
        numbered["rank"].null_count() == 0
        and numbered["rank"].is_unique().all()
        and numbered.select(pl.len().over(group).n_unique() == 1).item()
        and numbered.select((pl.col("since").n_unique().over(*_SLICE, "member") == 1).all()).item()
    )
    return numbered.select("lane", "stage", member=pl.col("member") if is_even else pl.lit(None, pl.UInt32))


def _is_clearly_least(name: str, side: list[str]) -> pl.Expr:
    """Return whether a value is the least of its side, and the second least clearly greater."""
    least = pl.col(name).min().over(side)
    second = pl.col(name).sort().slice(1, 1).first().over(side)
    return (pl.col(name) == least) & ((second > _CLEARLY * least + _CLEARLY_NS) | second.is_null())


def _is_as_often(name: str, side: list[str]) -> pl.Expr:
    """Return whether a share is about the greatest of its side, or all shares of the side are due to chance."""
    most = pl.col(name).max().over(side)
    return (pl.col(name) >= _MOSTLY * most) | (most < _OFTEN)


def _find_peers_by_ends(rest: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Find the lane with a message of the opposite verb that ends at the same time (row, peer_lane).

    If most messages of a channel have one peer, all its messages have this peer; if few messages have a peer, none has.
    A kernel that sends and receives ends with the later of both, so only this message is found by its end; the other
    has the same peer.
    """
    directed = rest.filter(pl.col("verb").is_not_null())
    if directed.is_empty():
        return _no_peers()
    others = messages.select(
        *("end_ns", "verb", *_SLICE, "direction"), peer_lane="lane", peer_bound_ns="bound_ns"
    ).with_columns(verb=pl.col("verb").replace({"send": "receive", "receive": "send"}))
    near = []
    for shift in ("backward", "forward"):
        near.append(
            directed.sort("end_ns").join_asof(
                others.sort("end_ns").with_columns(other_ns="end_ns"),
                on="end_ns",
                by=["verb", *_SLICE],
                strategy=shift,
                check_sortedness=False,
                suffix="_of_other",
            )
        )
    apart = (pl.col("end_ns") - pl.col("other_ns")).abs()
    bound = SKEW_NS + pl.sum_horizontal("bound_ns", "peer_bound_ns")
    closest = (
        pl.concat(near)
        .filter(pl.col("peer_lane") != pl.col("lane"), apart <= bound)
        .sort(apart)
        .unique("row", keep="first", maintain_order=True)
    )
    channel = ["lane", "context_id", "stream_id", "verb", "direction", "chunk"]
    counts = directed.group_by(channel).len("messages")
    often = (
        closest.group_by(channel)
        .len("votes")
        .join(counts, on=channel, nulls_equal=True)
        .filter(pl.col("votes") >= _OFTEN * pl.col("messages"))
    )
    closest = closest.join(often.select(channel), on=channel, how="semi", nulls_equal=True)
    counted = closest.group_by(*channel, "peer_lane").len("votes")
    usual = counted.filter(
        pl.col("votes") > 1, pl.col("votes") >= _MOSTLY * pl.col("votes").sum().over(channel)
    ).rename({"peer_lane": "usual"})
    own = closest.select("row", "peer_lane")
    same_kernel = directed.join(own, on="row").unique(["lane", "op_id"], keep="first")
    return (
        directed.join(usual, on=channel, how="left", nulls_equal=True)
        .join(own, on="row", how="left")
        .join(same_kernel.select("lane", "op_id", same_kernel="peer_lane"), on=["lane", "op_id"], how="left")
        .select("row", peer_lane=pl.coalesce("usual", "peer_lane", "same_kernel"))
        .drop_nulls()
    )


def _no_peers() -> pl.DataFrame:
    return pl.DataFrame(schema={"row": pl.UInt32, "peer_lane": pl.UInt32})
