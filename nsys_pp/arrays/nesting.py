"""Nesting of ranges on their thread: parents and depths."""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.ancestors import count_ancestors
from nsys_pp.arrays.time_order import order_by_time
from nsys_pp.arrays.types import Int64s


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
        previous = _search_tree(values, pending)
        candidate[pending] = np.where(previous >= first[pending], previous, -1)
    return candidate


def _search_tree(values: Int64s, rows: Int64s) -> Int64s:
    """Find the nearest earlier row with an equal or larger value, in a tree of the maxima of 2, 4, 8 ... values."""
    least = np.iinfo(np.int64).min
    maxima = [values]
    while len(maxima[-1]) > 1:
        below = maxima[-1] if len(maxima[-1]) % 2 == 0 else np.append(maxima[-1], least)
        maxima.append(np.maximum(below[0::2], below[1::2]))

    # Up: the rows before a row are blocks of growing size, one for each set bit of its number.
    threshold = values[rows]
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
