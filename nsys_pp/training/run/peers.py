"""With whom each message is exchanged: the other lane of every send and receive."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.training.run.columns import order_rows

TOLD, STAGES, ENDS = "peer and order", "stages and order", "ends"
SKEW_NS = 50_000
"""How far apart the ends of a send and its receive may lie on one clock: 26 us were seen on two H100s."""

_MOSTLY = 0.9  # of a channel's messages: then the peer of those is the peer of all
_OFTEN = 0.5  # of a channel's messages must end with one of another lane, or those that do are chance
_SAMPLE = 100  # messages of a lane by which its peer is chosen among the members of a stage
_CLEARLY, _CLEARLY_NS = 2, 1_000  # so much further apart are the ends of the next best member
_PLACE = ("replica", "tensor")


def find_peers(*, lanes: pl.DataFrame, messages: pl.DataFrame, is_folded: bool) -> pl.DataFrame:
    """Find the other lane of each message.

    NCCL tells the peer's number within the communicator. Else it is the neighbour along the pipeline, in
    the direction that the message's name tells; of several in that stage, the one whose messages end when these
    do, or the one of the same place by rank. Else it is the lane on which a message of the opposite kind ends at
    the same time.

    Args:
        lanes: `LANES`.
        messages: `MESSAGES` with `lane`.
        is_folded: The pipeline goes along the stages and back (DualPipeV), else round and round.

    Returns:
        The messages, in order, with stage, link (virtual stage of the sender, null where unknown), peer_lane
        and how: what tells the peer; both null where nothing does. A peer that NCCL tells, but that is no lane,
        has how alone.
    """
    places = lanes.select("lane", "stage", "bound_ns", *(pl.col(name).fill_null(-1) for name in _PLACE))
    located = messages.with_row_index("row").join(places, on="lane", how="left", maintain_order="left")
    count = count_stages(lanes)
    located = _with_links(located, count, is_folded=is_folded)
    told = _told(located, lanes).with_columns(how=pl.lit(TOLD))
    rest = located.join(told, on="row", how="anti", maintain_order="left")
    asked = _ask(rest, count, is_folded=is_folded)
    neighbours = _neighbours(asked, places)
    is_one = pl.len().over("way") == 1
    alone, several = neighbours.filter(is_one), neighbours.filter(~is_one)
    by_stage = asked.join(alone, on="way").select("row", "peer_lane", how=pl.lit(STAGES))
    asked = asked.join(several, on="way", how="semi", maintain_order="left")
    known = pl.concat([told, by_stage, _members(asked, located, several, lanes)])
    # of some members the nearest end is often a wrong one's
    rest = rest.join(pl.concat([known.select("row"), asked.select("row")]), on="row", how="anti")
    known = pl.concat([known, _by_ends(rest, located).with_columns(how=pl.lit(ENDS))])
    return located.join(known, on="row", how="left", maintain_order="left").drop("row")


def count_stages(lanes: pl.DataFrame) -> int:
    """Count the stages of the pipeline, 0 where some are unknown; those after the last that has a lane are not seen."""
    last = lanes["stage"].max()
    return 0 if lanes["stage"].has_nulls() or not isinstance(last, int) else last + 1


def _is_ahead() -> pl.Expr:
    """Is the peer further along the model?"""
    return (pl.col("direction") == "forward") == (pl.col("verb") == "send")


def _with_links(messages: pl.DataFrame, count: int, *, is_folded: bool) -> pl.DataFrame:
    """Add `link`: the virtual stage from which each message comes."""
    stage, chunk = pl.col("stage"), pl.col("chunk")
    back = pl.when(chunk == 0).then(stage).when(chunk > 0).then(2 * count - 1 - stage)
    virtual = pl.coalesce("virtual_stage", back if is_folded else chunk * count + stage)
    along = pl.when(pl.col("direction") == "forward").then(1).otherwise(-1)
    sender = pl.when(pl.col("verb") == "send").then(virtual).otherwise(virtual - along)
    return messages.with_columns(
        virtual=virtual, link=pl.when(pl.col("direction").is_not_null()).then(sender)
    )


def _told(messages: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Take the peers that NCCL tells (row, peer_lane, which is null where the peer is no lane).

    A lane's own number within a communicator is known if that was made during the capture. Else its stage is
    taken for it, or its place among the lanes that use it; that is believed if every peer answers.
    """
    told = messages.filter(pl.col("communicator").is_not_null(), pl.col("peer").is_not_null())
    if told.is_empty():
        return _nobody()
    numbers = lanes.select("lane", order=pl.col("rank").fill_null(pl.col("lane").cast(pl.Int64)))
    members = (
        told.join(numbers, on="lane")
        .group_by("communicator", "lane")
        .agg(pl.col("rank", "stage", "order").first(), pl.col("peer").unique())
    )
    place = pl.col("order").rank("ordinal").over("communicator").cast(pl.Int64) - 1
    found = []
    for number in (pl.col("rank"), pl.col("stage"), place):
        numbered = members.with_columns(number=number).filter(
            pl.col("number").is_not_null().all().over("communicator"),
            pl.col("number").is_unique().over("communicator"),
        )
        seats = numbered.select("communicator", peer="number", peer_lane="lane")
        asked = numbered.select("communicator", "number", "peer").explode("peer")
        answers = asked.select("communicator", number="peer", peer="number").with_columns(is_answered=True)
        is_mutual = (
            asked.join(
                numbered.select("communicator", peer="number", has_seat=True),
                on=["communicator", "peer"],
                how="left",
            )
            .join(answers, on=["communicator", "number", "peer"], how="left")
            .group_by("communicator")
            .agg(
                (pl.col("is_answered").is_not_null() | pl.col("has_seat").is_null()).all().alias("fits"),
                pl.col("is_answered").any().alias("some"),
            )
            .filter("fits", "some")
        )
        found.append(seats.join(is_mutual, on="communicator", how="semi"))
        members = members.join(is_mutual, on="communicator", how="anti")
    seats = pl.concat(found)
    return (
        told.join(seats, on="communicator", how="semi")
        .join(seats, on=["communicator", "peer"], how="left")
        .select("row", "peer_lane")
    )


