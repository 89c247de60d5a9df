"""Compute segments of a report, and the operation each one waited for.

A report does not record dependencies between kernels. They are inferred from the operations that ended in the gap
before a kernel:

    kernels   ... [ gemm )        gap          [ gemm )
    others           [ receive         )
                                        ^ the device waited: the kernel was launched before, and starts at once
                                        ^ the host waited: a synchronising call returns, then the kernel is launched
                                        ^ the stream waited: the kernel is launched later, after a `StreamWaitEvent`

In all other cases the kernel waited only for the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, as_numbers, gather_indices, is_among, is_named, numbers
from nsys_pp.arrays.launch_calls import find_launch_calls, gather_calls
from nsys_pp.arrays.search import find_first, find_last
from nsys_pp.arrays.segments import expand_windows, running_maximum
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import KERNEL_KINDS, WAITING_CALL
from nsys_pp.frames.training import COMPUTE_SEGMENTS, MESSAGES, NEED, PAUSE_NS
from nsys_pp.training.report.devices import list_devices, number_devices

_RECEIVE = MESSAGES["verb"].categories.to_list().index("receive")  # type: ignore[attr-defined]
_MESSAGE = r"(?i)send_?recv"
_STREAM_WAIT = "StreamWaitEvent"
_AT_ONCE_NS = 10_000  # a kernel that waits on its device starts this soon after the operation it waited for
_RETURN_NS = 100_000  # a call that waits for an operation returns this soon after its end


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segments:
    """Compute segments, by group (index of the device) and start."""

    group: Int64s
    step: Int64s  # `NEVER` outside all steps
    start: Int64s
    end: Int64s
    previous_end: Int64s  # of the device; `NEVER` for the first segment
    op_id: Int64s  # of the first kernel
    compute_ns: Int64s
    op_count: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    """Operations that can be waited for, by end. The last row is a sentinel for index -1."""

    op_id: Int64s
    group: Int64s  # index of the device
    process: Int64s
    start: Int64s
    end: Int64s
    launch: Int64s
    kind: Int64s  # index of `NEED`
    is_send: Bools


def build_compute_segments(
    *,
    gpu_ops: pl.DataFrame,
    steps: pl.DataFrame,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
    messages: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Join kernels into compute segments, and find the operation that each segment waited for.

    Args:
        gpu_ops: `GPU_OPS`.
        steps: `STEPS`.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.
        messages: `MESSAGES`, to distinguish sends from receives; None or empty: sends count as receives.

    Returns:
        `COMPUTE_SEGMENTS`: kernels and graphs that are not communication, joined over gaps of at most `PAUSE_NS`
        and cut where a step begins or ends; by process_key, device_id, start_ns. Empty in, empty out.
    """
    devices = list_devices(gpu_ops)
    group = number_devices(gpu_ops, devices)
    computes = ~gpu_ops["is_communication"].to_numpy() & is_among(gpu_ops["kind"], KERNEL_KINDS)
    segments = _join_ops(*_cut_at_steps(gpu_ops, group, computes, steps, devices))
    candidates = _list_candidates(gpu_ops, group, np.flatnonzero(~computes), messages, api_calls, launches)
    launch_call = find_launch_calls(
        pl.Series(segments.op_id), gpu_ops=gpu_ops, api_calls=api_calls, launches=launches
    )
    needed = _find_needs(segments, launch_call, candidates, api_calls, launches)
    columns = [
        as_numbers("step", segments.step),
        as_numbers("launch_ns", gather_calls(api_calls["start_ns"], launch_call)),
        NEED.categories.gather(gather_indices(np.where(needed < 0, -1, candidates.kind[needed]))).alias(
            "need"
        ),
        as_numbers("need_op_id", candidates.op_id[needed]),
        as_numbers("need_start_ns", candidates.start[needed]),
        as_numbers("need_end_ns", candidates.end[needed]),
        *(pl.Series(f"{name}_ns", getattr(segments, name)) for name in ("start", "end")),
        *(pl.Series(name, getattr(segments, name)) for name in ("compute_ns", "op_count")),
    ]
    return conform(devices[segments.group].hstack(columns), COMPUTE_SEGMENTS)


def _list_send_only_ops(messages: pl.DataFrame | None) -> Int64s:
    """List the op_id of kernels that only send: compute launched after a send rarely waits for it."""
    if messages is None or messages.is_empty():
        return np.zeros(0, dtype=np.int64)
    op_id, is_send = numbers(messages["op_id"]), numbers(messages["verb"]) != _RECEIVE
    return np.setdiff1d(op_id[is_send], op_id[~is_send])


