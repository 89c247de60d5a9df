"""Intervals of owners: nesting, unions, overlaps, the innermost around a moment, samples in windows.

Functions over ancestors double their reach: after k rounds every row has seen 2**k ancestors, so the number
of rounds is the logarithm of the depth. More rounds mean that some parents form a cycle, which is an error
instead of an endless loop.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.columns import EVER, NEVER, list_distinct
from nsys_pp.arrays.search import expand_windows, find_first, find_last, order_by_time, running_maximum
from nsys_pp.arrays.types import Bools, Floats, Int64s


def _climb(parent: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield rows with an ancestor, and this ancestor: the parent first, then 2, 4, 8, ... generations above.

    Raises:
        ValueError: Some parents form a cycle.
    """
    ancestor = parent.copy()
    rows = np.flatnonzero(ancestor >= 0)
    for _ in range(len(parent).bit_length() + 1):
        if not len(rows):
            return
        via = ancestor[rows]
        yield rows, via
        ancestor[rows] = ancestor[via]
        rows = rows[ancestor[rows] >= 0]
    if len(rows):
        raise ValueError("the parents of some rows form a cycle")


def count_ancestors(parent: Int64s) -> Int64s:
    """Count the ancestors of each row.

    Args:
        parent: Row of the parent, -1 at a root.

    Raises:
        ValueError: Some parents form a cycle.

    >>> count_ancestors(np.array([-1, 0, 1, 1, -1]))
    array([0, 1, 2, 2, 0])
    """
    depth = (parent >= 0).astype(np.int64)
    for rows, via in _climb(parent):
        depth[rows] += depth[via]
    return depth


def has_marked_line(parent: Int64s, marked: Bools) -> Bools:
    """Return the mask of rows that are marked or have a marked ancestor.

    Raises:
        ValueError: Some parents form a cycle.

    >>> has_marked_line(np.array([-1, 0, 1, 0]), np.array([False, True, False, False]))
    array([False,  True,  True, False])
    """
    marked = marked.copy()
    for rows, via in _climb(parent):
        marked[rows] |= marked[via]
    return marked


def find_unmarked(parent: Int64s, marked: Bools) -> Int64s:
    """Find the nearest ancestor of each row that is not marked; -1 without one.

    Raises:
        ValueError: Some parents form a cycle.

    >>> find_unmarked(np.array([-1, 0, 1, 2]), np.array([False, True, True, False]))
    array([-1,  0,  0,  0])
    """
    # a marked row leads to its parent, any other one, or -1, to itself
    onward = np.where(marked, parent, np.arange(len(parent)))
    for rows, via in _climb(np.where(marked, parent, -1)):
        onward[rows] = onward[via]
    return np.where(parent >= 0, onward[parent], -1)


