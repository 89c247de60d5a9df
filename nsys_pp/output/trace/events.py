"""Begin and end events of nested slices, in file order."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.output.trace.packing import MAX_DEPTH

Array = NDArray[Any]


class Events(Struct, frozen=True, kw_only=True):
    """Events of subtracks in file order, one subtrack after the other.

    Event number `begin_index[i]` is the begin of row i; all other events are ends of slices. Marks and samples have
    no ends.
    """

    times_ns: NDArray[np.int64]
    begin_index: NDArray[np.int64]


def order_events(start_ns: Array, end_ns: Array, depth: Array, first_rows: Array | None = None) -> Events:
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
        first_rows: First slice of each subtrack, ascending from 0; all of its slices are together. None: one subtrack.

    Returns:
        Two events per slice. Empty in, empty out.

    Raises:
        ValueError: The slices are not in pre-order, do not nest, or nest deeper than Perfetto reads.
    """
    rows = len(start_ns)
    times, begin_index = _order_events(start_ns, end_ns, depth)
    steps = np.diff(times)
    if rows and first_rows is not None:
        steps[begin_index[first_rows[1:]] - 1] = 0  # from a subtrack to the next
        if depth[first_rows].any():
            raise ValueError("a subtrack begins inside a slice")
    if rows and steps.min() < 0:
        raise ValueError("slices of a subtrack overlap without nesting")
    return Events(times_ns=times, begin_index=begin_index)


def _order_events(start_ns: Array, end_ns: Array, depth: Array) -> tuple[Array, Array]:
    """Order events; return the times of all, and the number of the event that begins each slice."""
    rows = len(start_ns)
    depth = depth.astype(np.int64)
    ends_after = depth + 1 - np.append(depth[1:], 0)  # number of slices that end before the next begins
    if rows and (depth[0] != 0 or depth.min() < 0 or ends_after.min() < 0):
        raise ValueError("depths of slices are not in pre-order")
    if rows and depth.max() >= MAX_DEPTH:
        raise ValueError(f"slices nest {int(depth.max()) + 1} deep; Perfetto reads {MAX_DEPTH}")
    begin_index = 2 * np.arange(rows) - depth
    times = np.empty(2 * rows, dtype=np.int64)
    times[begin_index] = start_ns
    is_end = np.ones(2 * rows, dtype=bool)
    is_end[begin_index] = False
    times[is_end] = _in_order_of_ends(end_ns, depth, ends_after)
    return times, begin_index


def _in_order_of_ends(end_ns: Array, depth: Array, ends_after: Array) -> Array:
    """Sort ends by the index of their event.

    At each depth slices begin and end alternately, so the k-th end belongs to the k-th slice.
    """
    if not depth.any():
        return end_ns
    last_of_row = np.cumsum(ends_after)
    nth_end = np.arange(len(depth)) - np.repeat(last_of_row - ends_after, ends_after)
    depth_of_end = np.repeat(depth, ends_after) - nth_end
    sort_kind = np.int16  # numpy sorts 16-bit integers by radix sort, in linear time
    ordered = np.empty(len(end_ns), dtype=np.int64)
    ordered[np.argsort(depth_of_end.astype(sort_kind), kind="stable")] = end_ns[
        np.argsort(depth.astype(sort_kind), kind="stable")
    ]
    return ordered
