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
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import NEVER, is_named
from nsys_pp.arrays.launch_calls import gather_calls
from nsys_pp.arrays.search import find_last
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.training.report.event_waits import STREAM_WAIT, EventWaits
from nsys_pp.training.report.host_waits import find_host_needs
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


def find_holders(
    rows: Int64s, ops: Operations, *, events: EventWaits, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> Holders:
    """Find the holders of some operations.

    Args:
        rows: Rows of the operations in `GPU_OPS`.
        ops: All operations.
        events: Recorded waits.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of the operations.

    Returns:
        Holders, which ended at or before the start of the operation and started earlier.
    """
    start, launch = ops.start[rows], ops.launch[rows]
    on_device = _find_on_device(rows, ops, events, api_calls, launches)
    is_late = (launch != NEVER) & (launch + _LAUNCH_NS >= _end(on_device, ops))
    awaited = find_host_needs(rows, ops, events=events, api_calls=api_calls)
    op = np.where(is_late, awaited, on_device)
    is_earlier = (op >= 0) & (ops.start[op] < start) & (_end(op, ops) <= start)
    since = np.where(is_late, ops.launched[rows], _end(on_device, ops))
    return Holders(
        op=np.where(is_earlier, op, -1),
        since=np.where(start - since > _LATE_NS, np.minimum(since, start), start),
    )


def _find_on_device(
    rows: Int64s, ops: Operations, events: EventWaits, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> Int64s:
    """Find the last operation that each operation waited for on its device; -1 without one."""
    start, launch = ops.start[rows], ops.launch[rows]
    launched_by = np.where(launch == NEVER, start, launch)
    by_event = events.need[rows]
    by_event[_end(by_event, ops) > start] = -1
    found = _later(_find_on_stream(rows, ops), by_event, ops)

    def last_ended(among: Bools) -> Int64s:
        return find_last_ended(
            ops.group[rows], start, ops, np.flatnonzero(among), ops.group, launched_by=launched_by
        )

    is_other = ops.need >= 0
    awaited, sent, computed = (
        last_ended(among) for among in (is_other & ~ops.is_send, is_other & ops.is_send, ~is_other)
    )
    awaits = _await_unknown(rows, ops, events, api_calls, launches)
    is_ready = awaits | (start - launch > _AT_ONCE_NS)  # else it may start so late because of its launch
    right_before, is_send = np.full(len(rows), -1), np.append(ops.is_send, False)
    for guess in (sent, computed, awaited):  # rarely a send: any other operation replaces it
        is_held = (launch == NEVER) | (is_ready & (launch + _LAUNCH_NS <= _end(guess, ops)))
        is_held &= (guess >= 0) & (start - _end(guess, ops) <= _AT_ONCE_NS)
        is_later = (_end(guess, ops) > _end(right_before, ops)) | is_send[right_before]
        right_before = np.where(is_held & is_later, guess, right_before)
    right_before[start - _end(found, ops) <= _STREAM_NS] = -1
    found = _later(found, right_before, ops)
    is_open = awaits & (start - np.maximum(_end(found, ops), launch) > _LATE_NS)
    return _later(found, np.where(is_open, awaited, -1), ops)


def _later(row: Int64s, other: Int64s, ops: Operations) -> Int64s:
    """Return the operation of each pair that ended later; -1 without any."""
    return np.where(_end(other, ops) > _end(row, ops), other, row)


def _find_on_stream(rows: Int64s, ops: Operations) -> Int64s:
    """Find the last operation other than compute before each operation on its stream; -1 without one."""
    others = np.flatnonzero(ops.need >= 0)
    return find_last_ended(
        ops.stream[rows], ops.start[rows], ops, others, ops.stream, launched_by=ops.start[rows]
    )


def _await_unknown(
    rows: Int64s, ops: Operations, events: EventWaits, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> Bools:
    """Return the mask of operations whose stream waited for an event that is not recorded.

    Without recorded streams, the stream of a call that waits for an event is that of the next launch on its thread.
    """
    if events.has_waits:
        return events.is_unknown[rows]
    is_launch = np.zeros(len(api_calls), dtype=np.bool_)
    is_launch[launches["call_row"].to_numpy()] = True
    wait_calls = np.flatnonzero(is_named(api_calls["name"], STREAM_WAIT))
    calls = np.concatenate([wait_calls, np.flatnonzero(is_launch)])
    thread, time = (gather_calls(api_calls[name], calls) for name in ("thread_key", "start_ns"))
    order = np.argsort(time, kind="stable")
    before = find_last(ops.thread[rows], ops.launch[rows], thread[order], time[order], is_before=True)
    is_after_wait: Bools = np.append(order < len(wait_calls), False)[before]
    return is_after_wait


def _end(row: Int64s, ops: Operations) -> Int64s:
    """Return the ends of operations; `NEVER` where the row is -1."""
    return np.append(ops.end, NEVER)[row]
