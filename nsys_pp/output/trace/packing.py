"""Packing of slices into subtracks: viewers drop or distort slices that overlap without nesting.

`pack_flat` and `pack_nested` assign each slice to the first subtrack that is free at its start (`pack.c`).
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.intervals import count_ancestors
from nsys_pp.arrays.search import order_by_number, sort_rows
from nsys_pp.arrays.types import Int64s
from nsys_pp.compiled import load_library

# Perfetto's importer drops slices inside 512 others (kMaxDepth of slice_tracker.cc): deeper ones move to
# another subtrack.
MAX_DEPTH = 512
_LIBRARY = load_library(Path(__file__).with_name("pack.c"), {})
_LIBRARY.pack_flat.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 4]
_LIBRARY.pack_nested.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 6]
_LIBRARY.pack_flat.restype = _LIBRARY.pack_nested.restype = ctypes.c_int64


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
    subtrack = np.empty(len(start), dtype=np.int64)
    _call("pack_flat", sort_rows(start, end), start, end, subtrack)
    return subtrack


def pack_nested(start: Int64s, end: Int64s, parent: Int64s) -> tuple[Int64s, Int64s]:
    """Assign slices to subtracks of nested slices: children are in the subtrack of their parent if they fit.

    Overlapping children of the same parent cannot share a subtrack. The later child moves to another
    subtrack, together with all slices inside it, and has no parent there.

    Args:
        start: ns, any order.
        end: ns, not before start.
        parent: Row of the slice around each slice, -1 for outermost slices. A parent that does not contain
            its child is ignored. So is the parent of a zero-length slice, which could touch its siblings.

    Returns:
        Subtrack per slice; row of the slice around it in that subtrack, or -1.
    """
    around = np.maximum(parent, 0)
    is_inside = (parent >= 0) & (start[around] <= start) & (end <= end[around]) & (end > start)
    above = np.where(is_inside, parent, -1)
    above[count_ancestors(above) % MAX_DEPTH == 0] = -1
    order = sort_rows(start, end)
    rank, subtrack = np.empty_like(order), np.empty_like(order)
    rank[order] = np.arange(len(order))
    _call("pack_nested", order, rank, start, end, above, subtrack)
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


def _call(name: str, *columns: Int64s) -> None:
    """Call a function of the library with columns of one length; the last ones are written.

    Raises:
        ValueError: The columns have different lengths, or a row is not there.
        MemoryError: There is not enough.
    """
    # columns that are written are new, so that no copy is made of them
    held = [np.ascontiguousarray(column, dtype=np.int64) for column in columns]
    if len({len(column) for column in held}) > 1:
        raise ValueError("columns of different lengths")
    result = getattr(_LIBRARY, name)(len(held[0]), *(column.ctypes.data for column in held))
    if result == -1:
        raise MemoryError("not enough memory")
    if result < 0:
        raise ValueError("a slice is in a row that is not there")


class Events(Struct, frozen=True, kw_only=True):
    """Events of subtracks in file order, one subtrack after the other.

    Event number `begin_index[i]` is the begin of row i; all other events are ends of slices. Marks and
    samples have no ends.
    """

    times_ns: Int64s
    begin_index: Int64s


def order_events(start_ns: Int64s, end_ns: Int64s, depth: NDArray[np.int32], first_rows: Int64s) -> Events:
    """Order the begin and end events of nested slices as a depth-first walk of their tree visits them.

        depth 0   [ a          )[ b )
        depth 1     [ c )[ d )           a c /c d /d /a b /b

    Before slice i begins, i slices have begun, and all of them except its `depth[i]` ancestors have
    ended. So its begin is event number `2 * i - depth[i]`. The order is also correct for equal times: slices
    of zero length, touching slices, and parents that start or end with a child.

    Args:
        start_ns: Start of each slice, in pre-order.
        end_ns: End of each slice.
        depth: Number of slices around each slice; 0 for the first.
        first_rows: First slice of each subtrack, ascending from 0; all of its slices are together.

    Returns:
        Two events per slice.

    Raises:
        ValueError: The slices are not in pre-order, do not nest, or nest deeper than Perfetto reads.
    """
    rows = len(start_ns)
    ends_after = depth + 1 - np.append(depth[1:], 0)  # number of slices that end before the next begins
    if depth[first_rows].any() or depth.min() < 0 or ends_after.min() < 0:
        raise ValueError("depths of slices are not in pre-order")
    if depth.max() >= MAX_DEPTH:
        raise ValueError(f"slices nest {int(depth.max()) + 1} deep; Perfetto reads {MAX_DEPTH}")
    begin_index = 2 * np.arange(rows) - depth
    times = np.empty(2 * rows, dtype=np.int64)
    times[begin_index] = start_ns
    is_end = np.ones(2 * rows, dtype=bool)
    is_end[begin_index] = False
    times[is_end] = _in_order_of_ends(end_ns, depth, ends_after)
    steps = np.diff(times)
    steps[begin_index[first_rows[1:]] - 1] = 0  # from a subtrack to the next
    if steps.min() < 0:
        raise ValueError("slices of a subtrack overlap without nesting")
    return Events(times_ns=times, begin_index=begin_index)


def _in_order_of_ends(end_ns: Int64s, depth: NDArray[np.int32], ends_after: NDArray[np.int32]) -> Int64s:
    """Sort ends by the index of their event.

    At each depth slices begin and end alternately, so the k-th end belongs to the k-th slice.
    """
    if not depth.any():
        return end_ns
    nth_end = np.arange(len(depth)) - np.repeat(np.cumsum(ends_after) - ends_after, ends_after)
    depth_of_end = np.repeat(depth, ends_after) - nth_end
    sort_kind = np.int16  # numpy sorts 16-bit integers by radix sort, in linear time
    ordered = np.empty(len(end_ns), dtype=np.int64)
    order_of_ends = np.argsort(depth_of_end.astype(sort_kind), kind="stable")
    ordered[order_of_ends] = end_ns[np.argsort(depth.astype(sort_kind), kind="stable")]
    return ordered
