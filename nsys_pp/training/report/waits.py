"""Waits of each device: the chains of operations and launches that held the gaps between compute segments.

The chain of a gap begins with the holder of the kernel after it, and continues with the holder of this operation, until
one had ended before the gap. `nsys_pp.frames.training` has an example.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import NEVER, as_numbers, gather, numbers, pick
from nsys_pp.arrays.records import select_rows
from nsys_pp.arrays.search import find_first, find_last
from nsys_pp.arrays.segments import running_maximum
from nsys_pp.arrays.series import build_column
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.columns import build_frame
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import CAUSE, CAUSES, NEED, WAITS
from nsys_pp.training.report.compute_segments import Segments
from nsys_pp.training.report.devices import number_devices, repeat_devices
from nsys_pp.training.report.event_waits import find_event_waits
from nsys_pp.training.report.launched_ops import LaunchedOps
from nsys_pp.training.report.operation_holders import find_holders
from nsys_pp.training.report.operations import (
    ASIDE,
    COLLECTIVE,
    COPY,
    MESSAGE,
    Operations,
    find_last_ended,
    list_operations,
)

_CAUSES = pl.Series(CAUSES, dtype=CAUSE)
_HOST, _UNKNOWN, _IDLE, _COPY = (CAUSES.index(cause) for cause in ("host", "unknown", "idle", "copy"))


class _Gaps(Struct, frozen=True, kw_only=True):
    """Gaps of steps between compute segments, which the chain of an operation explains."""

    group: Int64s  # index of the device
    step: Int64s
    start: Int64s
    end: Int64s
    op: Int64s  # row of the next kernel of a main stream; in tails of the last operation of the step, -1 without one
    is_tail: Bools  # after the last kernel of a main stream in the step


class _Links(Struct, frozen=True, kw_only=True):
    """Operations that hold gaps, by gap and end."""

    gap: Int64s
    op: Int64s


def build_waits(
    segments: Segments,
    launched_ops: LaunchedOps,
    *,
    steps: pl.DataFrame,
    stream_calls: pl.DataFrame,
    messages: pl.DataFrame,
) -> pl.DataFrame:
    """Find the operations that hold the gaps between the compute segments of each step.

    Args:
        segments: Compute segments.
        launched_ops: Operations of the report.
        steps: `STEPS`.
        stream_calls: `STREAM_CALLS`.
        messages: `MESSAGES`, to distinguish sends from receives; empty: sends count as receives.

    Returns:
        `WAITS`; empty without steps.
    """
    devices, ops = launched_ops.devices, list_operations(launched_ops, messages)
    gaps = _list_gaps(segments, steps, number_devices(steps, devices), ops)
    is_held = ops.need >= 0
    is_held[gaps.op[gaps.op >= 0]] = True
    rows = np.flatnonzero(is_held)
    events = find_event_waits(ops, launched_ops, stream_calls=stream_calls)
    found = find_holders(rows, ops, launched_ops, events=events)
    holder, since = np.full(len(ops.start) + 1, -1), np.full(len(ops.start) + 1, NEVER)
    holder[rows], since[rows] = found.op, found.since
    return _build_frame(gaps, _follow(gaps, holder, ops), since, ops, devices)


def _list_gaps(segments: Segments, steps: pl.DataFrame, group: Int64s, ops: Operations) -> _Gaps:
    """List the gaps of each step: before each of its segments, and after the last one; `group`: of each step."""
    order = np.lexsort((numbers(steps["start_ns"]), group))
    group = group[order]
    number, start, end = (numbers(steps[name])[order] for name in ("step", "start_ns", "end_ns"))
    of_segment = find_last(segments.group, segments.start, group, start)
    inside = np.flatnonzero((of_segment >= 0) & (segments.start < pick(end, of_segment, NEVER)))
    step = of_segment[inside]
    before = np.maximum(segments.previous_end[inside], start[step])

    last = find_last(group, end, segments.group, segments.start, is_before=True)
    latest = pick(running_maximum(segments.group, segments.end), last, NEVER)
    after = np.minimum(np.maximum(latest, start), end)
    gap_step = np.append(step, np.arange(len(group)))
    gap_end = np.append(segments.start[inside], end)
    mains = np.flatnonzero(ops.need < 0)
    mains = mains[np.argsort(ops.start[mains], kind="stable")]
    kernel = pick(mains, find_first(group[gap_step], gap_end, ops.group[mains], ops.start[mains]), -1)
    is_tail = (kernel < 0) | (ops.start[kernel] >= end[gap_step])
    is_final = (ops.need == MESSAGE) | (ops.need == COLLECTIVE) | ((ops.need == COPY) & ops.is_on_main)
    final = find_last_ended(group, end, ops, is_final, ops.group, launched_by=end)

    gaps = _Gaps(
        group=group[gap_step],
        step=number[gap_step],
        start=np.append(before, after),
        end=gap_end,
        op=np.where(is_tail, final[gap_step], kernel),
        is_tail=is_tail,
    )
    kept = np.flatnonzero(gaps.start < gaps.end)
    kept = kept[np.lexsort((gaps.start[kept], gaps.group[kept]))]
    return select_rows(gaps, kept)


def _follow(gaps: _Gaps, holder: Int64s, ops: Operations) -> _Links:
    """Follow the chain of each gap back to its start.

    Round k finds the operations at distances 2**k to 2**(k+1) - 1: there are as many rounds as bits in the length of
    the longest chain.

    Args:
        gaps: Gaps.
        holder: Row of the operation that held each one; -1 without one, and for row -1.
        ops: Operations.
    """

    def select(gap: Int64s, op: Int64s) -> tuple[Int64s, Int64s]:
        is_link = (op >= 0) & (pick(ops.end, op, NEVER) > gaps.start[gap])
        is_link &= pick(ops.need, op, -1) >= 0
        return gap[is_link], op[is_link]

    first = np.where(gaps.is_tail, gaps.op, holder[gaps.op])
    gap, op = select(np.arange(len(gaps.op)), first)
    jump, found_count = holder, -1
    while len(gap) != found_count:
        found_count = len(gap)
        further = select(gap, jump[op])
        gap, op = np.append(gap, further[0]), np.append(op, further[1])
        jump = jump[jump]
    order = np.lexsort((ops.end[op], gap))
    return _Links(gap=gap[order], op=op[order])


def _build_frame(
    gaps: _Gaps, links: _Links, since: Int64s, ops: Operations, devices: pl.DataFrame
) -> pl.DataFrame:
    """Cut each gap at the starts and ends of its links; a link may outlast the gap, or begin after it.

    Args:
        gaps: Gaps.
        links: Their links.
        since: Time from which nothing known held each operation; `NEVER` for row -1.
        ops: Operations.
        devices: Devices.
    """
    gap = np.append(links.gap, np.arange(len(gaps.op)))
    op = np.append(links.op, np.full(len(gaps.op), -1))  # -1: the rest of the gap
    is_rest = op < 0
    op_start, op_end = pick(ops.start, op, NEVER), pick(ops.end, op, NEVER)
    order = np.lexsort((op_end, is_rest, gap))
    gap, op, is_rest = gap[order], op[order], is_rest[order]
    op_start, op_end = op_start[order], op_end[order]
    end = np.where(is_rest, gaps.end[gap], np.minimum(op_end, gaps.end[gap]))
    is_first = np.diff(gap, prepend=-1) != 0
    begin = np.where(is_first, gaps.start[gap], np.roll(end, 1))
    start = np.clip(np.where(is_rest, end, op_start), begin, end)

    is_idle = is_rest & gaps.is_tail[gap]
    unexplained = np.where(is_idle, start, np.clip(since[np.where(is_rest, gaps.op[gap], op)], begin, start))
    need = pick(ops.need, op, -1)
    run = np.select([need == COPY, need == ASIDE], [_COPY, _HOST], -1)  # kernels aside run in no gap
    parts = (
        (begin, unexplained, np.where(is_idle, _IDLE, _HOST)),
        (unexplained, start, np.full(len(gap), _UNKNOWN)),
        (start, end, run),
    )
    columns = np.stack([np.concatenate(column) for column in zip(*parts, strict=True)])
    part = np.repeat(np.arange(3), len(gap))
    kept = np.flatnonzero(columns[0] < columns[1])
    row = np.tile(np.arange(len(gap)), 3)[kept]
    kept = kept[np.lexsort((part[kept], row))]
    row = np.tile(np.arange(len(gap)), 3)[kept]
    is_run = (part[kept] == 2) & (run[row] < 0)
    frame = build_frame(
        [
            *repeat_devices(devices, gaps.group[gap[row]]),
            as_numbers("step", gaps.step[gap[row]]),
            build_column("start_ns", columns[0][kept]),
            build_column("end_ns", columns[1][kept]),
            gather(_CAUSES, columns[2][kept]).alias("cause"),
            gather(NEED.categories, np.where(is_run, need[row], -1)).alias("need"),
            as_numbers("need_op_id", np.where(is_run, op[row], -1), null=-1),
            as_numbers("need_start_ns", np.where(is_run, op_start[row], NEVER)),
            as_numbers("need_end_ns", np.where(is_run, op_end[row], NEVER)),
        ]
    )
    return conform(frame, WAITS)