def find_parents(owner: Int64s, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Find the innermost enclosing interval of the same owner, for each interval.

    A parent starts no later and ends no earlier than its child. If several do, the one that starts
    last is the innermost; of equal intervals the earlier row is the outer one. Intervals may overlap
    without nesting (start/end ranges, interleaved domains).

    In order of (owner, start, longest first), the parent of a row is the nearest earlier row that
    does not end before it.

    Args:
        owner: Integer key per interval; only intervals with equal keys nest.
        start: ns.
        end: ns, not before start.

    Returns:
        Row of the parent, -1 at the top; depth, 0 at the top. Both in order of the input.
    """
    count = len(start)
    order = order_by_time(owner, start, -end)
    owners = owner[order]
    is_first = np.append(True, owners[1:] != owners[:-1])[:count]
    first = np.maximum.accumulate(np.where(is_first, np.arange(count), 0))
    above = find_previous_reaching(end[order], first)

    parent = np.full(count, -1, dtype=np.int64)
    parent[order] = np.where(above >= 0, order[above], -1)
    depth = np.zeros(count, dtype=np.int64)
    depth[order] = count_ancestors(above)
    return parent, depth


def find_previous_reaching(values: Int64s, first: Int64s) -> Int64s:
    """Find the nearest earlier row with an equal or larger value, for each row.

    All rows are searched at once by pointer jumping: a row whose candidate has a smaller value
    continues with the candidate of that candidate, since all rows between the two are smaller still.
    Rows after a long monotonic descent (deeply nested ranges) remain; they are searched in a tree of
    maxima, so that work is O(rows log rows) for any values.

    Args:
        values: One per row.
        first: First row of the group of each row; groups are contiguous, and only rows of the group count.

    Returns:
        A row, or -1.

    >>> find_previous_reaching(np.array([9, 4, 6, 6, 7, 8]), np.array([0, 0, 0, 0, 4, 4]))
    array([-1,  0,  0,  2, -1, -1])
    """
    candidate = np.arange(len(values)) - 1
    candidate[candidate < first] = -1
    pending = np.flatnonzero(candidate >= 0)
    for _ in range(len(values).bit_length()):
        current = candidate[pending]
        is_below = values[current] < values[pending]
        pending, current = pending[is_below], current[is_below]
        candidate[pending] = candidate[current]
        pending = pending[candidate[pending] >= 0]
    if len(pending):
        previous = _search_tree(values, pending, values[pending])
        candidate[pending] = np.where(previous >= first[pending], previous, -1)
    return candidate


def _search_tree(values: Int64s, rows: Int64s, threshold: Int64s) -> Int64s:
    """Find the nearest row before each row with a value of a threshold or more; -1 without one.

    It is searched in a tree of the maxima of 2, 4, 8 ... values.
    """
    least = np.iinfo(np.int64).min
    maxima = [values]
    while len(maxima[-1]) > 1:
        below = maxima[-1] if len(maxima[-1]) % 2 == 0 else np.append(maxima[-1], least)
        maxima.append(np.maximum(below[0::2], below[1::2]))

    # Up: the rows before a row are blocks of growing size, one for each set bit of its number.
    block = np.full(len(rows), -1, dtype=np.int64)
    level = np.zeros(len(rows), dtype=np.int64)
    climbing = np.arange(len(rows))
    for height, highest in enumerate(maxima):
        number = rows[climbing] >> height
        has_block = (number & 1) == 1
        reaches = np.zeros(len(climbing), dtype=bool)
        reaches[has_block] = highest[number[has_block] - 1] >= threshold[climbing[has_block]]
        block[climbing[reaches]] = number[reaches] - 1
        level[climbing[reaches]] = height
        climbing = climbing[~reaches]

    # Down: into the right half if its maximum suffices, else into the left one.
    for height in range(len(maxima) - 2, -1, -1):
        active = np.flatnonzero((block >= 0) & (level > height))
        right = 2 * block[active] + 1
        right_suffices = maxima[height][np.minimum(right, len(maxima[height]) - 1)] >= threshold[active]
        block[active] = np.where(right_suffices & (right < len(maxima[height])), right, right - 1)
    return block


class Intervals(Struct, frozen=True, kw_only=True):
    """Half-open intervals, by owner and start; an owner has no two that overlap."""

    owner: Int64s
    start: Int64s
    end: Int64s


class Overlaps(Struct, frozen=True, kw_only=True):
    """Parts of intervals that other ones cover, by row and start."""

    row: Int64s  # of the intervals
    other: Int64s  # row of the other one
    start: Int64s
    end: Int64s


def unite(owner: Int64s, start: Int64s, end: Int64s) -> Intervals:
    """Unite the intervals of each owner; neighbours that touch are joined, and empty ones are left out.

    >>> united = unite(np.array([5, 5, 5, 2]), np.array([0, 3, 9, 4]), np.array([4, 6, 9, 5]))
    >>> united.owner.tolist(), united.start.tolist(), united.end.tolist()
    ([2, 5], [4, 0], [5, 6])
    """
    kept = np.flatnonzero(start < end)
    kept = kept[np.lexsort((start[kept], owner[kept]))]
    owner, start, end = owner[kept], start[kept], end[kept]
    is_other = np.append(True, owner[1:] != owner[:-1])[: len(owner)]
    reach = running_maximum(np.cumsum(is_other), end)
    begins = is_other.copy()
    begins[1:] |= start[1:] > reach[:-1]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(owner))[: len(first)] - 1
    return Intervals(owner=owner[first], start=start[first], end=reach[last])


def subtract(start: Int64s, end: Int64s, overlaps: Overlaps) -> Overlaps:
    """Find the rest of the intervals that others overlap: before, between and after their parts.

    `other` is -1.

    >>> others = unite(np.array([5, 5]), np.array([0, 8]), np.array([4, 9]))
    >>> owner, start, end = np.array([5, 7]), np.array([2, 0]), np.array([20, 9])
    >>> rest = subtract(start, end, intersect(owner, start, end, others))
    >>> rest.row.tolist(), rest.start.tolist(), rest.end.tolist()
    ([0, 0], [4, 9], [8, 20])
    """
    rows = np.unique(overlaps.row)
    row = np.append(overlaps.row, rows)
    begins, stops = np.append(overlaps.end, start[rows]), np.append(overlaps.start, end[rows])
    begins, stops = (times[np.lexsort((times, row))] for times in (begins, stops))
    row, kept = np.sort(row), begins < stops
    return Overlaps(row=row[kept], other=np.full(int(kept.sum()), -1), start=begins[kept], end=stops[kept])


def intersect(owner: Int64s, start: Int64s, end: Int64s, others: Intervals) -> Overlaps:
    """Find the parts of intervals that other ones of the same owner cover.

    >>> others = unite(np.array([5, 5]), np.array([0, 8]), np.array([4, 9]))
    >>> found = intersect(np.array([5, 7]), np.array([2, 0]), np.array([20, 9]), others)
    >>> found.row.tolist(), found.start.tolist(), found.end.tolist()
    ([0, 0], [2, 8], [4, 9])
    """
    first = find_first(owner, start + 1, others.owner, others.end)  # ends after the start
    last = find_last(owner, end, others.owner, others.start, is_before=True)
    stop = np.where((first < 0) | (last < 0), first, np.maximum(last + 1, first))
    row = np.repeat(np.arange(len(owner)), stop - first)
    other = expand_windows(first, stop)
    return Overlaps(
        row=row,
        other=other,
        start=np.maximum(start[row], others.start[other]),
        end=np.minimum(end[row], others.end[other]),
    )


def split_at(start: Int64s, end: Int64s, edges: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Split each interval at the edges inside it: row, start and end of each piece, by row and start.

    Args:
        start: ns.
        end: ns, not before start.
        edges: Distinct, ascending.

    >>> split_at(np.array([0, 4, 5]), np.array([9, 5, 5]), np.array([4, 5, 9]))
    (array([0, 0, 0, 1, 2]), array([0, 4, 5, 4, 5]), array([4, 5, 9, 5, 5]))
    """
    first = np.searchsorted(edges, start, side="right")
    last = np.maximum(first, np.searchsorted(edges, end))
    row = np.repeat(np.arange(len(start)), last - first + 1)
    at = expand_windows(first, last + 1)  # a piece lies between an edge and the next one
    bounds = np.concatenate([[NEVER], edges, [EVER]])
    return row, np.maximum(bounds[at], start[row]), np.minimum(bounds[at + 1], end[row])


def find_innermost(
    owner: Int64s, time: Int64s, *, interval_owner: Int64s, start: Int64s, end: Int64s
) -> Int64s:
    """Find the innermost interval `[start, end)` of the same owner around each moment.

    The innermost interval starts last; among equal starts it ends first; among equal intervals it is the
    later row. Intervals may cross.

    Args:
        owner: Owner of each moment: any integer.
        time: ns.
        interval_owner: Owner of each interval.
        start: ns.
        end: ns.

    Returns:
        Row of an interval per moment, -1 without any.

    >>> find_innermost(np.array([7, 7, 8]), np.array([5, 9, 5]),
    ...     interval_owner=np.array([7, 7]), start=np.array([0, 5]), end=np.array([20, 6]))
    array([ 1,  0, -1])
    """
    innermost = np.full(len(owner), -1, dtype=np.int64)
    if not len(owner):
        return innermost
    # The bounds of intervals cut the time of each owner into numbered pieces, fewer than moments; an interval
    # has the pieces numbered [first, last), all of its owner.
    owners, bounds = list_distinct(owner), list_distinct(np.concatenate([start, end]))
    width = len(bounds) + 1
    number = np.searchsorted(owners, owner) * width + np.searchsorted(bounds, time, side="right")
    owner_index = np.minimum(np.searchsorted(owners, interval_owner), len(owners) - 1)
    rows = np.flatnonzero((owners[owner_index] == interval_owner) & (start < end))
    base = owner_index[rows] * width
    first = base + np.searchsorted(bounds, start[rows], side="right")
    last = base + np.searchsorted(bounds, end[rows], side="right")
    order = np.lexsort((-end[rows], start[rows], first))
    nearest = np.searchsorted(first[order], number, side="right") - 1
    reaching = _search_tree(last[order], nearest + 1, number + 1)
    innermost[reaching >= 0] = rows[order[reaching[reaching >= 0]]]
    return innermost


def average_windows(times: Int64s, values: Floats, edges: Int64s) -> Floats:
    """Average samples over the windows between edges, weighted by time.

    Args:
        times: Of at least two samples, ascending.
        values: Of the samples.
        edges: Ascending, from the first to the last time.

    >>> average_windows(np.array([0, 4, 10]), np.array([1.0, 7.0, 9.0]), np.array([0, 8, 10])).tolist()
    [4.0, 7.0]
    """
    return np.diff(integrate(times, values, edges)) / np.diff(edges)


def integrate(times: Int64s, values: Floats, edges: Int64s) -> Floats:
    """Integrate samples from the first one to each edge; arguments as in `average_windows`."""
    sums = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    at = np.clip(np.searchsorted(times, edges, side="right") - 1, 0, len(times) - 2)
    return sums[at] + values[at] * (edges - times[at])


def find_peaks(times: Int64s, values: Floats, start: Int64s, end: Int64s) -> Floats:
    """Find the largest sample that is valid in each interval.

    Args:
        times: Of at least two samples, ascending.
        values: Of the samples.
        start: Starts of intervals, from the first time on.
        end: Their ends, after the starts, until the last time, whose sample is valid in none.

    >>> times, values = np.array([0, 4, 10]), np.array([1.0, 7.0, 9.0])
    >>> find_peaks(times, values, np.array([0, 3]), np.array([4, 10])).tolist()
    [1.0, 7.0]
    """
    if not len(start):
        return np.zeros(0)
    first = np.searchsorted(times, start, side="right") - 1
    stop = np.searchsorted(times, end, side="left")
    return np.maximum.reduceat(np.append(values, -np.inf), np.column_stack([first, stop]).ravel())[::2]
