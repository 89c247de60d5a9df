"""Which range lies inside which, on its thread."""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.ancestors import count_ancestors
from nsys_pp.arrays.types import Int64s
from nsys_pp.projection.order import order_by_time


def find_parents(owner: Int64s, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Find the innermost interval around each interval, among those of its owner.

    A parent starts no later and ends no earlier than its child; of several such the one that
    starts last is the innermost, and of equal intervals the earlier row is the outer one.
    Intervals may cross (start/end ranges, interleaved domains): crossing is not containing.

    In order of (owner, start, longest first) the parent is the nearest row before a row that
    does not end before it.

    Args:
        owner: Any integer that says which intervals belong together.
        start: ns.
        end: ns, not before start.

    Returns:
        Row of the parent, -1 at the top; depth, 0 at the top. Both in order of the input.
    """
    count = len(start)
    order = order_by_time(owner, start, -end)
    owners = owner[order]
    is_first = np.ones(count, dtype=bool)
    is_first[1:] = owners[1:] != owners[:-1]
    first = np.maximum.accumulate(np.where(is_first, np.arange(count), 0))
    above = find_previous_reaching(end[order], first)

    parent = np.full(count, -1, dtype=np.int64)
    parent[order] = np.where(above >= 0, order[above], -1)
    depth = np.zeros(count, dtype=np.int64)
    depth[order] = count_ancestors(above)
    return parent, depth


def find_previous_reaching(values: Int64s, first: Int64s) -> Int64s:
    """Find the nearest earlier row whose value is not below the row's own.

    All rows look at once, by jumping: a row whose candidate is below it goes on to that
    candidate's own candidate, because every row between the two is lower still. That finds all but
    those behind a long slope (after ranges that nest deep, a step at a time), which look into a
    tree of maxima; so work is O(rows log rows) whatever the values are.

    Args:
        values: One per row.
        first: First row of each row's group, whose rows stand together: others do not count.

    Returns:
        A row, or -1.

    >>> find_previous_reaching(np.array([9, 4, 6, 6, 7, 8]), np.array([0, 0, 0, 0, 4, 4]))
    array([-1,  0,  0,  2, -1, -1])
    """
    candidate = np.arange(len(values)) - 1
    candidate[candidate < first] = -1
    pending = np.flatnonzero(candidate >= 0)
    for _ in range(len(values).bit_length()):
        at = candidate[pending]
        is_below = values[at] < values[pending]
        pending, at = pending[is_below], at[is_below]
        candidate[pending] = candidate[at]
        pending = pending[candidate[pending] >= 0]
    if len(pending):
        found = _descend(values, pending)
        candidate[pending] = np.where(found >= first[pending], found, -1)
    return candidate


def _descend(values: Int64s, rows: Int64s) -> Int64s:
    """Find the same for some rows, in a tree of the maxima of 2, 4, 8 ... values."""
    least = np.iinfo(np.int64).min
    maxima = [values]
    while len(maxima[-1]) > 1:
        below = maxima[-1] if len(maxima[-1]) % 2 == 0 else np.append(maxima[-1], least)
        maxima.append(np.maximum(below[0::2], below[1::2]))

    # Up: what lies before a row is blocks of growing size, one for each bit of the row's number.
    wanted = values[rows]
    block = np.full(len(rows), -1, dtype=np.int64)
    level = np.zeros(len(rows), dtype=np.int64)
    climbing = np.arange(len(rows))
    for height, highest in enumerate(maxima):
        number = rows[climbing] >> height
        has_block = (number & 1) == 1
        reaches = np.zeros(len(climbing), dtype=bool)
        reaches[has_block] = highest[number[has_block] - 1] >= wanted[climbing[has_block]]
        block[climbing[reaches]] = number[reaches] - 1
        level[climbing[reaches]] = height
        climbing = climbing[~reaches]

    # Down: the right half, if it reaches.
    for height in range(len(maxima) - 2, -1, -1):
        inside = np.flatnonzero((block >= 0) & (level > height))
        right = 2 * block[inside] + 1
        right_reaches = maxima[height][np.minimum(right, len(maxima[height]) - 1)] >= wanted[inside]
        block[inside] = np.where(right_reaches & (right < len(maxima[height])), right, right - 1)
    return block
