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

from nsys_pp.arrays.columns import NEVER, is_named, numbers, pack
from nsys_pp.arrays.launch_calls import gather_calls
from nsys_pp.arrays.search import find_first, find_last, find_pairs
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.report import WAITING_CALL
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
        return np.append(self.row, -1)[find_last(stream, time, self.stream, self.launch, is_before=True)]

    def find_first(self, stream: Int64s, time: Int64s) -> Int64s:
        """Find the first operation launched on a stream at or after each time; -1 without one."""
        return np.append(self.row, -1)[find_first(stream, time, self.stream, self.launch)]


def find_event_waits(
    ops: Operations, gpu_ops: pl.DataFrame, *, stream_calls: pl.DataFrame, api_calls: pl.DataFrame
) -> EventWaits:
    """Find the operations that streams and synchronising calls waited for, from recorded streams and events.

    Args:
        ops: Operations of `gpu_ops`.
        gpu_ops: `GPU_OPS`.
        stream_calls: `STREAM_CALLS`.
        api_calls: `API_CALLS`.
    """
    stream, of_op = _pack_streams(stream_calls, gpu_ops)
    by_launch = np.argsort(ops.launch, kind="stable")
    launched = _Launched(row=by_launch, stream=of_op[by_launch], launch=ops.launch[by_launch])
    is_record = stream_calls["is_record"].to_numpy()
    records = _find_calls(stream_calls, stream, is_record, api_calls, _RECORD)
    waits = _find_calls(stream_calls, stream, ~is_record, api_calls, STREAM_WAIT)
    syncs = _find_calls(stream_calls, stream, ~is_record, api_calls, WAITING_CALL)

    awaited, is_resolved = _find_recorded(waits, records, launched)
    gated = launched.find_first(waits.stream, waits.time)
    gated[~waits.has_stream] = -1
    need = np.full(len(gpu_ops) + 1, -1)
    known = np.flatnonzero((gated >= 0) & (awaited >= 0))
    known = known[np.argsort(ops.end[awaited[known]], kind="stable")]  # the last assignment stays
    need[gated[known]] = awaited[known]
    is_unknown = np.zeros(len(gpu_ops) + 1, dtype=np.bool_)
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


def _pack_streams(stream_calls: pl.DataFrame, gpu_ops: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Return numbers of the streams of calls and of operations, equal for one stream."""
    columns = ("process_key", "context_id", "stream_id")
    both = pack(*(np.append(numbers(stream_calls[name]), numbers(gpu_ops[name])) for name in columns))
    return both[: len(stream_calls)], both[len(stream_calls) :]


def _find_calls(
    stream_calls: pl.DataFrame, stream: Int64s, is_kind: Bools, api_calls: pl.DataFrame, pattern: str
) -> _Calls:
    """Find the calls whose name contains a pattern, by time; rows of another kind are left out."""
    rows = np.flatnonzero(is_kind)
    named = np.flatnonzero(is_named(api_calls["name"], pattern)) if len(rows) else rows
    columns = ("process_key", "correlation_id")
    of_calls, of_rows = (
        [numbers(frame[name])[chosen] for name in columns]
        for frame, chosen in ((api_calls, named), (stream_calls, rows))
    )
    call = np.append(named, -1)[find_pairs(*of_calls, *of_rows)]
    rows, call = rows[call >= 0], call[call >= 0]
    time = gather_calls(api_calls["start_ns"], call)
    order = np.argsort(time, kind="stable")
    rows, call = rows[order], call[order]
    process, event, stream_id = (
        numbers(stream_calls[name]) for name in ("process_key", "event_id", "stream_id")
    )
    return _Calls(
        call=call,
        time=time[order],
        stream=stream[rows],
        event=pack(process, event)[rows],
        has_stream=stream_id[rows] != NEVER,
        has_event=event[rows] != NEVER,
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
