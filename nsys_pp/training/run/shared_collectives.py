"""Members of collectives, and the last member to start each one."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.clock import SKEW_NS
from nsys_pp.frames.clock_relations import keep_comparable, number_comparable, relative_bound

_MOSTLY = 0.8  # least share of a stream's collectives that end together with those of another member
_CLOSE_NS = 5_000
_MAX_BOUND_NS = 250_000
_SAMPLE = 40  # collectives of a stream compared to find its members
_ENOUGH = 10  # of them to measure how closely they end together
_CHANNEL = ["lane", "channel", "name", "communicator"]
_PAIR = ["stream", "other", "ordinal"]


def find_last_members(
    needed: pl.DataFrame, *, lanes: pl.DataFrame, anchors: pl.DataFrame, kind: str = "collective"
) -> pl.DataFrame:
    """Find the last other member to start each collective, and the start of its kernel.

    The members are the lanes of the NCCL communicator; where it is not recorded, the streams of other lanes
    with collectives of the same name that nearly always end at the same time.

    Args:
        needed: lane, need_start_ns, need_end_ns of collectives.
        lanes: `LANES`.
        anchors: `LANE_ANCHORS`.
        kind: Kind of the anchors that are needed: an exchange of all with all ("send_receive") ends on all members
            together, like a collective.

    Returns:
        lane, need_start_ns, need_end_ns, peer_start_ns (start of the last other member found), bound_ns (its error),
        waits_for (its lane), is_complete (whether no further member is in the reports); only collectives of which a
        member is found.
    """
    clocks = lanes.select(
        "lane", "clock", pl.col("bound_ns").fill_null(0), clock_set=number_comparable(lanes)
    )
    keyed = anchors.filter(pl.col("kind") == kind).join(clocks, on="lane", maintain_order="left")
    streams = keyed.select(_CHANNEL).unique(maintain_order=True).with_row_index("stream")
    # by start, so that equal rows of two streams keep a fixed order
    keyed = keyed.join(streams, on=_CHANNEL, nulls_equal=True, maintain_order="left").select(
        "stream", "lane", pl.col("name").cast(pl.String), "communicator", "start_ns", "end_ns", "clock",
        "bound_ns", "clock_set",
    )  # fmt: skip
    keyed = keyed.sort("start_ns", maintain_order=True).with_columns(
        ordinal=pl.int_range(pl.len()).over("stream")
    )
    events = keyed.sort("end_ns", maintain_order=True)
    members = _pair_members(events, _span_captures(anchors))
    requested = needed.join(
        events, left_on=["lane", "need_start_ns", "need_end_ns"], right_on=["lane", "start_ns", "end_ns"]
    ).with_row_index("request")
    matches = _match_members(requested.join(members, on="stream"), events)
    last = (
        keep_comparable(matches, lanes, "lane", "other_lane")
        .sort(
            "began_ns", "other_lane", descending=[False, True]
        )  # of members that began together, the first lane
        .group_by("request")
        .agg(
            peer_start_ns=pl.col("began_ns").last(),
            bound_ns=pl.col("error_ns").last(),
            waits_for=pl.col("other_lane").last(),
            member_count=pl.col("other").n_unique(),
        )
    )
    return (
        requested.join(last, on="request")
        .join(members.group_by("stream").agg(known_count=pl.len()), on="stream")
        .join(_list_hidden(events), on="stream", how="left")
        .select(
            *("lane", "need_start_ns", "need_end_ns", "peer_start_ns", "bound_ns", "waits_for"),
            is_complete=(pl.col("member_count") == pl.col("known_count")) & pl.col("is_hidden").is_null(),
        )
    )


def _list_hidden(events: pl.DataFrame) -> pl.DataFrame:
    """List the streams that may have further members, on clocks that are not known well enough: stream, is_hidden."""
    clocks = ("clock", "bound_ns", "clock_set")
    streams = (
        events.filter(pl.col("communicator").is_null()).select("stream", "lane", "name", *clocks).unique()
    )
    is_near = relative_bound("_of_other") <= _MAX_BOUND_NS
    is_near &= pl.col("clock_set") == pl.col("clock_set_of_other")
    pairs = streams.join(streams.drop("stream").unique(), on="name", suffix="_of_other")
    return pairs.filter(~is_near).select("stream", is_hidden=pl.lit(value=True)).unique()


def _match_members(pairs: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Match collectives with the kernels of other members: by their ends, else by their order in both streams.

    A few members end much later than others. Such a collective is as far after (or before) the last (or next) matched
    collective of its stream as that of the other member in the other stream.

    Args:
        pairs: request, lane, stream, other, ordinal, clock, bound_ns, need_start_ns, need_end_ns: collectives, each with another
            stream of its members.
        events: Collectives by end, with their ordinals in their streams.

    Returns:
        request, lane, other, other_lane, began_ns, error_ns (of the clocks relative to each other).
    """
    found = events.select(
        other="stream",
        other_lane="lane",
        other_ordinal="ordinal",
        began_ns="start_ns",
        ended_ns="end_ns",
        clock_of_other="clock",
        bound_ns_of_other="bound_ns",
    )
    nearest = pairs.sort("need_end_ns").join_asof(
        found, left_on="need_end_ns", right_on="ended_ns", by="other", strategy="nearest",
        check_sortedness=False, coalesce=False,
    )  # fmt: skip
    reach = SKEW_NS + _bound()
    is_same = (pl.col("need_end_ns") - pl.col("ended_ns")).abs() <= reach
    same = nearest.filter(is_same)
    shifts = same.select(*_PAIR, shift=pl.col("other_ordinal") - pl.col("ordinal")).sort("ordinal")
    rest = pairs.join(same, on=["request", "other"], how="anti").sort("ordinal")
    for strategy in ("backward", "forward"):
        rest = rest.join_asof(
            shifts.rename({"shift": strategy}), on="ordinal", by=["stream", "other"],
            strategy=strategy, check_sortedness=False,
        )  # fmt: skip
    is_certain = (pl.col("backward") == pl.col("forward")).fill_null(value=True)
    by_order = (
        rest.filter(is_certain)
        .with_columns(other_ordinal=pl.col("ordinal") + pl.coalesce("backward", "forward"))
        .join(found, on=["other", "other_ordinal"])
        .filter(
            pl.col("began_ns") - reach <= pl.col("need_end_ns"),
            pl.col("ended_ns") + reach >= pl.col("need_start_ns"),
        )
    )
    columns = (
        "request",
        "lane",
        "other",
        "other_lane",
        "began_ns",
        relative_bound("_of_other").alias("error_ns"),
    )
    return pl.concat([same.select(columns), by_order.select(columns)])


