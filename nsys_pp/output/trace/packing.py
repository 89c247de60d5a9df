"""Packing of slices into subtracks: viewers drop or distort slices that overlap without nesting.

`pack_flat` and `pack_nested` assign each slice to the first subtrack that is free at its start (`pack.c`).
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from nsys_pp.arrays.ancestors import count_ancestors
from nsys_pp.arrays.order import order_by_number, sort_rows
from nsys_pp.arrays.types import Int64s
from nsys_pp.compiled import load_library

# Perfetto's importer drops slices inside 512 others (kMaxDepth of slice_tracker.cc): deeper ones move to another subtrack.
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
