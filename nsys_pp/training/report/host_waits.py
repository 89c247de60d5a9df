"""Operations that the host waited for before it launched others.

host        [ synchronise              ) ... [ launch )
stream 21      [ receive            )
stream 7                                        [ gemm )
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.columns import NEVER, list_distinct, numbers, pick
from nsys_pp.arrays.search import find_first, find_last
from nsys_pp.arrays.segments import running_maximum
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.report import WAITING_CALL
from nsys_pp.training.report.event_waits import EventWaits
from nsys_pp.training.report.launched_ops import LaunchedOps
from nsys_pp.training.report.operations import COPY, Operations, find_last_ended

_RETURN_NS = 100_000  # a call that waits for an operation returns this soon after its end
_DEVICE = r"(?:Device|Ctx|Context)Synchronize"


class _Syncs(Struct, frozen=True, kw_only=True):
    """Calls that waited until the end of a known operation, by thread and return."""

    thread: Int64s
    process: Int64s
    begin: Int64s
    returned: Int64s
    need: Int64s  # row of the operation

    def select(self, rows: Int64s) -> _Syncs:
        return _Syncs(
            thread=self.thread[rows],
            process=self.process[rows],
            begin=self.begin[rows],
            returned=self.returned[rows],
            need=self.need[rows],
        )


def find_host_needs(
    rows: Int64s, ops: Operations, launched_ops: LaunchedOps, *, events: EventWaits
) -> Int64s:
    """Find the operation that the host waited for before it launched each of some operations.

    The calls of the launching thread before the launch count, and those of other threads that it waited for: it makes no
    calls while such a call waits, and from its next call to the launch the other thread makes none. PyTorch's main
    thread launches the backward like this, on the thread of autograd.

    Args:
        rows: Rows of the operations in `GPU_OPS`.
        ops: All operations.
        launched_ops: The same.
        events: Recorded waits.

    Returns:
        Row of the operation that ended last among those waited for; -1 without one. Of those of other threads, an operation of
        the same device counts before others.
    """
    syncs = _list_syncs(ops, events, launched_ops)
    if not len(syncs.thread):
        return np.full(len(rows), -1)
    thread, launch, process = ops.thread[rows], ops.launch[rows], ops.process[rows]
    own = find_last(thread, launch, syncs.thread, syncs.returned)
    own[launch == NEVER] = -1
    need = pick(_keep_latest(syncs, ops).need, own, -1)
    launching = ops.thread[ops.need != COPY]  # threads that only copy do not train
    others = [
        thread_key
        for thread_key in list_distinct(syncs.thread)
        if (thread != thread_key).any() and (launching == thread_key).any()
    ]
    if not others:
        return need
    api_calls = launched_ops.api_calls
    calls = np.argsort(numbers(api_calls["start_ns"]), kind="stable")
    of_call, start, end = (numbers(api_calls[name])[calls] for name in ("thread_key", "start_ns", "end_ns"))
    of_any, of_device = np.full((2, len(rows)), -1)
    for other in others:
        theirs = syncs.select(np.flatnonzero(syncs.thread == other))
        at = find_last(process, launch, theirs.process, theirs.returned)
        at[(thread == other) | (launch == NEVER)] = -1
        until = np.append(theirs.returned, NEVER)[at]
        before = find_last(thread, until, of_call, start)
        is_silent = np.append(end, NEVER)[before] <= np.append(theirs.begin, NEVER)[at]
        woken = np.append(start, -NEVER)[find_first(thread, until, of_call, start)]
        further = np.append(start, -NEVER)[find_first(np.full_like(woken, other), woken, of_call, start)]
        is_awaited = (at >= 0) & is_silent & (further > launch)
        row = np.where(is_awaited, np.append(theirs.need, -1)[at], -1)
        of_any = _keep_last(of_any, row, ops)
        of_device = _keep_last(of_device, np.where(pick(ops.group, row, -1) == ops.group[rows], row, -1), ops)
    # in a process with several GPUs, the threads of all of them wait at the same time
    return _keep_last(need, np.where(of_device >= 0, of_device, of_any), ops)


def _list_syncs(ops: Operations, events: EventWaits, launched_ops: LaunchedOps) -> _Syncs:
    """List the synchronising calls with the operations that they waited for.

    A synchronous copy waits for itself. Other calls wait for the last operation of their stream or event, where it is
    recorded, else for the last operation other than compute that ended while they waited: they return soon
    after it, unless they wait for the whole device. Calls rarely wait for sends.
    """
    api_calls, calls = launched_ops.api_calls, launched_ops.calls.list_rows(WAITING_CALL)
    thread, process, begin, returned = (
        numbers(api_calls[name])[calls] for name in ("thread_key", "process_key", "start_ns", "end_ns")
    )
    if not len(calls):
        return _Syncs(thread=thread, process=process, begin=begin, returned=returned, need=calls)
    of_call = np.full(len(api_calls) + 1, -1)
    of_call[ops.call] = np.arange(len(ops.call))
    need = of_call[calls]
    recorded = np.full(len(api_calls), -1)
    recorded[events.sync_calls] = np.arange(len(events.sync_calls))
    is_recorded = recorded[calls] >= 0
    need = np.where(is_recorded, pick(events.sync_needs, recorded[calls], -1), need)

    is_guess = ~is_recorded & (need < 0)
    guess = np.full(len(calls), -1)
    for among in (ops.is_send & (ops.need >= 0), ~ops.is_send & (ops.need >= 0)) if is_guess.any() else ():
        found = find_last_ended(process, returned, ops, among, ops.process, launched_by=begin)
        guess = np.where(_end(found, ops) > begin, found, guess)
    is_soon = launched_ops.calls.contain(_DEVICE)[calls] | (returned - _end(guess, ops) <= _RETURN_NS)
    need = np.where(is_guess & is_soon, guess, need)
    is_possible = (_end(need, ops) > begin) & (_end(need, ops) <= returned)
    syncs = _Syncs(thread=thread, process=process, begin=begin, returned=returned, need=need)
    rows = np.flatnonzero(is_possible)
    return syncs.select(rows[np.lexsort((returned[rows], thread[rows]))])


def _keep_latest(syncs: _Syncs, ops: Operations) -> _Syncs:
    """Replace each call by the call until it, on its thread, that waited for the operation that ended last."""
    segment = np.cumsum(np.diff(syncs.thread, prepend=syncs.thread[:1]) != 0)
    end = ops.end[syncs.need]
    is_new = running_maximum(segment, end) == end
    latest = np.maximum.accumulate(np.where(is_new, np.arange(len(end)), 0))
    return syncs.select(latest)


def _keep_last(row: Int64s, other: Int64s, ops: Operations) -> Int64s:
    """Return the operation of each two that ends later, the first one if both end at once."""
    return np.where(_end(other, ops) > _end(row, ops), other, row)


def _end(row: Int64s, ops: Operations) -> Int64s:
    """Return the ends of operations; `NEVER` where the row is -1."""
    return pick(ops.end, row, NEVER)
