"""Peers of messages by NCCL: from ranks within communicators to lanes."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema

PEERS = build_schema(
    {  # one row per message with a peer
        "row": pl.UInt32,  # of the frame of messages
        "peer_lane": pl.UInt32,  # null: the peer has no lane
        "is_guess": pl.Boolean,  # not by its recorded rank
    },
    name="PEERS",
)


def find_nccl_peers(messages: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Find the peers of messages with an NCCL peer (`PEERS`; peer_lane is null where the peer has no lane).

    The rank of a lane in a communicator is recorded if the communicator was created during the capture. Else it is
    assumed to be its stage, or its position among the lanes of the communicator, provided that this makes peers mutual:
    if lane A has messages with lane B, then B has messages with A.
    """
    if not messages["communicator"].count() or not messages["peer"].count():
        return PEERS.to_frame()
    requested = messages.filter(pl.col("communicator").is_not_null(), pl.col("peer").is_not_null())
    if requested.is_empty():
        return PEERS.to_frame()
    numbers = lanes.select("lane", order=pl.col("rank").fill_null(pl.col("lane").cast(pl.Int64)))
    members = (
        requested.join(numbers, on="lane")
        .group_by("communicator", "lane")
        .agg(pl.col("rank", "stage", "order").first(), pl.col("peer").unique())
    )
    position = pl.col("order").rank("ordinal").over("communicator").cast(pl.Int64) - 1
    resolved = []
    for number, is_guess in ((pl.col("rank"), False), (pl.col("stage"), True), (position, True)):
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
                (pl.col("number") != pl.col("peer")).all().alias("is_other"),
                (pl.col("is_mutual").is_not_null() | pl.col("is_member").is_null())
                .all()
                .alias("is_consistent"),
                pl.col("is_mutual").any().alias("has_mutual"),
            )
            .filter("is_other", "is_consistent", "has_mutual")
        )
        member_lanes = member_lanes.with_columns(is_guess=pl.lit(is_guess))
        resolved.append(member_lanes.join(mutual, on="communicator", how="semi"))
        members = members.join(mutual, on="communicator", how="anti")
    member_lanes = pl.concat(resolved)
    return (
        requested.join(member_lanes, on="communicator", how="semi")
        .join(member_lanes.drop("is_guess"), on=["communicator", "peer"], how="left")
        .join(member_lanes.select("communicator", "is_guess").unique(), on="communicator")
        .select("row", "peer_lane", "is_guess")
    )
