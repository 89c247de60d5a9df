"""Steps of devices without names of steps and jobs: the iterations that their launches repeat."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import NEVER, keep_rows, numbers
from nsys_pp.arrays.names import is_named
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.report import WAITING_CALL
from nsys_pp.training.report.iterations import Iterations, find_iterations
from nsys_pp.training.report.launch_order import order_launches
from nsys_pp.training.report.repetition import Launches

_LONGEST_PAUSE = 0.5  # of the host before an iteration, in iterations, that is all part of it


class RepeatedSteps(Struct, frozen=True, kw_only=True):
    """Steps of one device, in order; none where a device has no certain iterations."""

    host_start: Int64s  # end of the launch before the first one, or of a later wait for the GPU
    host_end: Int64s  # end of the last launch
    first: Int64s  # start of the first operation
    is_partial: Bools
    confidence: float | None  # 0 to 1; None without steps
    reason: str


def find_repeated_steps(
    gpu_ops: pl.DataFrame, *, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> RepeatedSteps:
    """Find the steps of one device from its launches.

    Args:
        gpu_ops: `GPU_OPS` of the device.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.
    """
    order = order_launches(gpu_ops, api_calls=api_calls, launches=launches)
    iterations = find_iterations(order, is_one_of_many=bool(gpu_ops["is_communication"].any()))
    if isinstance(iterations, str):
        return _refuse(iterations)
    begin, end = iterations.begin, iterations.end
    before = np.maximum(begin - 1, 0)
    pause = np.where(begin > 0, order.launch[begin] - order.launched[before], 0)
    usual = np.median(pause[pause > 0]) if (pause > 0).any() else 0
    longest = _LONGEST_PAUSE * np.median(np.diff(order.launch[begin])) if len(begin) > 1 else 0
    is_long = (pause > longest) | ((np.arange(len(begin)) == 0) & (pause > 2 * usual))
    pause = np.where(is_long, usual, np.maximum(pause, 0)).astype(np.int64)
    host_start = order.launch[begin] - pause
    is_own = numbers(api_calls["process_key"]) == gpu_ops["process_key"][0]
    waited = _find_last_waits(order.launch[begin], keep_rows(api_calls[["name", "end_ns"]], is_own))
    return RepeatedSteps(
        host_start=np.maximum(host_start, waited),
        host_end=np.maximum(order.launched[end - 1], order.launch[end - 1]),
        first=order.start[begin],
        is_partial=~iterations.is_whole,
        confidence=iterations.confidence,
        reason=_describe(order, iterations),
    )


def _find_last_waits(times: Int64s, api_calls: pl.DataFrame) -> Int64s:
    """Find the end of the last call that waits for the GPU before each time: such a wait ends an iteration."""
    ends = np.sort(numbers(api_calls["end_ns"])[is_named(api_calls["name"], WAITING_CALL)])
    return np.append(ends, NEVER)[np.searchsorted(ends, times, side="right") - 1]


def _describe(order: Launches, iterations: Iterations) -> str:
    """Describe the evidence for iterations in a sentence."""
    count = int(np.median((iterations.end - iterations.begin)[iterations.is_whole]))
    outside = len(order.name) - int((iterations.end - iterations.begin).sum())
    rest = f"; {outside:,} launches around them are in none" if outside else ""
    return (
        f"{count:,} launches repeat {iterations.whole_count:,} times, and {iterations.score:.0%} of the names of "
        f"operations occur equally often in each{rest}"
    )


def _refuse(reason: str) -> RepeatedSteps:
    nothing = np.zeros(0, dtype=np.int64)
    return RepeatedSteps(
        host_start=nothing,
        host_end=nothing,
        first=nothing,
        is_partial=nothing.astype(np.bool_),
        confidence=None,
        reason=reason,
    )
