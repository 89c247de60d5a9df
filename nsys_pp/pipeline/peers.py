"""With whom each message is exchanged: the other lane of every send and receive."""

from __future__ import annotations

import polars as pl

TOLD, STAGES, ENDS = "peer and order", "stages and order", "ends"
SKEW_NS = 50_000
"""How far apart the ends of a send and its receive may lie on one clock: 26 us were seen on two H100s."""

_MOSTLY = 0.9  # of a channel's messages: then the peer of those is the peer of all
_PLACE = ("replica", "tensor")


def find_peers(*, lanes: pl.DataFrame, messages: pl.DataFrame, is_folded: bool) -> pl.DataFrame:
    """Find the other lane of each message.

    NCCL tells the peer's number within the communicator. Else it is the neighbour along the pipeline, in
    the direction that the message's name tells. Else it is the lane on which a message of the opposite kind
    ends at the same time.

    Args:
        lanes: `LANES`.
        messages: `MESSAGES` with `lane`.
        is_folded: The pipeline goes along the stages and back (DualPipeV), else round and round.

    Returns:
        The messages, in order, with stage, link (virtual stage of the sender, null where unknown), peer_lane
        and how: what tells the peer; both null where nothing does.
    """
    places = lanes.select("lane", "stage", "bound_ns", *(pl.col(name).fill_null(-1) for name in _PLACE))
    located = messages.with_row_index("row").join(places, on="lane", how="left", maintain_order="left")
    count = count_stages(lanes)
    located = _with_links(located, count, is_folded=is_folded)
    found = [
        _told(located, lanes).with_columns(how=pl.lit(TOLD)),
        _neighbours(located, places, count, is_folded=is_folded).with_columns(how=pl.lit(STAGES)),
    ]
    known = pl.concat(found).unique("row", keep="first")
    rest = located.join(known, on="row", how="anti", maintain_order="left")
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
    """Take the peers that NCCL tells (row, peer_lane).

    A lane's own number within a communicator is known if that was made during the capture. Else its stage is
    taken for it, or its place among the lanes that use it; that is believed if every peer answers.
    """
    told = messages.filter(pl.col("communicator").is_not_null(), pl.col("peer").is_not_null())
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
    return told.join(pl.concat(found), on=["communicator", "peer"]).select("row", "peer_lane")


def _neighbours(messages: pl.DataFrame, places: pl.DataFrame, count: int, *, is_folded: bool) -> pl.DataFrame:
    """Take the neighbours along the pipeline, of the same replica and tensor slice (row, peer_lane)."""
    known = messages.filter(
        pl.col("stage").is_not_null(), pl.col("verb").is_not_null(), pl.col("direction").is_not_null()
    )
    if count < 2:
        return _nobody()
    step = pl.when(_is_ahead()).then(1).otherwise(-1)
    if is_folded:
        known = known.filter(pl.col("virtual").is_not_null())
        ahead = pl.col("virtual") + step
        stage = pl.when(ahead < count).then(ahead).otherwise(2 * count - 1 - ahead)
    else:
        stage = (pl.col("stage") + step) % count
    seats = places.select(*_PLACE, next_stage="stage", peer_lane="lane").unique(
        [*_PLACE, "next_stage"], keep="none"
    )
    return (
        known.with_columns(next_stage=stage)
        .join(seats, on=[*_PLACE, "next_stage"])
        .filter(pl.col("peer_lane") != pl.col("lane"))
        .select("row", "peer_lane")
    )


def _by_ends(rest: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Take the lane on which a message of the opposite verb ends at the same time (row, peer_lane).

    Where most messages of a stream have one peer, so have all of it. A kernel that sends and receives ends with
    the later of the two: the other then has the same peer.
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
