"""Longest gaps between compute segments, and the activities of the host in them."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, as_numbers, gather, has_value, index_rows, keep_rows, numbers
from nsys_pp.arrays.launch_calls import gather_calls
from nsys_pp.arrays.names import list_names, strip_texts
from nsys_pp.arrays.order import sort_rows
from nsys_pp.arrays.search import find_pairs
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import NAME
from nsys_pp.frames.training import GAPS
from nsys_pp.training.report.compute_segments import Segments
from nsys_pp.training.report.host_activities import find_activities
from nsys_pp.training.report.launched_ops import LaunchedOps
from nsys_pp.training.report.presets import EMITTED_SUFFIX

_PER_DEVICE, _PER_STEP = 50, 3
_PER_GAP = 3  # names of each kind of activity


def find_longest_gaps(
    segments: Segments,
    *,
    ops: LaunchedOps,
    ranges: pl.DataFrame,
    os_calls: pl.DataFrame,
) -> pl.DataFrame:
    """Find the longest gaps between compute segments, with the activities of the thread that launched the next kernel.

    Args:
        segments: Compute segments.
        ops: Operations of the report.
        ranges: `RANGES`.
        os_calls: `OS_CALLS`.

    Returns:
        `GAPS`: of each device the 50 longest gaps, and the 3 longest before segments of each step; of each gap the 3
        longest activities of each kind.
    """
    devices, api_calls = ops.devices, ops.api_calls
    row = _select(segments)
    keys = (numbers(devices[name])[segments.group[row]] for name in ("process_key", "device_id"))
    row = row[sort_rows(*keys, segments.previous_end[row])]
    call = _find_next_calls(segments, row, ops)
    thread = gather_calls(api_calls["thread_key"], call)
    start, end = segments.previous_end[row], segments.start[row]
    gaps = devices[segments.group[row]].hstack(
        [
            as_numbers("step", segments.step[row]),
            pl.Series("start_ns", start),
            pl.Series("end_ns", end),
            as_numbers("launch_ns", gather_calls(api_calls["start_ns"], call)),
        ]
    )
    known = np.flatnonzero(thread != NEVER)
    intervals = pl.DataFrame({"thread_key": thread[known], "start_ns": start[known], "end_ns": end[known]})
    of_thread = keep_rows(ranges, ~has_value(ranges["end_thread_key"]))
    items = {"range": of_thread, "call": api_calls, "os_call": os_calls}
    activities = [_label(find_activities(intervals, frame), kind, known) for kind, frame in items.items()]
    named = pl.concat(activities)
    return (
        gaps.with_row_index("gap")
        .join(named.with_columns(_strip(named["name"])), on="gap", how="left", maintain_order="left_right")
        .pipe(conform, GAPS)
    )


def _select(segments: Segments) -> Int64s:
    """Select the segments after the longest gaps: of each device, and of each step of a device."""
    after = np.flatnonzero(segments.previous_end != NEVER)
    length = segments.start[after] - segments.previous_end[after]
    is_selected = np.zeros(len(after), dtype=np.bool_)
    for keys, most in (((segments.group,), _PER_DEVICE), ((segments.step, segments.group), _PER_STEP)):
        order = np.lexsort((-length, *(key[after] for key in keys)))
        is_new = np.zeros(len(after), dtype=np.bool_)
        is_new[:1] = True
        for key in keys:
            is_new[1:] |= key[after][order][1:] != key[after][order][:-1]
        first = np.flatnonzero(is_new)
        place = np.arange(len(after)) - np.repeat(first, np.diff(np.append(first, len(after))))
        is_selected[order[place < most]] = True
    return after[is_selected]


def _find_next_calls(segments: Segments, row: Int64s, ops: LaunchedOps) -> Int64s:
    """Find the call that launched the first kernel of each segment; -1 where unknown, or cut at a step."""
    rows = np.flatnonzero(ops.is_compute)
    at = find_pairs(ops.device[rows], ops.start[rows], segments.group[row], segments.start[row])
    call: Int64s = np.append(ops.call, -1)[np.append(rows, -1)[at]]
    return call


def _label(activities: pl.DataFrame, kind: str, gap: Int64s) -> pl.DataFrame:
    """Keep the longest activities of each interval, with their kind and the row of their gap."""
    interval = numbers(activities["interval"])
    rank = np.arange(len(interval)) - np.searchsorted(interval, interval)
    longest = index_rows(activities, np.flatnonzero(rank < _PER_GAP))
    rows = gap[numbers(longest["interval"])].astype(np.uint32)
    columns = [
        pl.Series("activity", [kind], dtype=GAPS["activity"]).new_from_index(0, len(rows)),
        pl.Series("gap", rows),
    ]
    return longest[["name", "time_ns"]].hstack(columns)


def _strip(names: pl.Series) -> pl.Series:
    """Remove the endings of the names of emitted ranges; each distinct name is changed once."""
    distinct = list_names(names)
    return gather(strip_texts(distinct.texts, EMITTED_SUFFIX).cast(NAME), distinct.row).alias("name")
