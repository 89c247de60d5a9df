"""Steps at the end of a capture that launched more than it recorded.

The host launches operations long before they run. A capture that stops meanwhile has the calls, but not the operations, as
in the last half percent of a real report with a capture range (GindaChen's mfu_2gpu), and nowhere else in any of the
real reports:

    CPU        [ step_1 )[ step_2 )          |
    calls        L  L  L   L  L  L           |
    GPU             [gemm)[gemm)[gemm)[gemm)[|  two more gemms are not recorded: the step is partial
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, is_named, list_distinct, numbers
from nsys_pp.arrays.types import Bools, Int64s

_LAUNCH = r"^(?:cuda|cu)(?:LaunchKernel|GraphLaunch)"  # copies and sets of no bytes have no operation either


def mark_unfinished_steps(
    steps: pl.DataFrame, device: Int64s, *, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> Bools:
    """Mark the steps at the end of each device's capture that launched kernels without a record.

    Earlier steps may launch kernels that never run, into a graph that is captured; those are not marked unless all later
    steps are. Of a process with several devices, it is not known where such a kernel would have run: it counts for all.

    Args:
        steps: process_key, host_start_ns, host_end_ns (null: unknown) and has_end (calls after the end on the host are
            of no step); by device and time.
        device: Index of each step's device.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of all operations.
    """
    is_unfinished = is_named(api_calls["name"], _LAUNCH)
    is_unfinished[launches["call_row"].to_numpy()] = False
    rows = np.flatnonzero(is_unfinished)
    mark = np.zeros(len(steps), dtype=np.bool_)
    if not len(rows):
        return mark
    process, called = (api_calls[name].to_numpy()[rows] for name in ("process_key", "start_ns"))
    owner, begin, end = (numbers(steps[name]) for name in ("process_key", "host_start_ns", "host_end_ns"))
    has_end = steps["has_end"].to_numpy() & (end != NEVER)
    for number in list_distinct(device).tolist():
        own = np.flatnonzero(device == number)
        mine = called[process == owner[own[0]]]
        at = np.searchsorted(np.maximum.accumulate(begin[own]), mine, side="right") - 1
        mine, at = mine[at >= 0], at[at >= 0]
        is_inside = ~has_end[own[at]] | (mine <= end[own[at]])
        has_any = np.bincount(at[is_inside], minlength=len(own)) > 0
        mark[own] = np.logical_and.accumulate(has_any[::-1])[::-1]
    return mark
