"""Which lanes take part in a collective, and when the last of the others began it."""

from __future__ import annotations

import polars as pl

from nsys_pp.training.run.peers import SKEW_NS

_MOSTLY = 0.8  # of a stream's collectives must end together with those of another lane: then both are members
_CLOSE_NS = 5_000
_SAMPLE = 40  # collectives of a stream by which its members are found
_CHANNEL = ["lane", "channel", "name", "communicator"]


def find_latecomers(needed: pl.DataFrame, *, lanes: pl.DataFrame, anchors: pl.DataFrame) -> pl.DataFrame:
    """Say when the last other member of a collective began.

    NCCL tells the communicator, or not: then the streams of other lanes whose collectives of the same name
    nearly always end when this one's do are members.

    Args:
        needed: lane, need_start_ns, need_end_ns of collectives.
        lanes: `LANES`.
        anchors: `ANCHORS` with `lane`.

    Returns:
        lane, need_start_ns, need_end_ns, others_ns, waits_for (the lane that began last); only collectives of
        which all members are found.
    """
    bounds = lanes.select("lane", pl.col("bound_ns").fill_null(0))
    keyed = anchors.filter(pl.col("kind") == "collective").join(bounds, on="lane", maintain_order="left")
    streams = keyed.select(_CHANNEL).unique().with_row_index("stream")
    # by start, so that equal rows of two streams stay apart
    keyed = keyed.join(streams, on=_CHANNEL, nulls_equal=True).select(
        "stream", "lane", pl.col("name").cast(pl.String), "communicator", "start_ns", "end_ns", "bound_ns"
    )
    events = keyed.sort("end_ns")
    members = _members(events, _captured(anchors))
    asked = needed.join(
        events, left_on=["lane", "need_start_ns", "need_end_ns"], right_on=["lane", "start_ns", "end_ns"]
    ).with_row_index("ask")
    others = asked.select("ask", "stream", "bound_ns", end_ns="need_end_ns").join(members, on="stream")
    found = others.sort("end_ns").join_asof(
        events.select("end_ns", other="stream", other_lane="lane", began_ns="start_ns", other_ns="end_ns", other_bound_ns="bound_ns"),
        on="end_ns", by="other", strategy="nearest", check_sortedness=False,
    )  # fmt: skip
    apart = (pl.col("end_ns") - pl.col("other_ns")).abs()
    is_one = apart <= SKEW_NS + pl.col("bound_ns") + pl.col("other_bound_ns")
    last = (
        found.sort("began_ns")
        .group_by("ask")
        .agg(
            is_one.all().alias("complete"),
            others_ns=pl.col("began_ns").last(),
            waits_for=pl.col("other_lane").last(),
        )
        .filter("complete")
    )
    return asked.join(last, on="ask").select("lane", "need_start_ns", "need_end_ns", "others_ns", "waits_for")


def _captured(anchors: pl.DataFrame) -> pl.DataFrame:
    """Say when each lane was surely captured: lane, first_ns, last_ns."""
    return anchors.group_by("lane").agg(first_ns=pl.col("start_ns").min(), last_ns=pl.col("end_ns").max())


def _members(events: pl.DataFrame, captured: pl.DataFrame) -> pl.DataFrame:
    """Pair streams of different lanes that take part in the same collectives (stream, other).

    Only those count that ended while the other lane was captured.
    """
    told = (
        events.filter(pl.col("communicator").is_not_null())
        .select("stream", "lane", "communicator", "name")
        .unique()
    )
    pairs = told.join(told, on=["communicator", "name"], suffix="_of_other")
    known = pairs.filter(pl.col("lane") != pl.col("lane_of_other")).select("stream", other="stream_of_other")
    untold = events.filter(pl.col("communicator").is_null())
    turn = pl.int_range(pl.len()) * _SAMPLE // pl.len()
    sample = untold.filter((turn != turn.shift()).fill_null(value=True).over("stream"))
    votes = []
    for (name,), group in sample.group_by("name"):
        alike = untold.filter(pl.col("name") == name)
        votes.append(_together(group, alike))
    if not votes:
        return known
    # members end closest: but for the difference of their clocks, which stays and is within their bounds
    apart = pl.col("apart_ns")
    counted = (
        pl.concat(votes)
        .group_by("stream", "other")
        .agg(
            together=pl.len(),
            apart_ns=(apart.abs().median() - pl.col("bound_ns").first()).clip(0),
            spread_ns=(apart - apart.median()).abs().median(),
        )
    )
    spans = untold.select("lane", other="stream").unique().join(captured, on="lane").drop("lane")
    sizes = (
        counted.select("stream", "other")
        .join(spans, on="other")
        .join(sample.select("stream", "end_ns"), on="stream")
        .group_by("stream", "other")
        .agg(sampled=pl.col("end_ns").is_between(pl.col("first_ns"), pl.col("last_ns")).sum())
    )
    most = counted.join(sizes, on=["stream", "other"]).filter(
        pl.col("together") >= _MOSTLY * pl.col("sampled")
    )
    for name in ("apart_ns", "spread_ns"):
        most = most.filter(pl.col(name) <= 4 * pl.col(name).min().over("stream") + _CLOSE_NS)
    return pl.concat([known, most.select("stream", "other")])


def _together(sample: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """List (stream, other, apart_ns, bound_ns) once for every collective of `sample` that ends together with one of another lane."""
    ends = events["end_ns"]
    reach = SKEW_NS + sample["bound_ns"] + (events["bound_ns"].max() or 0)
    first = ends.search_sorted(sample["end_ns"] - reach, side="left")
    last = ends.search_sorted(sample["end_ns"] + reach, side="right")
    windows = (
        sample.select("stream", "lane", "end_ns", "bound_ns")
        .with_columns(at=pl.int_ranges(first, last))
        .explode("at")
    )
    others = events.select(other="stream", other_lane="lane", other_ns="end_ns", other_bound_ns="bound_ns")[
        windows["at"]
    ]
    pairs = pl.concat([windows.drop("at"), others], how="horizontal")
    return pairs.filter(pl.col("lane") != pl.col("other_lane")).select(
        *("stream", "other"),
        apart_ns=pl.col("end_ns") - pl.col("other_ns"),
        bound_ns=pl.col("bound_ns") + pl.col("other_bound_ns"),
    )
