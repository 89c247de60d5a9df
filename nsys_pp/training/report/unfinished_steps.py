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

from nsys_pp.arrays.columns import NEVER, list_distinct
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.training.report.launched_ops import LaunchedOps
from nsys_pp.training.report.step_edges import StepHosts

_LAUNCH = r"^(?:cuda|cu)(?:LaunchKernel|GraphLaunch)"  # copies and sets of no bytes have no operation either


def mark_unfinished_steps(steps: StepHosts, process: Int64s, ops: LaunchedOps) -> Bools:
    """Mark the steps at the end of each device's capture that launched kernels without a record.

    Earlier steps may launch kernels that never run, into a graph that is captured; those are not marked unless all later
    steps are. Of a process with several devices, it is not known where such a kernel would have run: it counts for all.

    Args:
        steps: Steps, by device and time.
        process: Process of each step.
        ops: Operations of the report.
    """
    is_unfinished = ops.calls.contain(_LAUNCH)
    is_unfinished[ops.launches["call_row"].to_numpy()] = False
    rows = np.flatnonzero(is_unfinished)
    mark = np.zeros(len(process), dtype=np.bool_)
    if not len(rows):
        return mark
    of_call, called = (ops.api_calls[name].to_numpy()[rows] for name in ("process_key", "start_ns"))
    begin, end = steps.begin, steps.end
    has_end = steps.has_end & (end != NEVER)
    for number in list_distinct(steps.device).tolist():
        own = np.flatnonzero(steps.device == number)
        mine = called[of_call == process[own[0]]]
        at = np.searchsorted(np.maximum.accumulate(begin[own]), mine, side="right") - 1
        mine, at = mine[at >= 0], at[at >= 0]
        is_inside = ~has_end[own[at]] | (mine <= end[own[at]])
        has_any = np.bincount(at[is_inside], minlength=len(own)) > 0
        mark[own] = np.logical_and.accumulate(has_any[::-1])[::-1]
    return mark
