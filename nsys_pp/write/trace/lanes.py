"""Which slices share a lane: viewers drop or distort slices that overlap without nesting.

Both ways of packing give every slice the lowest lane that is free when it starts, as a loop
over the slices would, but for all slices at once. One lane is a chain: the first slice, then
the first that starts when that has ended, and so on. "Next in the chain" depends on the slice
alone, so whole chains are read off by doubling the length of the steps.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nsys_pp.arrays.ancestors import count_ancestors, has_marked_line
from nsys_pp.arrays.segments import running_maximum

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Perfetto's importer drops slices that lie inside 512 others; deeper ones go to a further lane.
MAX_DEPTH = 512


def pack_flat(start: Int64s, end: Int64s) -> Int64s:
    """Give overlapping slices different lanes.

    Slices that touch do not overlap; as many lanes are used as slices overlap at most.

    Args:
        start: ns, any order.
        end: ns, not before start.

    Returns:
        Lane per slice, in order of the input.

    >>> pack_flat(np.array([0, 5, 10, 6]), np.array([10, 8, 20, 12]))
    array([0, 1, 0, 2])
    """
    lane = np.zeros(len(start), dtype=np.int64)
    rest = np.arange(len(start))
    number = 0
    while len(rest):
        nobody = np.zeros(len(rest), dtype=np.int64)
        stays = _first_fit(nobody, start[rest], end[rest])
        lane[rest[stays]] = number
        rest = rest[~stays]
        number += 1
    return lane


def pack_nested(start: Int64s, end: Int64s, parent: Int64s) -> tuple[Int64s, Int64s]:
    """Give slices lanes in which they nest: children in their parent's lane where they fit.

    Children of one parent that overlap cannot share a lane. The one that starts later moves to
    a further lane with all that is inside it, and is no child any more there.

    Args:
        start: ns, any order.
        end: ns, not before start.
        parent: Row of the slice around each, -1 at the top. Parents that do not contain their
            child are not drawn as such, nor is anything drawn inside which an instant lies
            (a slice without length would stand on the edge of its neighbours).

    Returns:
        Lane per slice; row of the slice around it in that lane, -1 at the top.
    """
    around = np.maximum(parent, 0)
    is_inside = (parent >= 0) & (start[around] <= start) & (end <= end[around]) & (end > start)
    above = np.where(is_inside, parent, -1)
    above[count_ancestors(above) % MAX_DEPTH == 0] = -1

    lane = np.zeros(len(start), dtype=np.int64)
    rest = np.arange(len(start))
    number = 0
    while len(rest):
        place = np.full(len(start) + 1, -1, dtype=np.int64)
        place[rest] = np.arange(len(rest))
        group = place[above[rest]]
        stays = ~has_marked_line(group, ~_first_fit(group, start[rest], end[rest]))
        lane[rest[stays]] = number
        moved = rest[~stays]
        leaves_parent = stays[np.maximum(group[~stays], 0)] & (group[~stays] >= 0)
        above[moved[leaves_parent]] = -1
        rest = moved
        number += 1
    return lane, above


def nest_order(start: Int64s, end: Int64s, lane: Int64s, above: Int64s) -> tuple[Int64s, Int64s]:
    """Order packed slices for writing: by lane, each slice before those inside it.

    Args:
        start: ns.
        end: ns.
        lane: As packed.
        above: Row of the slice around each in its lane, -1 at the top.

    Returns:
        Rows in order; depth per row (in order of the input).
    """
    depth = count_ancestors(above)
    # Slices without length are at the top and alone there: they stand before what starts with them.
    order = np.lexsort((depth, -end, end > start, start, lane))
    return order, depth


def _first_fit(group: Int64s, start: Int64s, end: Int64s) -> Bools:
    """Say which slices get the first lane of their group (numbered from -1) in order of start."""
    stays = np.ones(len(start), dtype=bool)
    order = np.lexsort((end, start, group))
    group, start, end = group[order] + 1, start[order], end[order]
    reach = running_maximum(group, end)
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (start[1:] >= reach[:-1]) | (group[1:] != group[:-1])
    # Only runs of slices that overlap need a chain; each run begins with a free lane.
    run = np.cumsum(begins)
    is_crowded = np.bincount(run)[run] > 1
    crowd = np.flatnonzero(is_crowded)
    if len(crowd):
        stays[order[crowd]] = _is_in_chain(run[crowd], start[crowd], end[crowd])
    return stays


def _is_in_chain(run: Int64s, start: Int64s, end: Int64s) -> Bools:
    """Say which slices are in the chain of their run; slices are in order of (run, start, end)."""
    count = len(run)
    times = np.sort(start)
    following = np.searchsorted(
        (run << 32) | np.searchsorted(times, start), (run << 32) | np.searchsorted(times, end), side="left"
    )
    # A slice without length does not follow itself.
    following = np.maximum(following, np.arange(count) + 1)
    begins = np.ones(count, dtype=bool)
    begins[1:] = run[1:] != run[:-1]
    run_end = np.append(np.flatnonzero(begins)[1:], count)[np.cumsum(begins) - 1]
    step = np.append(np.where(following < run_end, following, count), count)
    chain = np.flatnonzero(begins)
    while True:
        further = step[chain]
        further = further[further < count]
        if not len(further):
            break
        chain = np.concatenate([chain, further])
        step = step[step]
    is_in_chain = np.zeros(count, dtype=bool)
    is_in_chain[chain] = True
    return is_in_chain
