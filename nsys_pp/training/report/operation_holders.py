"""Holders of the operations of a report: each one starts when its last holder ends.

Dependencies between operations are recorded in part only. An operation is held by the last of

    its stream    the operation before it on its stream
    an event      an operation of another stream, if a recorded wait for an event names it
    the device    else, if the launch does not explain the start: the operation that ended right before it
    some event    else, if its stream waited for an event that is not recorded: the last operation that ended
    its launch    and so by the operation that the host waited for before it
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.columns import NEVER, pick
from nsys_pp.arrays.launch_calls import gather_calls
from nsys_pp.arrays.search import find_last
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.training.report.event_waits import STREAM_WAIT, EventWaits
from nsys_pp.training.report.host_waits import find_host_needs
from nsys_pp.training.report.launched_ops import LaunchedOps
from nsys_pp.training.report.operations import Operations, find_last_ended

_STREAM_NS = 3_000  # an operation that waits for its stream starts this soon after the operation before it
_AT_ONCE_NS = (
    10_000  # an operation that waits on its device starts this soon after the operation it waits for
)
_LAUNCH_NS = 4_000  # least time from the start of a launching call to the start of the operation
_LATE_NS = 50_000  # an operation that starts later than this after its holder is not explained by it


class Holders(Struct, frozen=True, kw_only=True):
    """Holders of some operations.

    Attributes:
        op: Row of the operation that held each one, or that the host waited for before the launch; -1 without one.
        since: Time from which nothing known held the operation; its start, if it is explained.
    """

    op: Int64s
    since: Int64s


def find_holders(rows: Int64s, ops: Operations, launched_ops: LaunchedOps, *, events: EventWaits) -> Holders:
    """Find the holders of some operations.

    Args:
        rows: Rows of the operations in `GPU_OPS`.
        ops: All operations.
        launched_ops: The same.
        events: Recorded waits.

    Returns:
        Holders, which ended at or before the start of the operation and started earlier.
    """
    start, launch = ops.start[rows], ops.launch[rows]
    on_device = _find_on_device(rows, ops, events, launched_ops)
    device_end = _end(on_device, ops)
    is_late = (launch != NEVER) & (launch + _LAUNCH_NS >= device_end)
    awaited = find_host_needs(rows, ops, launched_ops, events=events)
    op = np.where(is_late, awaited, on_device)
    is_earlier = (op >= 0) & (ops.start[op] < start) & (_end(op, ops) <= start)
    since = np.where(is_late, ops.launched[rows], device_end)
    return Holders(
        op=np.where(is_earlier, op, -1),
        since=np.where(start - since > _LATE_NS, np.minimum(since, start), start),
    )


def _find_on_device(rows: Int64s, ops: Operations, events: EventWaits, launched_ops: LaunchedOps) -> Int64s:
    """Find the last operation that each operation waited for on its device; -1 without one."""
    start, launch = ops.start[rows], ops.launch[rows]
    launched_by = np.where(launch == NEVER, start, launch)
    found = _find_on_stream(rows, ops)
    by_event = events.need[rows]
    if (by_event >= 0).any():
        by_event[_end(by_event, ops) > start] = -1
        found = _later(found, by_event, ops)

    group = ops.group[rows]

    def last_ended(among: Bools) -> Int64s:
        return find_last_ended(group, start, ops, among, ops.group, launched_by=launched_by)

    is_other = ops.need >= 0
    awaited, sent, computed = (
        last_ended(among) for among in (is_other & ~ops.is_send, is_other & ops.is_send, ~is_other)
    )
    awaits = _await_unknown(rows, ops, events, launched_ops)
    is_ready = awaits | (start - launch > _AT_ONCE_NS)  # else it may start so late because of its launch
    right_before, right_end = np.full(len(rows), -1), np.full(len(rows), NEVER)
    for guess in (sent, computed, awaited):  # rarely a send: any other operation replaces it
        guess_end = _end(guess, ops)
        is_held = (guess >= 0) & (start - guess_end <= _AT_ONCE_NS)
        is_held &= (launch == NEVER) | (is_ready & (launch + _LAUNCH_NS <= guess_end))
        if not is_held.any():
            continue
        is_held &= (guess_end > right_end) | pick(ops.is_send, right_before, absent=False)
        right_before, right_end = (
            np.where(is_held, guess, right_before),
            np.where(is_held, guess_end, right_end),
        )
    right_before[start - _end(found, ops) <= _STREAM_NS] = -1
    found = _later(found, right_before, ops)
    if not awaits.any():
        return found
    is_open = awaits & (start - np.maximum(_end(found, ops), launch) > _LATE_NS)
    return _later(found, np.where(is_open, awaited, -1), ops)


def _later(row: Int64s, other: Int64s, ops: Operations) -> Int64s:
    """Return the operation of each pair that ended later; -1 without any."""
    return np.where(_end(other, ops) > _end(row, ops), other, row)


def _find_on_stream(rows: Int64s, ops: Operations) -> Int64s:
    """Find the last operation other than compute before each operation on its stream; -1 without one."""
    start = ops.start[rows]
    return find_last_ended(ops.stream[rows], start, ops, ops.need >= 0, ops.stream, launched_by=start)


def _await_unknown(rows: Int64s, ops: Operations, events: EventWaits, launched_ops: LaunchedOps) -> Bools:
    """Return the mask of operations whose stream waited for an event that is not recorded.

    Without recorded streams, the stream of a call that waits for an event is that of the next launch on its thread.
    """
    if events.has_waits:
        return events.is_unknown[rows]
    api_calls, wait_calls = launched_ops.api_calls, launched_ops.calls.list_rows(STREAM_WAIT)
    if not len(wait_calls):
        return np.zeros(len(rows), dtype=np.bool_)
    is_launch = np.zeros(len(api_calls), dtype=np.bool_)
    is_launch[launched_ops.launches["call_row"].to_numpy()] = True
    calls = np.concatenate([wait_calls, np.flatnonzero(is_launch)])
    thread, time = (gather_calls(api_calls[name], calls) for name in ("thread_key", "start_ns"))
    order = np.argsort(time, kind="stable")
    before = find_last(ops.thread[rows], ops.launch[rows], thread[order], time[order], is_before=True)
    return pick(order < len(wait_calls), before, absent=False)


def _end(row: Int64s, ops: Operations) -> Int64s:
    """Return the ends of operations; `NEVER` where the row is -1."""
    return pick(ops.end, row, NEVER)