def _span_captures(anchors: pl.DataFrame) -> pl.DataFrame:
    """Return the span of the anchors of each lane, inside its capture: lane, first_ns, last_ns."""
    return anchors.group_by("lane").agg(first_ns=pl.col("start_ns").min(), last_ns=pl.col("end_ns").max())


def _pair_members(events: pl.DataFrame, captured: pl.DataFrame) -> pl.DataFrame:
    """Pair streams of different lanes with the same collectives (stream, other).

    Only collectives that ended during the capture of the other lane count.
    """
    recorded = (
        events.filter(pl.col("communicator").is_not_null())
        .select("stream", "lane", "communicator", "name")
        .unique()
    )
    pairs = recorded.join(recorded, on=["communicator", "name"], suffix="_of_other")
    same_communicator = pairs.filter(pl.col("lane") != pl.col("lane_of_other")).select(
        "stream", other="stream_of_other"
    )
    unrecorded = events.filter(pl.col("communicator").is_null())
    turn = pl.int_range(pl.len()) * _SAMPLE // pl.len()
    sample = unrecorded.filter((turn != turn.shift()).fill_null(value=True).over("stream"))
    votes = []
    for (name,), group in sample.group_by("name"):
        alike = unrecorded.filter(pl.col("name") == name)
        votes.append(_list_common_ends(group, alike))
    if not votes:
        return same_communicator
    # members end closest together, except for a constant offset of their clocks within the bounds
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
    spans = unrecorded.select("lane", other="stream").unique().join(captured, on="lane").drop("lane")
    sizes = (
        counted.select("stream", "other")
        .join(spans, on="other")
        .join(sample.select("stream", "end_ns"), on="stream")
        .group_by("stream", "other")
        .agg(sampled=pl.col("end_ns").is_between(pl.col("first_ns"), pl.col("last_ns")).sum())
    )
    most = counted.join(sizes, on=["stream", "other"]).filter(
        pl.col("together") >= (_MOSTLY * pl.col("sampled")).floor()
    )
    for name in ("apart_ns", "spread_ns"):
        least = most.group_by("stream").agg(pl.col(name).min(), pl.col("sampled").first())
        # Few collectives may be close together by chance; other streams show the usual distance.
        usual_ns = least.filter(pl.col("sampled") >= _ENOUGH)[name].median()
        of_few = SKEW_NS / pl.col("sampled") if usual_ns is None else pl.lit(4 * usual_ns)  # type: ignore[operator]
        margin = pl.when(pl.col("sampled") < _ENOUGH).then(of_few).otherwise(0)
        most = most.filter(pl.col(name) <= 4 * pl.col(name).min().over("stream") + _CLOSE_NS + margin)
    return pl.concat([same_communicator, most.select("stream", "other")])


def _list_common_ends(sample: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """List the pairs of collectives of two lanes with comparable clocks that end together: stream, other, apart_ns, bound_ns."""
    ends = events["end_ns"]
    reach = SKEW_NS + _MAX_BOUND_NS
    first = ends.search_sorted(sample["end_ns"] - reach, side="left")
    last = ends.search_sorted(sample["end_ns"] + reach, side="right")
    windows = (
        sample.select("stream", "lane", "end_ns", "clock", "bound_ns", "clock_set")
        .with_columns(at=pl.int_ranges(first, last))
        .explode("at")
    )
    others = events.select(
        other="stream",
        other_lane="lane",
        other_ns="end_ns",
        clock_of_other="clock",
        bound_ns_of_other="bound_ns",
        other_set="clock_set",
    )[windows["at"]]
    pairs = pl.concat([windows.drop("at"), others], how="horizontal")
    return (
        pairs.filter(pl.col("lane") != pl.col("other_lane"), pl.col("clock_set") == pl.col("other_set"))
        .select(
            *("stream", "other"),
            apart_ns=pl.col("end_ns") - pl.col("other_ns"),
            bound_ns=_bound(),
        )
        .filter(pl.col("apart_ns").abs() <= SKEW_NS + pl.col("bound_ns"))
    )


def _bound() -> pl.Expr:
    """Return the error of two clocks for the search of members, limited: a wide one would join unrelated collectives."""
    return relative_bound("_of_other").clip(upper_bound=_MAX_BOUND_NS)
