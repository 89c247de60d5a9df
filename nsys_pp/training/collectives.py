"""Members of collectives: streams of lanes that run the same ones."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import find_distinct, index_rows, numbers
from nsys_pp.arrays.search import divide_groups, expand_windows
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.clock import SKEW_NS, number_comparable, relative_bound
from nsys_pp.frames.conform import build_frame, build_schema, conform

MAX_BOUND_NS = 250_000
"""Greatest error of two clocks for the search of members: a wider one would join unrelated collectives."""
_MOSTLY = 0.8  # least share of a stream's collectives that end together with those of another member
_CLOSE_NS = 5_000
_SAMPLE = 40  # collectives of a stream compared to find its members
_ENOUGH = 10  # of them to measure how closely they end together
_BLOCK_ROWS = 1 << 20  # pairs of collectives that are compared at a time, for memory
_CLOCKS = ("clock", "bound_ns", "clock_set")


def pair_members(events: pl.DataFrame, captured: pl.DataFrame) -> pl.DataFrame:
    """Pair streams of different lanes with the same collectives (stream, other).

    Only collectives that ended during the capture of the other lane count.

    Args:
        events: Collectives by end: stream, lane, name, communicator, end_ns, clock, bound_ns, clock_set.
        captured: lane, first_ns, last_ns: span of the capture of each lane.
    """
    nothing = events["stream"].clear()
    unrecorded, same_communicator = events, build_frame([nothing, nothing.alias("other")])
    if events["communicator"].count():
        recorded = _list_streams(events).filter(pl.col("communicator").is_not_null())
        pairs = recorded.join(recorded, on=["communicator", "name"], suffix="_of_other")
        same_communicator = pairs.filter(pl.col("lane") != pl.col("lane_of_other")).select(
            "stream", other="stream_of_other"
        )
        unrecorded = events.filter(pl.col("communicator").is_null())
    if unrecorded.is_empty():
        return same_communicator
    most = _count_common(unrecorded, captured)
    # members end closest together, except for a constant offset of their clocks within the bounds
    for name in ("apart_ns", "spread_ns"):
        least = most.group_by("stream").agg(pl.col(name).min(), pl.col("sampled").first())
        # Few collectives may be close together by chance; other streams show the usual distance.
        usual_ns = least.select(pl.col(name).filter(pl.col("sampled") >= _ENOUGH).median()).item()
        of_few = SKEW_NS / pl.col("sampled") if usual_ns is None else pl.lit(4 * usual_ns)
        margin = pl.when(pl.col("sampled") < _ENOUGH).then(of_few).otherwise(0)
        most = most.filter(pl.col(name) <= 4 * pl.col(name).min().over("stream") + _CLOSE_NS + margin)
    return pl.concat([same_communicator, most.select("stream", "other")])


def list_hidden(events: pl.DataFrame) -> pl.DataFrame:
    """List the streams that may have further members, on clocks that are not known well enough.

    Stream, is_hidden.
    """
    streams = (
        _list_streams(events).filter(pl.col("communicator").is_null()).select("stream", "name", *_CLOCKS)
    )
    clocks = streams.drop("stream").unique()  # of many lanes, few are distinct
    is_near = relative_bound("_of_other") <= MAX_BOUND_NS
    is_near &= pl.col("clock_set") == pl.col("clock_set_of_other")
    pairs = clocks.join(clocks, on="name", suffix="_of_other").filter(~is_near)
    if pairs.is_empty():
        return build_frame([events["stream"].clear(), pl.Series("is_hidden", [], pl.Boolean)])
    hidden = streams.join(pairs.select("name", *_CLOCKS).unique(), on=["name", *_CLOCKS], nulls_equal=True)
    return hidden.select("stream", is_hidden=pl.lit(value=True)).unique()


def _list_streams(events: pl.DataFrame) -> pl.DataFrame:
    """List the streams of events: stream, lane, name, communicator, clock, bound_ns, clock_set."""
    first, _ = find_distinct(numbers(events["stream"]))
    return index_rows(events[["stream", "lane", "name", "communicator", *_CLOCKS]], first)


def _count_common(events: pl.DataFrame, captured: pl.DataFrame) -> pl.DataFrame:
    """Compare sampled collectives of each stream with collectives of other lanes that end at the same time.

    Args:
        events: Collectives without a communicator; as in `pair_members`.
        captured: As in `pair_members`.

    Returns:
        stream, other, of streams whose collectives mostly end together: apart_ns (usual distance of the ends,
            without the error of
        the clocks), spread_ns (of these distances), sampled (number of compared collectives).
    """
    _, name = find_distinct(numbers(events["name"]))
    lane, stream, end, clock, bound, clock_set = (
        numbers(events[column]) for column in ("lane", "stream", "end_ns", *_CLOCKS)
    )
    reach = SKEW_NS + MAX_BOUND_NS
    # by name, then end; as far apart as no two ends of one name that are compared
    span = int(end.max()) - int(end.min()) + 2 * reach + 2
    place = name * span + (end - end.min())
    order = np.argsort(place, kind="stable")
    ordered = place[order]
    sample = _sample(stream)
    sample = sample[np.argsort(stream[sample], kind="stable")]
    first = np.searchsorted(ordered, place[sample] - reach)
    last = np.searchsorted(ordered, place[sample] + reach, side="right")
    sampled = events[["stream", "end_ns"]][sample]
    spans = events.select("lane", other="stream").unique().join(captured, on="lane").drop("lane")
    parts = []
    for block in divide_groups(stream[sample], last - first, _BLOCK_ROWS):
        own = np.repeat(sample[block], (last - first)[block])
        to = order[expand_windows(first[block], last[block])]
        is_other = (lane[own] != lane[to]) & (clock_set[own] == clock_set[to])
        own, to = own[is_other], to[is_other]
        error = np.where(clock[own] == clock[to], 0, bound[own] + bound[to]).clip(max=MAX_BOUND_NS)
        common = {
            "stream": stream[own],
            "other": stream[to],
            "apart_ns": end[own] - end[to],
            "error_ns": error,
        }
        parts.append(_compare(pl.DataFrame(common), sampled, spans))
    return pl.concat(parts)


def _sample(stream: Int64s) -> Int64s:
    """Sample collectives of each stream, evenly; rows ascend."""
    order = np.argsort(stream, kind="stable")
    count = np.bincount(stream)
    position = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    turn = position * _SAMPLE // np.repeat(count, count)
    before = (position - 1) * _SAMPLE // np.repeat(count, count)
    return np.sort(order[(position == 0) | (turn != before)])


def _compare(common: pl.DataFrame, sampled: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Compare the ends of common collectives of each two streams; result as `_count_common`.

    Args:
        common: Collectives of a stream and another one that end near each other: stream, other, apart_ns,
            error_ns.
        sampled: stream and end_ns of all sampled collectives.
        spans: other, first_ns, last_ns: span of the capture of each stream.
    """
    pair, apart = ["stream", "other"], pl.col("apart_ns")
    pairs = (
        common.cast(dict.fromkeys(pair, pl.UInt32))
        .filter(apart.abs() <= SKEW_NS + pl.col("error_ns"))
        .group_by(pair)
        .agg(
            pl.col("error_ns").first(),
            usual_ns=apart.abs().median(),
            spread_ns=(apart - apart.median()).abs().median(),
            count=pl.len(),
        )
        .join(spans, on="other")
    )
    is_common = pl.col("end_ns").is_between("first_ns", "last_ns")
    counts = sampled.join(pairs, on="stream").group_by(pair).agg(sampled=is_common.sum().cast(pl.Int64))
    mostly = pairs.join(counts, on=pair).filter(pl.col("count") >= (_MOSTLY * pl.col("sampled")).floor())
    usual = (pl.col("usual_ns") - pl.col("error_ns")).clip(0)
    return mostly.sort(pair).select(*pair, "spread_ns", "sampled", apart_ns=usual)


