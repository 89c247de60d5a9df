"""Start and end of steps on their devices.

A step begins when the host begins it, unless the device is still busy with operations launched before, and at the latest
with its first operation. It ends when the next step begins; the last step, and a step after which the host launches
something else (an evaluation, a checkpoint) or restarts, when its range and its last operation have ended:

    CPU        [ step_1              )     [ step_2               )
    stream 7         [ set )[ gemm )  . . . .[ set )[ gemm ) ...
    stream 21     [ receive )              .     [ receive )
    step 1     [                           )
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.columns import NEVER, list_distinct
from nsys_pp.arrays.records import select_rows
from nsys_pp.arrays.search import find_first
from nsys_pp.arrays.segments import running_maximum
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.training.report.launched_ops import LaunchedOps

_LATE_NS = 50_000  # an operation that starts later than this after its launch is not explained by it


class StepOps(Struct, frozen=True, kw_only=True):
    """Operations of a report, by row of `GPU_OPS`."""

    device: Int64s  # index of the device
    start: Int64s
    end: Int64s
    launch: Int64s  # start of the launching call; of the operation, where the call is unknown
    launched: Int64s  # end of this call
    is_kernel: Bools  # or a graph, on a main stream
    is_communication: Bools
    is_aside: Bools  # no communication, and not on a main stream, as copies of the next batch

    def select(self, rows: Int64s) -> StepOps:
        """Return some of the operations."""
        return select_rows(self, rows)


class StepHosts(Struct, frozen=True, kw_only=True):
    """Steps, by device and first kernel; `NEVER` stands for unknown times."""

    device: Int64s  # index of the device
    number: Int64s  # in its name
    first: Int64s  # start of its first kernel on a main stream
    begin: Int64s  # on the host
    end: Int64s
    is_open: Bools  # the end on the host is that of the capture
    is_capture: Bools  # the whole capture is one step
    has_end: Bools  # operations launched after the end on the host are of no step


class StepEdges(Struct, frozen=True, kw_only=True):
    """Start and end of steps on their devices, in the order of `StepHosts`."""

    start: Int64s
    end: Int64s
    is_cut: Bools  # operations that were launched before the capture delayed its first operation


def list_step_ops(ops: LaunchedOps) -> StepOps:
    """List the operations of a report."""
    is_unknown = ops.call < 0
    launch, launched = ops.launch, ops.launched
    if is_unknown.any():
        launch, launched = (np.where(is_unknown, ops.start, times) for times in (launch, launched))
    is_main = ops.is_main & ~ops.is_communication
    return StepOps(
        device=ops.device,
        start=ops.start,
        end=ops.end,
        launch=launch,
        launched=launched,
        is_kernel=is_main & ops.is_kernel,
        is_communication=ops.is_communication,
        is_aside=~ops.is_communication & ~is_main,
    )


def find_step_edges(steps: StepHosts, ops: StepOps) -> StepEdges:
    """Find the start and the end of each step on its device.

    Args:
        steps: Steps, by device and first kernel.
        ops: Operations of steps.
    """
    first = _find_first(steps, ops)
    own_end, ended, is_followed = _find_last_ends(steps, ops, first)
    device = steps.device
    follows = np.append(False, device[1:] == device[:-1])[: len(device)]
    following_number = np.append(steps.number[1:], NEVER)[: len(device)]
    is_followed &= (following_number == NEVER) | (following_number == steps.number + 1)
    begin = np.where(steps.begin == NEVER, first, steps.begin)
    start = np.minimum(np.where(follows, np.maximum(begin, np.roll(ended, 1)), begin), first)
    is_cut = ~follows & (start < first) & _is_delayed(first, device, ops)
    start = running_maximum(device, np.where(is_cut, first, start))

    is_closed = ~(steps.is_open | steps.is_capture)
    own_end = np.maximum(own_end, np.where(is_closed, steps.end, NEVER))
    is_last = np.append(~follows[1:], True)[: len(device)]
    following = np.where(is_last, -NEVER, np.roll(start, -1))
    end = np.where(is_followed & ~is_last, following, np.minimum(own_end, following))
    return StepEdges(start=start, end=np.maximum(end, start), is_cut=is_cut)


def _find_first(steps: StepHosts, ops: StepOps) -> Int64s:
    """Find the start of the first operation of each step: a kernel, or a copy or set launched in the step before it."""
    others = np.flatnonzero(~(ops.is_kernel | ops.is_communication | ops.is_aside))
    others = others[np.argsort(ops.start[others], kind="stable")]
    at = find_first(ops.device[others], ops.start[others], steps.device, steps.first)
    begin = np.append(steps.begin, NEVER)[at]
    is_inside = (begin != NEVER) & (ops.launch[others] >= begin)
    first = steps.first.copy()
    np.minimum.at(first, at[is_inside], ops.start[others[is_inside]])
    return first


def _find_last_ends(steps: StepHosts, ops: StepOps, first: Int64s) -> tuple[Int64s, Int64s, Bools]:
    """Find the last operation of each step that ends before the first operation of the next step.

    Operations are of the step in whose range they are launched; those launched after its range are of none.

    Returns:
        End of the last operation of each step; end of the last operation launched until the next step; mask of steps
        after which nothing is launched until the next step.
    """
    own_end, end = steps.first.copy(), steps.first.copy()
    is_followed = np.ones(len(end), dtype=np.bool_)
    for device in list_distinct(steps.device).tolist():
        own = np.flatnonzero(steps.device == device)
        mine = ops.select(np.flatnonzero(ops.device == device))
        begin = np.maximum.accumulate(np.where(steps.begin[own] == NEVER, first[own], steps.begin[own]))
        at = np.maximum(np.searchsorted(begin, mine.launch, side="right") - 1, 0)
        has_end = steps.has_end[own] & (steps.end[own] != NEVER)
        is_inside = ~has_end[at] | (mine.launch <= steps.end[own][at])
        is_followed[own[at[~is_inside]]] = False
        counts = ~mine.is_aside & (mine.is_kernel | ~steps.is_capture[own[-1]])
        counts |= not ops.is_kernel.any()
        # an operation that outlasts the first one of the next step counts before the first step that it does not outlast
        passed = np.searchsorted(first[own], mine.end) - 1
        np.maximum.at(end, own[np.maximum(at, passed)[counts]], mine.end[counts])
        counts &= is_inside & (passed <= at)
        np.maximum.at(own_end, own[at[counts]], mine.end[counts])
    return own_end, end, is_followed


def _is_delayed(first: Int64s, device: Int64s, ops: StepOps) -> Bools:
    """Return the mask of first operations that start late after their launch, and not after a recorded operation."""
    order = np.flatnonzero(~(ops.is_communication | ops.is_aside))
    order = order[np.argsort(ops.start[order], kind="stable")]
    if not len(order):
        return np.zeros(len(first), dtype=np.bool_)
    at = order[find_first(device, first, ops.device[order], ops.start[order])]
    is_late = first - ops.launched[at] > _LATE_NS
    for number in list_distinct(device[is_late]).tolist():
        own = np.flatnonzero(is_late & (device == number))
        ended = np.sort(ops.end[ops.device == number])
        before = np.searchsorted(ended, first[own] - _LATE_NS)
        until = np.searchsorted(ended, first[own], side="right")
        is_late[own] = before == until
    return is_late
