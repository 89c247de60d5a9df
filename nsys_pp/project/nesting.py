"""Which range lies inside which, on its thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nsys_pp.forest import count_ancestors
from nsys_pp.project.order import order_by_time

Int64s = npt.NDArray[np.int64]


def find_parents(owner: Int64s, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Find the innermost interval around each interval, among those of its owner.

    A parent starts no later and ends no earlier than its child; of several such the one that
    starts last is the innermost, and of equal intervals the earlier row is the outer one.
    Intervals may cross (start/end ranges, interleaved domains): crossing is not containing.

    In order of (owner, start, longest first) the parent is the nearest row before a row that
    does not end before it. It is found for all rows at once by jumping: a row whose candidate
    ends too early goes on to that candidate's own candidate, because every row between the two
    ends earlier still.

    Args:
        owner: Any integer that says which intervals belong together.
        start: ns.
        end: ns, not before start.

    Returns:
        Row of the parent, -1 at the top; depth, 0 at the top. Both in order of the input.
    """
    count = len(start)
    order = order_by_time(owner, start, -end)
    ends, owners = end[order], owner[order]
    is_first = np.ones(count, dtype=bool)
    is_first[1:] = owners[1:] != owners[:-1]
    first = np.maximum.accumulate(np.where(is_first, np.arange(count), 0))

    candidate = np.arange(count) - 1
    candidate[candidate < first] = -1
    pending = np.flatnonzero(candidate >= 0)
    while len(pending):
        at = candidate[pending]
        pending, at = pending[ends[at] < ends[pending]], at[ends[at] < ends[pending]]
        candidate[pending] = candidate[at]
        pending = pending[candidate[pending] >= 0]

    parent = np.full(count, -1, dtype=np.int64)
    parent[order] = np.where(candidate >= 0, order[candidate], -1)
    depth = np.zeros(count, dtype=np.int64)
    depth[order] = count_ancestors(candidate)
    return parent, depth