_CHANNEL = ["lane", "channel", "name", "communicator"]
_NEED = ("need_start_ns", "need_end_ns")
LAST_MEMBERS = build_schema(
    {  # one row per collective of which a member is found
        "lane": pl.UInt32,
        "need_start_ns": pl.Int64,
        "need_end_ns": pl.Int64,
        "peer_start_ns": pl.Int64,  # start of the last other member found
        "bound_ns": pl.Int64,  # error of that start on the clock of `lane`
        "waits_for": pl.UInt32,  # its lane
        "is_complete": pl.Boolean,  # no further member is in the reports
    },
    name="LAST_MEMBERS",
)


_REQUESTED = (
    *("request", "stream", "ordinal", "need_start_ns", "need_end_ns"),
    *("clock", "bound_ns", "clock_set"),
)
_LAST = build_schema(
    {  # one row per request of which a member is found
        "request": pl.UInt32,
        "peer_start_ns": pl.Int64,
        "waits_for": pl.UInt32,
        "its_clock": pl.UInt32,
        "its_bound": pl.Int64,
        "member_count": pl.UInt32,
    },
    name="_LAST",
)


def find_last_members(
    needed: pl.DataFrame, *, lanes: pl.DataFrame, anchors: pl.DataFrame, kind: str = "collective"
) -> pl.DataFrame:
    """Find the last other member to start each collective, and the start of its kernel (`LAST_MEMBERS`).

    The members are the lanes of the NCCL communicator; where it is not recorded, the streams of other lanes
    with collectives of the same name that nearly always end at the same time.

    Args:
        needed: lane, need_start_ns, need_end_ns of collectives.
        lanes: `LANES`.
        anchors: `LANE_ANCHORS`.
        kind: Kind of the anchors that are needed: an exchange of all with all ("send_receive") ends on all
            members together, like a collective.
    """
    of_kind = anchors.filter(pl.col("kind") == kind)
    if of_kind.is_empty() or needed.is_empty():
        return LAST_MEMBERS.to_frame()
    events = _list_events(of_kind, lanes)
    captured = anchors.group_by("lane").agg(first_ns=pl.col("start_ns").min(), last_ns=pl.col("end_ns").max())
    members = pair_members(events, captured).sort("stream", maintain_order=True)
    requested = needed.join(
        events, left_on=["lane", *_NEED], right_on=["lane", "start_ns", "end_ns"], maintain_order="left"
    ).with_row_index("request")
    counts = np.bincount(numbers(requested["stream"]), minlength=len(events))
    own = numbers(members["stream"])
    last = pl.concat(
        [
            _LAST.to_frame(),
            *(
                _find_last(members[block], requested, events)
                for block in divide_groups(own, counts[own], _BLOCK_ROWS)
            ),
        ]
    )
    known = members.group_by("stream").agg(known_count=pl.len())
    found = requested.join(last, on="request", maintain_order="left").join(
        known, on="stream", maintain_order="left"
    )
    found = found.join(list_hidden(events), on="stream", how="left", maintain_order="left")
    return found.with_columns(
        bound_ns=_sum_bounds(),
        is_complete=(pl.col("member_count") == pl.col("known_count")) & pl.col("is_hidden").is_null(),
    ).pipe(conform, LAST_MEMBERS)


