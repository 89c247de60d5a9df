"""First launches of iterations: where the host pauses longest between the launches of each iteration."""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.training.report.repetition import Launches, count_names, group_grams
from nsys_pp.training.report.repetition_period import Period

REGULAR = 0.05  # difference of a segment from the usual number of launches, as a share, that is none
LIKE = 0.1  # difference of the counts of an iteration from the usual counts, as a share of its launches
_MOST_ANCHORS = 64
_LEAST_REGULAR = 0.9  # regular segments of an anchor, as a share of the most
_LEAST_AFTER_UPDATE = 0.8  # the same, of an anchor after the optimizer
_LEAST_BEGINS, _MOST_BEGINS = 0.7, 1.35  # occurrences of an anchor, as a share of the segments
_CLEAR = 3  # longest pause, in median pauses of the host between launches, from which it reveals the loop
_LEAST_PAUSE_NS = 10_000
_AFTER_UPDATE = (
    0.15  # share of an iteration from the last launch of the optimizer to the next iteration, at most
)
_BEFORE_UPDATE = 0.3  # share of an iteration from its begin to the optimizer, at least


def find_begins(launches: Launches, period: Period) -> Int64s:
    """Find the positions of the launches that begin iterations, of all launches that occur once in each.

    An optimizer ends an iteration. Otherwise, or if the host pauses nowhere, it ends with a copy to the host, or begins
    with a copy to the device.
    """
    begin = _choose_begin(launches, period)
    return begin if period.has_kinds or len(begin) < 2 else _split_multiples(launches, begin, period)


def _choose_begin(launches: Launches, period: Period) -> Int64s:
    """Choose the positions of one name, or of one pair of names."""
    size = period.cut.size
    anchors = _list_anchors(launches, period)
    pause = np.diff(launches.launch, prepend=launches.launch[:1])
    regular = np.array([_mark_regular(np.diff(begin), size).sum() for begin in anchors])
    pauses = np.array([np.median(pause[begin]) for begin in anchors])
    # a pair lacks the first iteration, if the capture begins with it
    is_good: Bools = regular >= max(min(_LEAST_REGULAR * regular.max(), regular.max() - 1), 1)
    least = max(_CLEAR * np.median(pause), _LEAST_PAUSE_NS)
    if period.has_update:
        is_after = np.array([_is_after_update(launches, begin, size) for begin in anchors])
        is_after &= regular >= _LEAST_AFTER_UPDATE * regular.max()
        if is_after.any() and (pauses[is_after].max() >= least or pauses[is_good].max(initial=0) < least):
            is_good = is_after
    rows = np.flatnonzero(is_good)
    if not len(rows):
        return period.cut.begin
    role = np.zeros(len(rows))
    if pauses[rows].max() < least:
        role = np.array([_rank_role(launches, anchors[row]) for row in rows])
    extra = np.array([len(anchors[row]) for row in rows]) - regular[rows]
    best: int = rows[np.lexsort((extra, -pauses[rows], role))[0]]
    return anchors[best]


def _list_anchors(launches: Launches, period: Period) -> list[Int64s]:
    """List the positions of names and pairs of names with the most segments of the usual length."""
    first, size, at = group_grams(launches.name)
    is_regular = _mark_regular(np.diff(at, append=0), period.cut.size)
    is_regular[first + size - 1] = False
    regular = np.add.reduceat(is_regular, first, dtype=np.int64)
    begins = len(period.cut.begin) * len(launches.name) / period.launch_count
    is_anchor = (regular >= 1) & (size >= _LEAST_BEGINS * begins) & (size <= _MOST_BEGINS * begins + 1)
    rows = np.flatnonzero(is_anchor)
    rows = rows[np.lexsort((size[rows], -regular[rows]))][:_MOST_ANCHORS]
    return [period.cut.begin, *(at[first[row] : first[row] + size[row]] for row in rows)]


def _mark_regular(length: Int64s, size: int) -> Bools:
    """Return the mask of segments with the usual number of launches."""
    is_regular: Bools = np.abs(length - size) <= max(REGULAR * size, 1)
    return is_regular


def _rank_role(launches: Launches, begin: Int64s) -> int:
    """Rank the launches that may begin iterations: after copies to the host, at copies to the device, others."""
    name, before = launches.name[begin], launches.name[np.maximum(begin - 1, 0)]
    if np.mean(launches.to_host[before] & ~launches.to_host[name]) > 0.5:
        return 0
    return 1 if np.mean(launches.is_input[name] & ~launches.is_input[before]) > 0.5 else 2


def _is_after_update(launches: Launches, begin: Int64s, size: int) -> bool:
    """Return whether iterations begin soon after the last launch of an optimizer."""
    updates = np.flatnonzero(launches.is_update[launches.name])
    at = np.searchsorted(updates, begin) - 1
    since = begin[at >= 0] - updates[at[at >= 0]]
    if not len(since) or np.median(since) > max(_AFTER_UPDATE * size, 3):
        return False
    following = np.append(updates, len(launches.name) + size)[np.searchsorted(updates, begin)]
    return bool(np.median(following - begin) > _BEFORE_UPDATE * size)


def _split_multiples(launches: Launches, begin: Int64s, period: Period) -> Int64s:
    """Split segments as long as several iterations, in which the anchor is missing."""
    length, size = np.diff(begin), period.cut.size
    times = np.round(length / size).astype(np.int64)
    is_multiple = (times >= 2) & (np.abs(length - times * size) <= REGULAR * size)
    if not is_multiple.any():
        return begin
    difference = measure_difference(count_names(launches, begin), np.outer(times, period.cut.median))
    rows = np.flatnonzero(is_multiple & (difference <= LIKE * length))
    part = np.concatenate([np.arange(1, count) for count in times[rows]]) if len(rows) else rows
    row = np.repeat(rows, times[rows] - 1)
    return np.sort(np.concatenate([begin, begin[row] + part * length[row] // times[row]]))


def measure_difference(counts: Int64s, usual: Floats) -> Floats:
    """Measure the number of launches by which segments (rows) differ from the usual counts by name (columns)."""
    difference: Floats = np.abs(counts - usual).sum(axis=1)
    return difference
