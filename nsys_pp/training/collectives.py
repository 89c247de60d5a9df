"""Members of collectives: streams of lanes that run the same ones."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import NEVER, find_distinct, index_rows, numbers
from nsys_pp.arrays.order import combine_keys, order_rows
from nsys_pp.arrays.records import join_rows, select_rows
from nsys_pp.arrays.segments import divide_groups, expand_windows
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.clock import CLOCK, SKEW_NS, number_comparable, relative_bound
from nsys_pp.frames.columns import build_frame, select_columns
from nsys_pp.frames.conform import build_schema

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
        usual_ns = least.filter(pl.col("sampled") >= _ENOUGH)[name].median()
        of_few = SKEW_NS / pl.col("sampled") if usual_ns is None else pl.lit(4 * usual_ns)  # type: ignore[operator]
        margin = pl.when(pl.col("sampled") < _ENOUGH).then(of_few).otherwise(0)
        most = most.filter(pl.col(name) <= 4 * pl.col(name).min().over("stream") + _CLOSE_NS + margin)
    return pl.concat([same_communicator, most.select("stream", "other")])


def list_hidden(events: pl.DataFrame) -> pl.DataFrame:
    """List the streams that may have further members, on clocks that are not known well enough: stream, is_hidden."""
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
    return index_rows(select_columns(events, ("stream", "lane", "name", "communicator", *_CLOCKS)), first)


def _count_common(events: pl.DataFrame, captured: pl.DataFrame) -> pl.DataFrame:
    """Compare sampled collectives of each stream with collectives of other lanes that end at the same time.

    Args:
        events: Collectives without a communicator; as in `pair_members`.
        captured: As in `pair_members`.

    Returns:
        stream, other, of streams whose collectives mostly end together: apart_ns (usual distance of the ends, without the error of
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
    sampled = stream[sample], end[sample]
    spans = np.full((2, int(lane.max()) + 1), 0)
    known = numbers(captured["lane"])
    for row, column in zip(spans, ("first_ns", "last_ns"), strict=True):
        row[known[known < len(row)]] = numbers(captured[column])[known < len(row)]
    lane_of = np.zeros(int(stream.max()) + 1, np.int64)
    lane_of[stream] = lane
    parts = []
    for block in divide_groups(stream[sample], last - first, _BLOCK_ROWS):
        own = np.repeat(sample[block], (last - first)[block])
        to = order[expand_windows(first[block], last[block])]
        is_other = (lane[own] != lane[to]) & (clock_set[own] == clock_set[to])
        own, to = own[is_other], to[is_other]
        error = np.where(clock[own] == clock[to], 0, bound[own] + bound[to]).clip(max=MAX_BOUND_NS)
        apart = end[own] - end[to]
        is_together = np.abs(apart) <= SKEW_NS + error
        own, to = own[is_together], to[is_together]
        parts.append(
            _compare(
                stream[own], stream[to], apart[is_together], error[is_together], sampled, spans[:, lane_of]
            )
        )
    return pl.concat(parts)


def _sample(stream: Int64s) -> Int64s:
    """Sample collectives of each stream, evenly; rows ascend."""
    order = np.argsort(stream, kind="stable")
    count = np.bincount(stream)
    position = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    turn = position * _SAMPLE // np.repeat(count, count)
    before = (position - 1) * _SAMPLE // np.repeat(count, count)
    return np.sort(order[(position == 0) | (turn != before)])


def _compare(
    stream: Int64s,
    other: Int64s,
    apart: Int64s,
    error: Int64s,
    sampled: tuple[Int64s, Int64s],
    spans: Int64s,
) -> pl.DataFrame:
    """Compare the ends of common collectives of each two streams.

    Args:
        stream: Of each collective.
        other: Stream of the collective that ends together with it.
        apart: Distance of their ends.
        error: Of their clocks.
        sampled: Stream and end of all sampled collectives, by both.
        spans: First and last time of the capture of each stream.

    Returns:
        As `_count_common`.
    """
    size = spans.shape[1]
    keys, index = find_distinct(stream * size + other)
    count = np.bincount(index, minlength=len(keys))
    own, its = stream[keys], other[keys]
    # ends of the stream inside of the capture of the other lane
    edges = combine_keys(
        np.concatenate([sampled[0], own, own]), np.concatenate([sampled[1], spans[0][its], spans[1][its]])
    )
    ends, since, until = np.split(edges, [len(sampled[0]), len(sampled[0]) + len(own)])
    sizes = np.searchsorted(ends, until, side="right") - np.searchsorted(ends, since)
    is_most = count >= np.floor(_MOSTLY * sizes)
    kept = is_most[index]
    number = np.cumsum(is_most) - 1
    group, apart, count = number[index[kept]], apart[kept], count[is_most]
    center = _sum_middles(group, apart, count)  # twice the median
    spread = _sum_middles(group, np.abs(2 * apart - center[group]), count) / 4
    usual = _sum_middles(group, np.abs(apart), count) / 2
    return pl.DataFrame(
        {
            "stream": own[is_most].astype(np.uint32),
            "other": its[is_most].astype(np.uint32),
            "apart_ns": (usual - error[keys][is_most]).clip(0),
            "spread_ns": spread,
            "sampled": sizes[is_most],
        }
    )


def _sum_middles(group: Int64s, values: Int64s, count: Int64s) -> Int64s:
    """Return the sum of the two middle values of each group, twice its median; no group is empty, and values are small."""
    if not len(values):
        return np.zeros(len(count), np.int64)
    first = np.cumsum(count) - count
    least, span = int(values.min()), int(values.max()) - int(values.min()) + 1
    # distances are small: one number of group and distance sorts several times as fast as rows; these are mostly by group,
    # which a stable sort recognises
    ordered = np.sort(group * span + (values - least), kind="stable")
    low, high = ordered[first + (count - 1) // 2], ordered[first + count // 2]
    middles: Int64s = low + high - 2 * (np.arange(len(count)) * span - least)
    return middles


_CHANNEL = ["lane", "channel", "name", "communicator"]
_NEED = ("need_start_ns", "need_end_ns")
_NONE = -(1 << 40)  # no shift of ordinals
_MOST_LANES = 1 << 32

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
        kind: Kind of the anchors that are needed: an exchange of all with all ("send_receive") ends on all members
            together, like a collective.
    """
    of_kind = anchors.filter(pl.col("kind") == kind)
    if of_kind.is_empty() or needed.is_empty():
        return LAST_MEMBERS.to_frame()
    events = _list_events(of_kind, lanes)
    captured = anchors.group_by("lane").agg(first_ns=pl.col("start_ns").min(), last_ns=pl.col("end_ns").max())
    members = pair_members(events, captured)
    requested = needed.join(
        events, left_on=["lane", *_NEED], right_on=["lane", "start_ns", "end_ns"], maintain_order="left"
    )
    stream = numbers(requested["stream"])
    last = _find_last(
        _Requests(
            stream=stream,
            ordinal=numbers(requested["ordinal"]),
            start=numbers(requested["need_start_ns"]),
            end=numbers(requested["need_end_ns"]),
        ),
        (numbers(members["stream"]), numbers(members["other"])),
        _read_events(events, lanes),
    )
    size = int(numbers(events["stream"]).max()) + 1
    known_count = np.bincount(numbers(members["stream"]), minlength=size)
    is_hidden = np.zeros(size, np.bool_)
    is_hidden[numbers(list_hidden(events)["stream"])] = True
    of_last = stream[last.request]
    is_complete = (last.member_count == known_count[of_last]) & ~is_hidden[of_last]
    rows = requested[["lane", *_NEED]][last.request]
    found = {
        "peer_start_ns": last.began,
        "bound_ns": _relate_clocks(lanes, numbers(rows["lane"]), last.lane),
        "waits_for": last.lane.astype(np.uint32),
        "is_complete": is_complete,
    }
    return rows.hstack([pl.Series(name, values) for name, values in found.items()])


class _Requests(Struct, frozen=True, kw_only=True):
    """Collectives whose last member is wanted."""

    stream: Int64s
    ordinal: Int64s  # in its stream
    start: Int64s
    end: Int64s


class _Events(Struct, frozen=True, kw_only=True):
    """Collectives by stream, then ordinal, with the clocks of their lanes."""

    stream: Int64s
    lane: Int64s
    start: Int64s
    end: Int64s
    clock: Int64s
    bound: Int64s  # 0 where unknown
    relation: Int64s  # times of lanes with the same number can be compared
    first: Int64s  # row of the first event of each stream
    by_end: Int64s  # rows by stream, then end


class _Matches(Struct, frozen=True, kw_only=True):
    """Kernels of other members."""

    request: Int64s
    event: Int64s


class _Last(Struct, frozen=True, kw_only=True):
    """The last member of each request that has one."""

    request: Int64s
    began: Int64s
    lane: Int64s
    member_count: Int64s


def _list_events(anchors: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """List collectives by end, with their stream, its clock, and their ordinal in it."""
    clocks = lanes.select(
        "lane", "clock", pl.col("bound_ns").fill_null(0), clock_set=number_comparable(lanes)
    )
    keyed = anchors.join(clocks, on="lane", maintain_order="left")
    streams = keyed.select(_CHANNEL).unique(maintain_order=True).with_row_index("stream")
    # by start, so that equal rows of two streams keep a fixed order
    keyed = keyed.join(streams, on=_CHANNEL, nulls_equal=True, maintain_order="left").select(
        "stream", "lane", "name", "communicator", "start_ns", "end_ns", "clock", "bound_ns", "clock_set"
    )
    stream, start = numbers(keyed["stream"]), numbers(keyed["start_ns"])
    order = order_rows(stream, start)
    count = np.bincount(stream)
    ordinal = np.empty(len(order), np.int64)
    ordinal[order] = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    by_end = np.lexsort((start, numbers(keyed["end_ns"])))
    events: pl.DataFrame = keyed.hstack([pl.Series("ordinal", ordinal)])[by_end]
    return events


def _read_events(events: pl.DataFrame, lanes: pl.DataFrame) -> _Events:
    stream, ordinal = (numbers(events[name]) for name in ("stream", "ordinal"))
    order = order_rows(stream, ordinal)
    count = np.bincount(stream)
    columns = {"lane": "lane", "start": "start_ns", "end": "end_ns", "clock": "clock", "bound": "bound_ns"}
    arrays = {name: numbers(events[column])[order] for name, column in columns.items()}
    relation = np.full(int(numbers(lanes["lane"]).max()) + 1, -1)
    relation[numbers(lanes["lane"])] = _number_relations(lanes)
    return _Events(
        stream=stream[order],
        **arrays,
        relation=relation[arrays["lane"]],
        first=np.cumsum(count) - count,
        by_end=_invert(order)[np.argsort(stream, kind="stable")],
    )


def _number_relations(lanes: pl.DataFrame) -> Int64s:
    """Number the groups of clocks with known bounds, from 0; -1 for other clocks."""
    _, group, bound = (numbers(lanes[name]) for name in CLOCK)
    return np.where((group == NEVER) | (bound == NEVER), -1, group)


def _relate_clocks(lanes: pl.DataFrame, own: Int64s, other: Int64s) -> Int64s:
    """Return the errors of times of lanes on the clocks of others, which can be compared: 0 on one clock."""
    size = int(numbers(lanes["lane"]).max()) + 1
    clock, bound = np.zeros(size, np.int64), np.zeros(size, np.int64)
    clock[numbers(lanes["lane"])] = numbers(lanes["clock"])
    bound[numbers(lanes["lane"])] = numbers(lanes["bound_ns"].fill_null(0))
    return np.where(clock[own] == clock[other], 0, bound[own] + bound[other])


def _invert(order: Int64s) -> Int64s:
    """Return the position of each row in an order."""
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return position


def _find_last(requests: _Requests, members: tuple[Int64s, Int64s], events: _Events) -> _Last:
    """Find the last member of each request: of members that began together, the first lane.

    Args:
        requests: The collectives.
        members: Streams, and for each another stream with the same collectives.
        events: All collectives.
    """
    asked = order_rows(requests.stream, requests.ordinal)
    counts = np.bincount(requests.stream, minlength=len(events.first))
    since = np.cumsum(counts) - counts
    by_stream = np.argsort(members[0], kind="stable")
    own, other = members[0][by_stream], members[1][by_stream]
    parts = [
        _match_block(requests, own[block], other[block], asked, since, counts, events)
        for block in divide_groups(own, counts[own], _BLOCK_ROWS)
    ]
    nothing = np.zeros(0, np.int64)
    return join_rows(_Last(request=nothing, began=nothing, lane=nothing, member_count=nothing), *parts)


def _match_block(
    requests: _Requests,
    own: Int64s,
    other: Int64s,
    asked: Int64s,
    since: Int64s,
    counts: Int64s,
    events: _Events,
) -> _Last:
    """Match the requests of some streams with all other members, and find the last one.

    Args:
        requests: The collectives.
        own: Stream of each pair of streams.
        other: Its other stream.
        asked: Requests by stream and ordinal.
        since: First of these of each stream.
        counts: Number of these of each stream.
        events: All collectives.
    """
    pair = np.repeat(np.arange(len(own)), counts[own])
    request = asked[expand_windows(since[own], since[own] + counts[own])]
    matches = _match_members(requests, request, pair, own, other, events)
    mine = events.first[requests.stream[matches.request]]
    is_same = events.clock[mine] == events.clock[matches.event]
    relation = events.relation[matches.event]
    matches = select_rows(matches, is_same | ((relation >= 0) & (relation == events.relation[mine])))
    request, began, lane = matches.request, events.start[matches.event], events.lane[matches.event]
    size = len(requests.stream)
    member_count, latest = np.bincount(request, minlength=size), np.full(size, NEVER)
    np.maximum.at(latest, request, began)
    is_last, first_lane = began == latest[request], np.full(size, _MOST_LANES)
    np.minimum.at(first_lane, request[is_last], lane[is_last])
    found = np.flatnonzero(member_count)
    return _Last(request=found, began=latest[found], lane=first_lane[found], member_count=member_count[found])


def _match_members(
    requests: _Requests, request: Int64s, pair: Int64s, own: Int64s, other: Int64s, events: _Events
) -> _Matches:
    """Match collectives with the kernels of other members: by their ends, else by their order in both streams.

    A few members end much later than others. Such a collective is as far after (or before) the last (or next) matched
    collective of its stream as that of the other member in the other stream.

    Args:
        requests: The collectives.
        request: Collective of each row, by pair, then ordinal.
        pair: Pair of streams of each row.
        own: Stream of each pair.
        other: Its other stream.
        events: All collectives.
    """
    mine, its = events.first[own][pair], events.first[other][pair]
    error = np.where(events.clock[mine] == events.clock[its], 0, events.bound[mine] + events.bound[its])
    reach = SKEW_NS + error.clip(max=MAX_BOUND_NS)
    start, end, ordinal = requests.start[request], requests.end[request], requests.ordinal[request]
    near = _find_nearest(other[pair], end, events)
    is_same = np.abs(end - events.end[near]) <= reach
    shift = np.where(is_same, near - its - ordinal, _NONE)
    before, after = _fill(pair, shift)
    is_certain = ~is_same & ((before == after) | (before == _NONE) | (after == _NONE))
    to = ordinal + np.where(before == _NONE, after, before)
    limit = np.append(events.first[1:], len(events.end))[other[pair]] - its
    rest = np.flatnonzero(is_certain & (to >= 0) & (to < limit))
    event = (its + to)[rest]
    overlaps = (events.start[event] - reach[rest] <= end[rest]) & (
        events.end[event] + reach[rest] >= start[rest]
    )
    rest, event = rest[overlaps], event[overlaps]
    same = np.flatnonzero(is_same)
    rows = np.append(same, rest)
    return _Matches(request=request[rows], event=np.append(near[same], event))


def _find_nearest(stream: Int64s, end: Int64s, events: _Events) -> Int64s:
    """Find the collective of a stream that ends nearest to each time: of two as near, the later one."""
    combined = combine_keys(
        np.append(events.stream[events.by_end], stream), np.append(events.end[events.by_end], end)
    )
    ends, wanted = combined[: len(events.end)], combined[len(events.end) :]
    last = np.searchsorted(ends, wanted, side="right") - 1  # at or before
    low = events.first[stream]
    high = np.append(events.first[1:], len(ends))[stream] - 1
    before, after = events.by_end[last.clip(low, high)], np.minimum(last + 1, high).clip(low)
    # the last of those that end together
    after = np.searchsorted(ends, ends[after], side="right") - 1
    after = events.by_end[after]
    is_after = np.abs(events.end[after] - end) <= np.abs(end - events.end[before])
    nearest: Int64s = np.where(is_after, after, before)
    return nearest


def _fill(group: Int64s, values: Int64s) -> tuple[Int64s, Int64s]:
    """Return the last known value before each row of its group, and the next one after it; `_NONE` without one.

    >>> before, after = _fill(np.array([0, 0, 0, 1]), np.array([_NONE, 7, _NONE, _NONE]))
    >>> before.tolist() == [_NONE, 7, 7, _NONE], after.tolist() == [7, 7, _NONE, _NONE]
    (True, True)
    """
    index, is_known = np.arange(len(values)), values != _NONE
    before = np.maximum.accumulate(np.where(is_known, index, -1)) if len(values) else index
    after = (
        np.minimum.accumulate(np.where(is_known, index, len(values))[::-1])[::-1] if len(values) else index
    )
    padded, groups = np.append(values, _NONE), np.append(group, -1)
    return (
        np.where(groups[before] == group, padded[before], _NONE),
        np.where(groups[after] == group, padded[after], _NONE),
    )