def _ask(messages: pl.DataFrame, count: int, *, is_folded: bool) -> pl.DataFrame:
    """List the messages whose peer is a neighbour along the pipeline.

    Returns:
        row, way (lane and stage of the peer as one number), lane, next_stage, verb, end_ns, bound_ns.
    """
    known = messages.filter(
        pl.col("stage").is_not_null(), pl.col("verb").is_not_null(), pl.col("direction").is_not_null(),
        pl.lit(count >= 2),
    )  # fmt: skip
    step = pl.when(_is_ahead()).then(1).otherwise(-1)
    if is_folded:
        known = known.filter(pl.col("virtual").is_not_null())
        ahead = pl.col("virtual") + step
        stage = pl.when(ahead < count).then(ahead).otherwise(2 * count - 1 - ahead)
    else:
        stage = (pl.col("stage") + step) % count
    asked = known.select("row", "lane", "verb", "end_ns", "bound_ns", next_stage=stage)
    return asked.filter(pl.col("next_stage").is_between(0, count - 1)).with_columns(
        way=pl.col("lane").cast(pl.Int64) * count + pl.col("next_stage")
    )


def _neighbours(asked: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """List the lanes of the next stage of the same replica and tensor slice (way, lane, peer_lane): one or more."""
    seats = places.select(*_PLACE, next_stage="stage", peer_lane="lane")
    return (
        asked.unique("way", maintain_order=True)
        .join(places.select("lane", *_PLACE), on="lane", maintain_order="left")
        .join(seats, on=[*_PLACE, "next_stage"], maintain_order="left")
        .filter(pl.col("peer_lane") != pl.col("lane"))
        .select("way", "lane", "peer_lane")
    )


def _members(
    asked: pl.DataFrame, messages: pl.DataFrame, candidates: pl.DataFrame, lanes: pl.DataFrame
) -> pl.DataFrame:
    """Choose the peer among the members of a stage, the same for all messages of two stages (row, peer_lane, how).

    Two lanes are peers if their messages end closer than those of either with any other member. Where ends do
    not decide, as between slices of a tensor, or if messages leave before they arrive, members are peers that have
    the same place by rank, unless others end together more often.
    """
    if candidates.is_empty():
        return _nobody().with_columns(how=pl.lit(STAGES))
    near = _nearest(_sample(asked).join(candidates.drop("lane"), on="way"), messages)
    low, high = pl.min_horizontal("lane", "peer_lane"), pl.max_horizontal("lane", "peer_lane")
    later = pl.when(pl.col("lane") < pl.col("peer_lane")).then(1).otherwise(-1)
    apart, bound = pl.col("apart_ns"), pl.col("bound_ns")
    # clocks that are not one differ always by the same
    offset = pl.max_horizontal(-bound, pl.min_horizontal(bound, apart.median().over("low", "high")))
    ends = (
        near.with_columns(low=low, high=high, apart_ns=apart * later)
        .with_columns(off_ns=(apart - offset).abs().clip(upper_bound=SKEW_NS))
        .group_by("low", "high")
        .agg(pl.col("off_ns").mean(), share=(apart.abs() <= SKEW_NS + bound).mean())
    )
    pairs = pl.concat(
        [
            ends.rename({"low": one, "high": two})
            for one, two in (("lane", "peer_lane"), ("peer_lane", "lane"))
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
    how = pl.when("is_closest").then(pl.lit(ENDS)).otherwise(pl.lit(STAGES))
    peers = chosen.with_columns(how=how).filter(
        pl.col("is_closest") | (pl.col("is_alike").fill_null(value=False) & ~is_settled)
    )
    ways = candidates.join(peers.select("lane", "peer_lane", "how"), on=["lane", "peer_lane"])
    return asked.join(ways, on="way").select("row", "peer_lane", "how")


def _sample(asked: pl.DataFrame) -> pl.DataFrame:
    """Take `_SAMPLE` messages of each way, evenly in order of their ends."""
    way = asked["way"].to_numpy()
    order = order_rows(way, asked["end_ns"].to_numpy())
    first = np.flatnonzero(np.diff(way[order], prepend=-1))
    count = np.diff(np.append(first, len(order)))
    turn = (np.arange(len(order)) - np.repeat(first, count)) * _SAMPLE // np.repeat(count, count)
    is_next = np.diff(turn, prepend=-1) != 0
    is_next[first] = True
    sample: pl.DataFrame = asked[order[is_next]]
    return sample


def _nearest(asked: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Measure how long before each message (with `peer_lane`) the nearest of the opposite verb ends there.

    Returns:
        lane, peer_lane, apart_ns, bound_ns (of both clocks); only what ends while the peer was captured.
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
        asked.sort("end_ns")
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

    `member` is null unless the ranks of all stages lie alike: then those of one number are of one pipeline.
    """
    place = ["stage", *_PLACE]
    member = pl.col("rank").rank("ordinal").over(place)
    since = pl.col("rank") - pl.col("rank").min().over(place)
    numbered = lanes.with_columns(pl.col(name).fill_null(-1) for name in _PLACE).drop_nulls("stage")
    numbered = numbered.with_columns(member=member, since=since)
    is_even = (
        numbered["rank"].null_count() == 0
        and numbered["rank"].is_unique().all()
        and numbered.select(pl.len().over(place).n_unique() == 1).item()
        and numbered.select((pl.col("since").n_unique().over(*_PLACE, "member") == 1).all()).item()
    )
    return numbered.select("lane", "stage", member=pl.col("member") if is_even else pl.lit(None, pl.UInt32))


def _is_clearly_least(name: str, side: list[str]) -> pl.Expr:
    """Is it the least of its side, and the second far from it?"""
    least = pl.col(name).min().over(side)
    second = pl.col(name).sort().slice(1, 1).first().over(side)
    return (pl.col(name) == least) & ((second > _CLEARLY * least + _CLEARLY_NS) | second.is_null())


def _is_as_often(name: str, side: list[str]) -> pl.Expr:
    """Is a share about the most of its side, or all there chance?"""
    most = pl.col(name).max().over(side)
    return (pl.col(name) >= _MOSTLY * most) | (most < _OFTEN)


def _by_ends(rest: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Take the lane on which a message of the opposite verb ends at the same time (row, peer_lane).

    Where most messages of a stream have one peer, so have all of it; where few have any, none has. A kernel that
    sends and receives ends with the later of the two: the other then has the same peer.
    """
    known = rest.filter(pl.col("verb").is_not_null())
    if known.is_empty():
        return _nobody()
    others = messages.select(
        *("end_ns", "verb", *_PLACE, "direction"), peer_lane="lane", peer_bound_ns="bound_ns"
    ).with_columns(verb=pl.col("verb").replace({"send": "receive", "receive": "send"}))
    near = []
    for shift in ("backward", "forward"):
        near.append(
            known.sort("end_ns").join_asof(
                others.sort("end_ns").with_columns(other_ns="end_ns"),
                on="end_ns",
                by=["verb", *_PLACE],
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
    every = known.group_by(channel).len("messages")
    often = (
        closest.group_by(channel)
        .len("votes")
        .join(every, on=channel, nulls_equal=True)
        .filter(pl.col("votes") >= _OFTEN * pl.col("messages"))
    )
    closest = closest.join(often.select(channel), on=channel, how="semi", nulls_equal=True)
    counted = closest.group_by(*channel, "peer_lane").len("votes")
    usual = counted.filter(
        pl.col("votes") > 1, pl.col("votes") >= _MOSTLY * pl.col("votes").sum().over(channel)
    ).rename({"peer_lane": "usual"})
    own = closest.select("row", "peer_lane")
    beside = known.join(own, on="row").unique(["lane", "op_id"], keep="first")
    return (
        known.join(usual, on=channel, how="left", nulls_equal=True)
        .join(own, on="row", how="left")
        .join(beside.select("lane", "op_id", beside="peer_lane"), on=["lane", "op_id"], how="left")
        .select("row", peer_lane=pl.coalesce("usual", "peer_lane", "beside"))
        .drop_nulls()
    )


def _nobody() -> pl.DataFrame:
    return pl.DataFrame(schema={"row": pl.UInt32, "peer_lane": pl.UInt32})