def _list_events(anchors: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """List collectives by end, with their stream, its clock, and their ordinal in it."""
    clocks = lanes.select(
        "lane", "clock", pl.col("bound_ns").fill_null(0), clock_set=number_comparable(lanes)
    )
    keyed = anchors.join(clocks, on="lane", maintain_order="left")
    streams = keyed.select(_CHANNEL).unique(maintain_order=True).with_row_index("stream")
    keyed = keyed.join(streams, on=_CHANNEL, nulls_equal=True, maintain_order="left").select(
        "stream", "lane", "name", "communicator", "start_ns", "end_ns", "clock", "bound_ns", "clock_set"
    )
    # by start, so that equal rows of two streams keep a fixed order
    numbered = keyed.sort("start_ns", maintain_order=True).with_columns(
        ordinal=pl.int_range(pl.len()).over("stream")
    )
    return numbered.sort("end_ns", maintain_order=True)


def _sum_bounds() -> pl.Expr:
    """Return the error of times of the other member on the clock of a request: 0 on one clock."""
    return (
        pl.when(pl.col("clock") == pl.col("its_clock"))
        .then(0)
        .otherwise(pl.col("bound_ns") + pl.col("its_bound"))
    )


def _find_last(members: pl.DataFrame, requested: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Find the last member of each request (`_LAST`): of members that began together, the first lane.

    The kernel of another member ends together with the request. A few end much later than others: such a
    collective is as far after (or before) the last (or next) matched collective of its stream as that of the
    other member in the other stream.

    Args:
        members: stream, other: streams, and for each another stream with the same collectives.
        requested: Collectives, with their stream and ordinal.
        events: All collectives, by end.
    """
    pairs = ["stream", "other"]
    others = events.select(
        other="stream", at="ordinal", peer_start_ns="start_ns", peer_end_ns="end_ns", waits_for="lane",
        its_clock="clock", its_bound="bound_ns", its_set="clock_set",
    )  # fmt: skip
    rows = members.join(requested.select(_REQUESTED), on="stream").sort("need_end_ns")
    near = rows.join_asof(
        others, left_on="need_end_ns", right_on="peer_end_ns", by="other", strategy="nearest",
        check_sortedness=False, coalesce=False,
    )  # fmt: skip
    near = near.filter(pl.col("clock_set") == pl.col("its_set")).with_columns(
        reach_ns=SKEW_NS + _sum_bounds().clip(upper_bound=MAX_BOUND_NS)
    )
    is_same = (pl.col("need_end_ns") - pl.col("peer_end_ns")).abs() <= pl.col("reach_ns")
    same = near.filter(is_same)
    # few pairs of streams have others
    apart = near.join(near.filter(~is_same).select(pairs).unique(), on=pairs, how="semi").sort(
        *pairs, "ordinal"
    )
    shifts = apart.with_columns(shift=pl.when(is_same).then(pl.col("at") - pl.col("ordinal")))
    before, after = pl.col("shift").forward_fill().over(pairs), pl.col("shift").backward_fill().over(pairs)
    shift = pl.when(before.is_null() | (before == after)).then(after).when(after.is_null()).then(before)
    rest = shifts.select(*rows.columns, "reach_ns", "shift", to=pl.col("ordinal") + shift).filter(
        pl.col("shift").is_null()
    )
    late = rest.join(others, left_on=["other", "to"], right_on=["other", "at"]).filter(
        pl.col("peer_start_ns") - pl.col("reach_ns") <= pl.col("need_end_ns"),
        pl.col("peer_end_ns") + pl.col("reach_ns") >= pl.col("need_start_ns"),
    )
    columns = ["request", *(name for name in _LAST if name in others.columns)]
    matched = pl.concat([same.select(columns), late.select(columns)])
    return (
        matched.filter(pl.col("peer_start_ns") == pl.col("peer_start_ns").max().over("request"))
        .sort("waits_for")
        .unique("request", keep="first", maintain_order=True)
        .join(matched.group_by("request").agg(member_count=pl.len()), on="request")
        .pipe(conform, _LAST)
    )
