"""When a GPU computes without a break, and what it waited for before it went on.

A trace does not say what a kernel depends on. It can be told from what ended in the gap before it:

    kernels   ... [ gemm )        gap          [ gemm )
    others           [ receive         )
                                        ^ the device waited: the kernel starts at once, launched before
                                        ^ the host waited: a synchronising call returns, the launch follows
                                        ^ the launch comes later, after a call that lets its stream wait

Where none of these holds, only the host was late.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.arrays.columns import NEVER, as_numbers, is_among, numbers
from nsys_pp.arrays.segments import expand_windows, running_maximum
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import KERNEL_KINDS
from nsys_pp.frames.training import COMPUTE_SEGMENTS, MESSAGES, NEED, PAUSE_NS, WAITING_CALL
from nsys_pp.training.report.columns import is_named, list_devices, number_devices, places
from nsys_pp.training.report.launched import find_first_calls, of_calls
from nsys_pp.training.report.nearest import find_first, find_last

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_RECEIVE = MESSAGES["verb"].categories.to_list().index("receive")  # type: ignore[attr-defined]
_MESSAGE = r"(?i)send_?recv"
_LETS_WAIT = "StreamWaitEvent"
_AT_ONCE_NS = 10_000  # a kernel that waits on its device starts this soon after what it waited for
_RETURN_NS = 100_000  # a call that waits for an operation returns this soon after its end


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joined:
    """Stretches, by group (place of the device) and start."""

    group: Int64s
    step: Int64s  # `NEVER` outside all steps
    start: Int64s
    end: Int64s
    gap: Int64s  # end of what came before; `NEVER` where nothing did
    op_id: Int64s  # of the first kernel
    compute_ns: Int64s
    op_count: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    """What can be waited for, by end. One more row stands at the end, for -1, nobody's place: nothing ends there."""

    op_id: Int64s
    group: Int64s
    process: Int64s
    start: Int64s
    end: Int64s
    launch: Int64s
    kind: Int64s  # place in `NEED`
    is_send: Bools


