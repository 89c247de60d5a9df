"""Members of collectives: streams of lanes that run the same ones."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import find_distinct, index_rows, numbers
from nsys_pp.arrays.order import combine_keys
from nsys_pp.arrays.segments import divide_groups, expand_windows
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.clock import SKEW_NS, relative_bound
from nsys_pp.frames.columns import build_frame, select_columns

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