def _cut_at_steps(
    gpu_ops: pl.DataFrame, group: Int64s, computes: Bools, steps: pl.DataFrame, devices: pl.DataFrame
) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Cut computing operations where a step of their device begins or ends.

    Returns:
        Group, start, end, step (`NEVER`: none) and op_id of each part, by group and start.
    """
    step_group = number_devices(steps, devices)
    step_start, step_end, step_number = (numbers(steps[name]) for name in ("start_ns", "end_ns", "step"))
    op_id, start, end = (numbers(gpu_ops[name]) for name in ("op_id", "start_ns", "end_ns"))
    parts = []
    for device in range(len(devices)):
        ops = np.flatnonzero(computes & (group == device))
        ops = ops[np.argsort(start[ops], kind="stable")]
        own = np.flatnonzero(step_group == device)
        own = own[np.argsort(step_start[own], kind="stable")]
        edges = np.unique(np.concatenate([step_start[own], step_end[own]]))
        # an operation that contains edges[first:last] is cut into last - first + 1 parts
        first, last = np.searchsorted(edges, start[ops], side="right"), np.searchsorted(edges, end[ops])
        last = np.maximum(first, last)
        op = np.repeat(ops, last - first + 1)
        edge = expand_windows(first, last + 1)  # the part ends at this edge, or with its operation
        bounded = np.concatenate([[NEVER], edges, [-NEVER]])
        part_start = np.maximum(bounded[edge], start[op])
        at = np.searchsorted(step_start[own], bounded[edge], side="right") - 1  # the last step started
        is_in = (at >= 0) & (bounded[edge] < np.append(step_end[own], NEVER)[at])
        step = np.where(is_in, np.append(step_number[own], NEVER)[at], NEVER)
        order = np.argsort(part_start, kind="stable")
        device_parts = (
            np.full_like(op, device),
            part_start,
            np.minimum(bounded[edge + 1], end[op]),
            step,
            op_id[op],
        )
        parts.append([column[order] for column in device_parts])
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, empty, empty, empty
    group, start, end, step, op_id = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return group, start, end, step, op_id


def _join_ops(group: Int64s, start: Int64s, end: Int64s, step: Int64s, op_id: Int64s) -> _Segments:
    """Join operations, sorted by group and start, into segments."""
    latest_end = running_maximum(group, end)
    previous_end = np.full(len(group), NEVER)
    previous_end[1:] = np.where(group[1:] == group[:-1], latest_end[:-1], NEVER)
    is_first = start - PAUSE_NS > previous_end
    is_first[1:] |= (step[1:] != step[:-1]) | (group[1:] != group[:-1])
    at = np.flatnonzero(is_first)
    covered = np.maximum(end - np.maximum(start, previous_end), 0)
    return _Segments(
        group=group[at],
        step=step[at],
        start=start[at],
        end=np.maximum.reduceat(end, at) if len(at) else end,
        previous_end=previous_end[at],
        op_id=op_id[at],
        compute_ns=np.add.reduceat(covered, at) if len(at) else covered,
        op_count=np.diff(np.append(at, len(group))),
    )


def _find_needs(
    segments: _Segments,
    launch_call: Int64s,
    candidates: _Candidates,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
) -> Int64s:
    """Find the operation that the first kernel of each segment waited for in the gap before it.

    Args:
        segments: The segments.
        launch_call: Row of the call that launched the first kernel of each segment.
        candidates: Operations that can be waited for.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES`.

    Returns:
        Row of `candidates` for each segment; -1 without one.
    """
    group, start, end = segments.group, segments.start, candidates.end
    launch = gather_calls(api_calls["start_ns"], launch_call)

    def in_gap(row: Int64s) -> Int64s:
        return np.where((end[row] > segments.previous_end) & (end[row] <= start), row, -1)

    def last_of(subset: Int64s, until: Int64s, time: Int64s) -> Int64s:
        return np.append(subset, -1)[find_last(group, until, candidates.group[subset], time)]

    all_rows = np.arange(len(end) - 1)
    device_need = in_gap(last_of(all_rows, start, end[all_rows]))
    not_sends = np.flatnonzero(~candidates.is_send[:-1])
    stream_need = in_gap(last_of(not_sends, start, end[not_sends]))
    stream_need[~_follows_stream_wait(launch_call, api_calls, launches)] = -1
    host_awaited, returned_ns = _find_host_awaited(candidates, api_calls)
    host_need = in_gap(last_of(host_awaited, launch, returned_ns))
    return_ns = np.full(len(end), NEVER)
    return_ns[host_awaited] = returned_ns

    is_launched_before = (launch == NEVER) | ((launch <= end[device_need]) & (start - launch > _AT_ONCE_NS))
    is_device_wait = (device_need >= 0) & (start - end[device_need] <= _AT_ONCE_NS) & is_launched_before
    is_launched_after_return = candidates.launch[stream_need] >= return_ns[host_need]
    is_stream_wait = (host_need < 0) | ((stream_need >= 0) & is_launched_after_return)
    return np.where(is_device_wait, device_need, np.where(is_stream_wait, stream_need, host_need))


def _list_candidates(
    gpu_ops: pl.DataFrame,
    group: Int64s,
    rows: Int64s,
    messages: pl.DataFrame | None,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
) -> _Candidates:
    """List the operations that can be waited for: rows of copies, sets and communication."""
    start, end = (numbers(gpu_ops[name]) for name in ("start_ns", "end_ns"))
    rows = rows[np.lexsort((start[rows], end[rows]))]
    ops = gpu_ops[rows]
    op_id, is_copy = numbers(ops["op_id"]), is_among(ops["kind"], ("memcpy", "memset"))
    kinds = NEED.categories.to_list()
    copy, message, collective = (kinds.index(kind) for kind in ("copy", "message", "collective"))
    first = find_launch_calls(ops["op_id"], gpu_ops=ops, api_calls=api_calls, launches=launches)

    def with_sentinel(values: Int64s) -> Int64s:
        return np.append(values, NEVER)

    return _Candidates(
        op_id=with_sentinel(op_id),
        group=with_sentinel(group[rows]),
        process=with_sentinel(numbers(ops["process_key"])),
        start=with_sentinel(start[rows]),
        end=with_sentinel(end[rows]),
        launch=with_sentinel(gather_calls(api_calls["start_ns"], first)),
        kind=np.append(
            np.where(is_copy, copy, np.where(is_named(ops["name"], _MESSAGE), message, collective)), 0
        ),
        is_send=np.append(np.isin(op_id, _list_send_only_ops(messages)), False),
    )


def _follows_stream_wait(launch_call: Int64s, api_calls: pl.DataFrame, launches: pl.DataFrame) -> Bools:
    """Return the mask of calls with a `StreamWaitEvent` on their thread since its last launch."""
    is_launch = np.zeros(len(api_calls), dtype=np.bool_)
    is_launch[launches["call_row"].to_numpy()] = True
    wait_calls = np.flatnonzero(is_named(api_calls["name"], _STREAM_WAIT))
    calls = np.concatenate([wait_calls, np.flatnonzero(is_launch)])
    thread, time = numbers(api_calls["thread_key"]), numbers(api_calls["start_ns"])
    order = np.argsort(time[calls], kind="stable")
    before = find_last(
        gather_calls(api_calls["thread_key"], launch_call),
        gather_calls(api_calls["start_ns"], launch_call),
        *(thread[calls[order]], time[calls[order]]),
        is_before=True,
    )
    is_after_wait: Bools = np.append(order < len(wait_calls), False)[before]
    return is_after_wait


def _find_host_awaited(candidates: _Candidates, api_calls: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Find the candidates that a host call waited for, and the return time of each call; by return time."""
    calls = np.flatnonzero(is_named(api_calls["name"], WAITING_CALL))
    process, begin, until = (
        numbers(api_calls[name])[calls] for name in ("process_key", "start_ns", "end_ns")
    )
    order = np.argsort(until, kind="stable")
    process, begin, until = process[order], np.append(begin[order], -NEVER), np.append(until[order], -NEVER)
    end = candidates.end[:-1]
    at = find_first(candidates.process[:-1], end, process, until[:-1])
    rows = np.flatnonzero((begin[at] <= end) & (until[at] - _RETURN_NS <= end))
    returned_ns = until[at[rows]]
    # of candidates with one return time the last is chosen: sends come first, since calls rarely wait for them
    order = np.lexsort((end[rows], ~candidates.is_send[rows], returned_ns))
    return rows[order], returned_ns[order]
