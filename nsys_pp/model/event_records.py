"""Records of CUDA events, and the calls that wait for them.

A call records an event on a stream: what is launched there later comes after it. Another call waits for the event, or makes a
stream wait. Newer exports number records, and a call that waits has the number of the record. In others an event that is
recorded several times has the last record before the call: a record that is still being made when the call starts is
neither before nor after it.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.arrays.columns import NEVER, numbers, pack
from nsys_pp.arrays.search import find_last, find_pairs
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.names import NAME

EVENT_CALLS = build_schema(
    {  # one row per call that records an event, or waits for one, with its times; records first, then by order of the calls
        "process_key": pl.Int64,
        "correlation_id": pl.Int64,
        "thread_key": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "name": NAME,
        "stream_id": pl.Int64,
        "event_id": pl.Int64,
        "is_record": pl.Boolean,
        "record": pl.Int64,  # number of the record: of the call that made it, and of those that wait for it; null if unknown
    },
    name="EVENT_CALLS",
)


def find_event_calls(stream_calls: pl.DataFrame, api_calls: pl.DataFrame) -> pl.DataFrame:
    """Find the record that each call waits for.

    Args:
        stream_calls: `STREAM_CALLS`.
        api_calls: `API_CALLS`.

    Returns:
        `EVENT_CALLS`; calls that were not recorded are left out. Empty in, empty out.
    """
    with_event = stream_calls if stream_calls.is_empty() else stream_calls.drop_nulls("event_id")
    if with_event.is_empty():
        return EVENT_CALLS.to_frame()
    keys = ["process_key", "correlation_id"]
    timed = with_event.join(
        api_calls.unique(keys, keep="first", maintain_order=True), on=keys, how="inner", maintain_order="left"
    ).sort("is_record", descending=True, maintain_order=True)
    count = int(timed["is_record"].sum())
    records, waits = timed[:count], timed[count:]
    record = np.concatenate([np.arange(count), _find_records(records, waits)])
    numbered = pl.Series("record", record)
    return timed.with_columns(numbered.set(numbered < 0, None)).pipe(conform, EVENT_CALLS)


def _find_records(records: pl.DataFrame, waits: pl.DataFrame) -> Int64s:
    """Find the row of the record that each call waits for; -1 if it is unknown."""
    if records.is_empty() or waits.is_empty():
        return np.full(len(waits), -1)
    process, event = (
        [numbers(frame[name]) for frame in (records, waits)] for name in ("process_key", "event_id")
    )
    of_event = pack(np.concatenate(process), np.concatenate(event))
    of_record, of_wait = of_event[: len(records)], of_event[len(records) :]
    found = _find_by_time(of_record, records, of_wait, waits)
    by_number, has_number = _find_by_number(process, event, records, waits)
    return np.where(has_number, by_number, found)


def _find_by_number(
    process: list[Int64s], event: list[Int64s], records: pl.DataFrame, waits: pl.DataFrame
) -> tuple[Int64s, Bools]:
    """Find records by their recorded numbers, and the mask of the calls for which these count."""
    number, wanted = numbers(records["record_id"]), numbers(waits["record_id"])
    known = np.flatnonzero(number != NEVER)
    key = pack(process[0][known], number[known])
    if not len(known) or len(np.unique(key)) < len(known):  # numbers that repeat are none
        return np.full(len(waits), -1), np.zeros(len(waits), dtype=np.bool_)
    at = find_pairs(process[0][known], number[known], process[1], wanted)
    found = np.where(at >= 0, known[at], -1)
    is_same = (found >= 0) & (event[0][found] == event[1])
    return np.where(is_same, found, -1), wanted != NEVER


def _find_by_time(of_record: Int64s, records: pl.DataFrame, of_wait: Int64s, waits: pl.DataFrame) -> Int64s:
    """Find the last record before each call; -1 without one, or if the order of both is unknown."""
    start, end = numbers(records["start_ns"]), numbers(records["end_ns"])
    time = numbers(waits["start_ns"])
    by_time = np.argsort(start, kind="stable")
    at = find_last(of_wait, time, of_record[by_time], start[by_time])
    found = np.where(at >= 0, by_time[at], -1)
    is_before = (found >= 0) & (end[found] <= time) & ~_is_ambiguous(of_record, records)[found]
    return np.where(is_before, found, -1)


def _is_ambiguous(of_record: Int64s, records: pl.DataFrame) -> NDArray[np.bool_]:
    """Return the mask of records of an event with records in several contexts: several events have its number."""
    context = numbers(records["context_id"])
    _, first, event = np.unique(of_record, return_index=True, return_inverse=True)
    differs = context != context[first][event]
    several = np.zeros(len(first), dtype=np.bool_)
    several[event[differs]] = True
    return np.asarray(several[event])