def build_compute_segments(
    *,
    gpu_ops: pl.DataFrame,
    steps: pl.DataFrame,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
    messages: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Join kernels that follow each other, and tell what each stretch of them waited for.

    Args:
        gpu_ops: `GPU_OPS`.
        steps: `STEPS`.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.
        messages: `MESSAGES`; None or empty: sends are not told from receives.

    Returns:
        `COMPUTE_SEGMENTS`: kernels and graphs that are not communication, joined where at most `PAUSE_NS` lies
        between, cut where a step begins or ends; by process_key, device_id, start_ns.
    """
    devices = list_devices(gpu_ops)
    group = number_devices(gpu_ops, devices)
    computes = ~gpu_ops["is_communication"].to_numpy() & is_among(gpu_ops["kind"], KERNEL_KINDS)
    joined = _join(*_cut(gpu_ops, group, computes, steps, devices))
    candidates = _list_candidates(gpu_ops, group, np.flatnonzero(~computes), messages, api_calls, launches)
    own = find_first_calls(pl.Series(joined.op_id), launches=launches)
    needed = _find_needs(joined, own, candidates, api_calls, launches)
    columns = [
        as_numbers("step", joined.step),
        as_numbers("launch_ns", of_calls(api_calls["start_ns"], own)),
        NEED.categories.gather(places(np.where(needed < 0, -1, candidates.kind[needed]))).alias("need"),
        as_numbers("need_op_id", candidates.op_id[needed]),
        as_numbers("need_start_ns", candidates.start[needed]),
        as_numbers("need_end_ns", candidates.end[needed]),
        *(pl.Series(f"{name}_ns", getattr(joined, name)) for name in ("start", "end")),
        *(pl.Series(name, getattr(joined, name)) for name in ("compute_ns", "op_count")),
    ]
    return conform(devices[joined.group].hstack(columns), COMPUTE_SEGMENTS)


def _sends(messages: pl.DataFrame | None) -> Int64s:
    """List the kernels that only send (op_id): computation that is not launched yet seldom waits for one."""
    if messages is None or messages.is_empty():
        return np.zeros(0, dtype=np.int64)
    op_id, is_send = numbers(messages["op_id"]), numbers(messages["verb"]) != _RECEIVE
    return np.setdiff1d(op_id[is_send], op_id[~is_send])


def _cut(
    gpu_ops: pl.DataFrame, group: Int64s, computes: Bools, steps: pl.DataFrame, devices: pl.DataFrame
) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Cut computing operations where a step of their device begins or ends.

    Returns:
        Of the pieces, by group and start: group, start, end, step in which they are (`NEVER`: none), op_id.
    """
    of_step, began, over, number = (
        number_devices(steps, devices), *(numbers(steps[name]) for name in ("start_ns", "end_ns", "step"))
    )  # fmt: skip
    op_id, start, end = (numbers(gpu_ops[name]) for name in ("op_id", "start_ns", "end_ns"))
    parts = []
    for one in range(len(devices)):
        ops = np.flatnonzero(computes & (group == one))
        ops = ops[np.argsort(start[ops], kind="stable")]
        own = np.flatnonzero(of_step == one)
        own = own[np.argsort(began[own], kind="stable")]
        edges = np.unique(np.concatenate([began[own], over[own]]))
        # edges[from : to] lie inside an operation, which so has one piece more
        first, last = np.searchsorted(edges, start[ops], side="right"), np.searchsorted(edges, end[ops])
        last = np.maximum(first, last)
        op = np.repeat(ops, last - first + 1)
        edge = expand_windows(
            first, last + 1
        )  # that with which a piece ends, unless its operation does before
        bounded = np.concatenate([[NEVER], edges, [-NEVER]])
        piece_start = np.maximum(bounded[edge], start[op])
        at = np.searchsorted(began[own], bounded[edge], side="right") - 1  # the step that began last
        is_in = (at >= 0) & (bounded[edge] < np.append(over[own], NEVER)[at])
        step = np.where(is_in, np.append(number[own], NEVER)[at], NEVER)
        order = np.argsort(piece_start, kind="stable")
        lane_states = (
            np.full_like(op, one),
            piece_start,
            np.minimum(bounded[edge + 1], end[op]),
            step,
            op_id[op],
        )
        parts.append([column[order] for column in lane_states])
    if not parts:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, nothing, nothing, nothing
    group, start, end, step, op_id = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return group, start, end, step, op_id


def _join(group: Int64s, start: Int64s, end: Int64s, step: Int64s, op_id: Int64s) -> _Joined:
    """Join operations, by group and start, to stretches."""
    until = running_maximum(group, end)
    before = np.full(len(group), NEVER)
    before[1:] = np.where(group[1:] == group[:-1], until[:-1], NEVER)
    is_first = start - PAUSE_NS > before
    is_first[1:] |= (step[1:] != step[:-1]) | (group[1:] != group[:-1])
    at = np.flatnonzero(is_first)
    covered = np.maximum(end - np.maximum(start, before), 0)
    return _Joined(
        group=group[at],
        step=step[at],
        start=start[at],
        end=np.maximum.reduceat(end, at) if len(at) else end,
        gap=before[at],
        op_id=op_id[at],
        compute_ns=np.add.reduceat(covered, at) if len(at) else covered,
        op_count=np.diff(np.append(at, len(group))),
    )


def _find_needs(
    joined: _Joined, own: Int64s, candidates: _Candidates, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> Int64s:
    """Find what the first kernels of stretches waited for in the gap before them.

    Args:
        joined: The stretches.
        own: Row of the call that launched the first kernel of each.
        candidates: What they may have waited for.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES`.

    Returns:
        Place among the candidates of each stretch's need; -1 where there is none.
    """
    group, start, end = joined.group, joined.start, candidates.end
    launch = of_calls(api_calls["start_ns"], own)

    def in_gap(place: Int64s) -> Int64s:
        return np.where((end[place] > joined.gap) & (end[place] <= start), place, -1)

    def last_of(some: Int64s, until: Int64s, time: Int64s) -> Int64s:
        return np.append(some, -1)[find_last(group, until, candidates.group[some], time)]

    everything = np.arange(len(end) - 1)
    last = in_gap(last_of(everything, start, end[everything]))
    taken = np.flatnonzero(~candidates.is_send[:-1])
    let = in_gap(last_of(taken, start, end[taken]))
    let[~_lets_wait(own, api_calls, launches)] = -1
    released, released_ns = _find_released(candidates, api_calls)
    awaited = in_gap(last_of(released, launch, released_ns))
    return_ns = np.full(len(end), NEVER)
    return_ns[released] = released_ns

    is_early = (launch == NEVER) | ((launch <= end[last]) & (start - launch > _AT_ONCE_NS))
    at_once = (last >= 0) & (start - end[last] <= _AT_ONCE_NS) & is_early
    after = (let >= 0) & (awaited >= 0) & (candidates.launch[let] >= return_ns[awaited])
    return np.where(at_once, last, np.where(after | (awaited < 0), let, awaited))


def _list_candidates(
    gpu_ops: pl.DataFrame,
    group: Int64s,
    rows: Int64s,
    messages: pl.DataFrame | None,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
) -> _Candidates:
    """List what can be waited for: the operations in some rows, which compute nothing."""
    start, end = (numbers(gpu_ops[name]) for name in ("start_ns", "end_ns"))
    rows = rows[np.lexsort((start[rows], end[rows]))]
    ops = gpu_ops[rows]
    op_id, is_copy = numbers(ops["op_id"]), is_among(ops["kind"], ("memcpy", "memset"))
    kinds = NEED.categories.to_list()
    copy, message, collective = (kinds.index(kind) for kind in ("copy", "message", "collective"))
    first = find_first_calls(ops["op_id"], launches=launches)

    def ended(values: Int64s) -> Int64s:
        return np.append(values, NEVER)

    return _Candidates(
        op_id=ended(op_id),
        group=ended(group[rows]),
        process=ended(numbers(ops["process_key"])),
        start=ended(start[rows]),
        end=ended(end[rows]),
        launch=ended(of_calls(api_calls["start_ns"], first)),
        kind=np.append(
            np.where(is_copy, copy, np.where(is_named(ops["name"], _MESSAGE), message, collective)), 0
        ),
        is_send=np.append(np.isin(op_id, _sends(messages)), False),
    )


def _lets_wait(own: Int64s, api_calls: pl.DataFrame, launches: pl.DataFrame) -> Bools:
    """Say of each call in `own` whether its thread, since its last launch, made one that lets a stream wait."""
    is_launch = np.zeros(len(api_calls), dtype=np.bool_)
    is_launch[launches["call_row"].to_numpy()] = True
    lets = np.flatnonzero(is_named(api_calls["name"], _LETS_WAIT))
    calls = np.concatenate([lets, np.flatnonzero(is_launch)])
    thread, time = numbers(api_calls["thread_key"]), numbers(api_calls["start_ns"])
    order = np.argsort(time[calls], kind="stable")
    before = find_last(
        of_calls(api_calls["thread_key"], own),
        of_calls(api_calls["start_ns"], own),
        *(thread[calls[order]], time[calls[order]]),
        is_before=True,
    )
    lets_wait: Bools = np.append(order < len(lets), False)[before]
    return lets_wait


def _find_released(candidates: _Candidates, api_calls: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Find the candidates that a host waited for, by when the call returned that waited; returns both."""
    calls = np.flatnonzero(is_named(api_calls["name"], WAITING_CALL))
    process, begin, until = (
        numbers(api_calls[name])[calls] for name in ("process_key", "start_ns", "end_ns")
    )
    order = np.argsort(until, kind="stable")
    process, begin, until = process[order], np.append(begin[order], -NEVER), np.append(until[order], -NEVER)
    end = candidates.end[:-1]
    at = find_first(candidates.process[:-1], end, process, until[:-1])
    rows = np.flatnonzero((begin[at] <= end) & (until[at] - _RETURN_NS <= end))
    released_ns = until[at[rows]]
    # a send that ends while the call returns is not what it waited for
    order = np.lexsort((end[rows], ~candidates.is_send[rows], released_ns))
    return rows[order], released_ns[order]
