"""Packing of slices into subtracks: viewers drop or distort slices that overlap without nesting.

`pack_flat` and `pack_nested` assign each slice to the first subtrack that is free at its start, like a loop over
the slices, but for all slices at once. The slices of a subtrack form a chain: the first slice, then the first slice that
starts at or after its end, and so on. The next slice of a chain depends only on the current slice, so chains are found
by pointer doubling. The compiled functions (`nsys_pp.arrays.core`) do the same slice by slice.
"""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.ancestors import count_ancestors, has_marked_line
from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.order import order_by_number, sort_rows
from nsys_pp.arrays.segments import running_maximum
from nsys_pp.arrays.types import Bools, Int64s

# Perfetto's importer drops slices inside 512 others, so deeper slices move to another subtrack.
MAX_DEPTH = 512


def pack_flat(start: Int64s, end: Int64s) -> Int64s:
    """Assign overlapping slices to different subtracks.

    Slices that touch do not overlap; the number of subtracks is the largest number of simultaneous slices.

    Args:
        start: ns, any order.
        end: ns, not before start.

    Returns:
        Subtrack per slice, in order of the input.

    >>> pack_flat(np.array([0, 5, 10, 6]), np.array([10, 8, 20, 12]))
    array([0, 1, 0, 2])
    """
    core = load_core()
    return _pack_flat(start, end) if core is None else core.pack_flat(start, end)


def _pack_flat(start: Int64s, end: Int64s) -> Int64s:
    """Assign slices to subtracks, a subtrack a pass."""
    subtrack = np.zeros(len(start), dtype=np.int64)
    rest = np.arange(len(start))
    number = 0
    while len(rest):
        no_group = np.zeros(len(rest), dtype=np.int64)
        stays = _first_fit(no_group, start[rest], end[rest])
        subtrack[rest[stays]] = number
        rest = rest[~stays]
        number += 1
    return subtrack


def pack_nested(start: Int64s, end: Int64s, parent: Int64s) -> tuple[Int64s, Int64s]:
    """Assign slices to subtracks of nested slices: children are in the subtrack of their parent if they fit.

    Overlapping children of the same parent cannot share a subtrack. The later child moves to another subtrack,
    together with all slices inside it, and has no parent there.

    Args:
        start: ns, any order.
        end: ns, not before start.
        parent: Row of the slice around each slice, -1 for outermost slices. A parent that does not contain its
            child is ignored. So is the parent of a zero-length slice, which could touch its siblings.

    Returns:
        Subtrack per slice; row of the slice around it in that subtrack, or -1.
    """
    around = np.maximum(parent, 0)
    is_inside = (parent >= 0) & (start[around] <= start) & (end <= end[around]) & (end > start)
    above = np.where(is_inside, parent, -1)
    above[count_ancestors(above) % MAX_DEPTH == 0] = -1
    core = load_core()
    return _pack_nested(start, end, above) if core is None else core.pack_nested(start, end, above)


def _pack_nested(start: Int64s, end: Int64s, above: Int64s) -> tuple[Int64s, Int64s]:
    """Assign nested slices to subtracks, a subtrack a pass; `above` is changed in place."""
    subtrack = np.zeros(len(start), dtype=np.int64)
    rest = np.arange(len(start))
    number = 0
    while len(rest):
        index = np.full(len(start) + 1, -1, dtype=np.int64)
        index[rest] = np.arange(len(rest))
        group = index[above[rest]]
        stays = ~has_marked_line(group, ~_first_fit(group, start[rest], end[rest]))
        subtrack[rest[stays]] = number
        moved = rest[~stays]
        leaves_parent = stays[np.maximum(group[~stays], 0)] & (group[~stays] >= 0)
        above[moved[leaves_parent]] = -1
        rest = moved
        number += 1
    return subtrack, above


def nest_order(start: Int64s, end: Int64s, subtrack: Int64s, above: Int64s) -> tuple[Int64s, Int64s]:
    """Order packed slices for writing: by subtrack, each slice before its children.

    Args:
        start: ns.
        end: ns.
        subtrack: Subtrack of each slice, as returned by `pack_flat` or `pack_nested`.
        above: Row of the slice around each slice in its subtrack, or -1.

    Returns:
        Rows in order of writing; depth of each slice, in order of the input.
    """
    depth = count_ancestors(above)
    # Zero-length slices have no parent and no child: they precede other slices with the same start.
    order = sort_rows(start, (end > start).view(np.int8), -end, depth)  # most rows are in this order
    number = subtrack[order]
    return order[order_by_number(number, int(number.max(initial=-1)) + 1)[0]], depth


def _first_fit(group: Int64s, start: Int64s, end: Int64s) -> Bools:
    """Return the mask of slices that fit into one subtrack per group (groups are numbered from -1), earliest first."""
    stays = np.ones(len(start), dtype=bool)
    order = np.lexsort((end, start, group))
    group, start, end = group[order] + 1, start[order], end[order]
    reach = running_maximum(group, end)
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (start[1:] >= reach[:-1]) | (group[1:] != group[:-1])
    # A run is a maximal set of slices without a gap; its subtrack is free at its start. A run of one slice needs no chain.
    run = np.cumsum(begins)
    in_long_run = np.flatnonzero(np.bincount(run)[run] > 1)
    if len(in_long_run):
        stays[order[in_long_run]] = _is_in_chain(run[in_long_run], start[in_long_run], end[in_long_run])
    return stays


def _is_in_chain(run: Int64s, start: Int64s, end: Int64s) -> Bools:
    """Return the mask of slices in the chain of their run; slices are in order of (run, start, end)."""
    count = len(run)
    times = np.sort(start)
    following = np.searchsorted(
        (run << 32) | np.searchsorted(times, start), (run << 32) | np.searchsorted(times, end), side="left"
    )
    # A zero-length slice does not follow itself.
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
