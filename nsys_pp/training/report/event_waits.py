"""Waits of streams for events, and operations that synchronising calls waited for, as far as they are recorded.

An event is recorded on one stream, after the operations launched there so far; another stream that waits for it
runs what is launched there later after these operations:

    calls       launch receive   record event      wait for event   launch gemm
    stream 21          [ receive                )
    stream 7                                     [ gemm )
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import NEVER, numbers, pack, pick
from nsys_pp.arrays.search import find_first, find_last, find_pairs
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.report import WAITING_CALL
from nsys_pp.training.report.launched_ops import LaunchedOps
from nsys_pp.training.report.operations import Operations

STREAM_WAIT = "StreamWaitEvent"
_RECORD = "EventRecord"


class EventWaits(Struct, frozen=True, kw_only=True):
    """Recorded waits.

    Attributes:
        need: Row of the operation that the stream of each operation waited for before it; -1 without one.
        is_unknown: Mask of the operations before which their stream waited for an event whose record is unknown.
        has_waits: The streams of calls that make a stream wait are recorded.
        sync_calls: Rows of `API_CALLS`: synchronising calls for a single stream, or an event whose record is known.
        sync_needs: Row of the operation that each of them waited for; -1 without one.
    """

    need: Int64s
    is_unknown: Bools
    has_waits: bool
    sync_calls: Int64s
    sync_needs: Int64s


class _Recorded(Struct, frozen=True, kw_only=True):
    """Columns of `STREAM_CALLS`."""

    process: Int64s
    correlation_id: Int64s
    stream: Int64s  # number of the stream, as `_Launched.stream`
    event: Int64s  # equal for one event
    has_stream: Bools
    has_event: Bools


class _Calls(Struct, frozen=True, kw_only=True):
    """Calls with a recorded stream or event."""

    call: Int64s  # row of `API_CALLS`
    time: Int64s  # its start
    stream: Int64s  # as `_Launched.stream`
    event: Int64s  # equal for one event
    has_stream: Bools
    has_event: Bools


class _Launched(Struct, frozen=True, kw_only=True):
    """Operations by launch."""

    row: Int64s
    stream: Int64s
    launch: Int64s

    def find_last(self, stream: Int64s, time: Int64s) -> Int64s:
        """Find the last operation launched on a stream before each time; -1 without one."""
        return pick(self.row, find_last(stream, time, self.stream, self.launch, is_before=True), -1)

    def find_first(self, stream: Int64s, time: Int64s) -> Int64s:
        """Find the first operation launched on a stream at or after each time; -1 without one."""
        return pick(self.row, find_first(stream, time, self.stream, self.launch), -1)


def find_event_waits(ops: Operations, launched_ops: LaunchedOps, *, stream_calls: pl.DataFrame) -> EventWaits:
    """Find the operations that streams and synchronising calls waited for, from recorded streams and events.

    Args:
        ops: Operations of the report.
        launched_ops: The same.
        stream_calls: `STREAM_CALLS`.
    """
    count = len(ops.start)
    if stream_calls.is_empty():
        return _find_none(count)
    recorded, of_op = _list_recorded(stream_calls, launched_ops)
    by_launch = np.argsort(ops.launch, kind="stable")
    launched = _Launched(row=by_launch, stream=of_op[by_launch], launch=ops.launch[by_launch])
    is_record = stream_calls["is_record"].to_numpy()
    records = _find_calls(recorded, np.flatnonzero(is_record), launched_ops, _RECORD)
    others = np.flatnonzero(~is_record)
    waits = _find_calls(recorded, others, launched_ops, STREAM_WAIT)
    syncs = _find_calls(recorded, others, launched_ops, WAITING_CALL)

    awaited, is_resolved = _find_recorded(waits, records, launched)
    gated = launched.find_first(waits.stream, waits.time)
    gated[~waits.has_stream] = -1
    need = np.full(count + 1, -1)
    known = np.flatnonzero((gated >= 0) & (awaited >= 0))
    known = known[np.argsort(ops.end[awaited[known]], kind="stable")]  # the last assignment stays
    need[gated[known]] = awaited[known]
    is_unknown = np.zeros(count + 1, dtype=np.bool_)
    is_unknown[gated[~is_resolved]] = True

    by_event, has_record = _find_recorded(syncs, records, launched)
    by_stream = launched.find_last(syncs.stream, syncs.time)
    is_single = np.where(syncs.has_event, has_record, syncs.has_stream)
    return EventWaits(
        need=need[:-1],
        is_unknown=is_unknown[:-1],
        has_waits=bool(waits.has_stream.any()),
        sync_calls=syncs.call[is_single],
        sync_needs=np.where(syncs.has_event, by_event, by_stream)[is_single],
    )


def _find_none(count: int) -> EventWaits:
    """Return the waits of a report without recorded streams and events."""
    nothing = np.zeros(0, dtype=np.int64)
    return EventWaits(
        need=np.full(count, -1),
        is_unknown=np.zeros(count, dtype=np.bool_),
        has_waits=False,
        sync_calls=nothing,
        sync_needs=nothing,
    )


def _list_recorded(stream_calls: pl.DataFrame, ops: LaunchedOps) -> tuple[_Recorded, Int64s]:
    """List the columns of `STREAM_CALLS`; also return the number of each operation's stream."""
    process, context, stream, event = (
        numbers(stream_calls[name]) for name in ("process_key", "context_id", "stream_id", "event_id")
    )
    of_ops = (numbers(ops.gpu_ops[name]) for name in ("process_key", "context_id", "stream_id"))
    both = pack(*(np.append(*pair) for pair in zip((process, context, stream), of_ops, strict=True)))
    recorded = _Recorded(
        process=process,
        correlation_id=numbers(stream_calls["correlation_id"]),
        stream=both[: len(process)],
        event=pack(process, event),
        has_stream=stream != NEVER,
        has_event=event != NEVER,
    )
    return recorded, both[len(process) :]


def _find_calls(recorded: _Recorded, rows: Int64s, launched_ops: LaunchedOps, pattern: str) -> _Calls:
    """Find the calls of some rows of `STREAM_CALLS` whose name contains a pattern, by time."""
    api_calls = launched_ops.api_calls
    named = launched_ops.calls.list_rows(pattern) if len(rows) else rows
    process, correlation_id = (numbers(api_calls[name])[named] for name in ("process_key", "correlation_id"))
    at = find_pairs(process, correlation_id, recorded.process[rows], recorded.correlation_id[rows])
    rows, call = rows[at >= 0], named[at[at >= 0]]
    time = numbers(api_calls["start_ns"])[call]
    order = np.argsort(time, kind="stable")
    rows = rows[order]
    return _Calls(
        call=call[order],
        time=time[order],
        stream=recorded.stream[rows],
        event=recorded.event[rows],
        has_stream=recorded.has_stream[rows],
        has_event=recorded.has_event[rows],
    )


def _find_recorded(waits: _Calls, records: _Calls, launched: _Launched) -> tuple[Int64s, Bools]:
    """Find the last operation before the last record of each event, and the mask of waits with such a record."""
    record = find_last(waits.event, waits.time, records.event, records.time)
    record[~waits.has_event] = -1
    is_resolved = record >= 0
    awaited = np.full(len(record), -1)
    awaited[is_resolved] = launched.find_last(
        records.stream[record[is_resolved]], records.time[record[is_resolved]]
    )
    return awaited, is_resolved
