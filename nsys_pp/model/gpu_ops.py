"""Operations on GPUs and the CUDA calls about them.

GPU_OPS, OP_DETAILS, API_CALLS, STREAM_CALLS, MEMORY_EVENTS.

A call records a CUDA event on a stream: what is launched there later comes after it. Another call waits for
the event, or makes a stream wait. Newer exports number records, and a call that waits has the number of the
record. In others an event that is recorded several times has the last record before the call: a record that
is still being made when the call starts is neither before nor after it.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import (
    NEVER,
    as_numbers,
    find_distinct,
    gather,
    has_value,
    index_rows,
    mark_rows,
    numbers,
    pack,
    whole_numbers,
)
from nsys_pp.arrays.names import is_named
from nsys_pp.arrays.search import find_last, find_pairs, number_rows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import NAME, build_frame, build_schema, conform, conform_part
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import (
    API_CALLS,
    GPU_OPS,
    LOADING,
    MEMORY_EVENTS,
    OP_DETAILS,
    OP_KIND,
    OVERHEADS,
    PAGEABLE_COPIES,
    STREAM_CALLS,
    OpDetails,
)
from nsys_pp.model.names import resolve

# NCCL and RCCL (which keeps NCCL's names), HCCL, NVSHMEM and MSCCL
_COMMUNICATION = r"(?i)\b(?:nccl|rccl|hccl|nvshmem|msccl)"
OP_TABLES = {  # raw frame -> kind of its operations, in the order of the result
    "kernels": "kernel",
    "copies": "memcpy",
    "decompressions": "memcpy",
    "sets": "memset",
    "graphs": "graph",
}
_KERNEL_DETAILS = (
    *("name_id", "full_name_id", "registers", "static_shared", "dynamic_shared"),
    *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
)


def build_gpu_ops(raw: RawReport) -> pl.DataFrame:
    """Build one frame of all operations on GPUs.

    Returns:
        `GPU_OPS`, kernels first, each kind in the order of the export.
    """
    tables = {table: raw[table] for table in OP_TABLES}
    process = 0  # of operations without one: the only process of the report
    if any(ops["process"].has_nulls() for ops in tables.values()):
        threads = pl.concat([raw["calls"]["thread"], raw["nvtx"]["thread"]]).drop_nulls()
        processes = process_key(threads).unique()
        process = int(processes.item()) if len(processes) == 1 else 0
    parts = [_build_ops(table, ops, raw, process) for table, ops in tables.items() if not ops.is_empty()]
    if not parts:
        return GPU_OPS.to_frame()
    gpu_ops = pl.concat(parts, rechunk=True)
    is_communication = pl.Series("is_communication", is_named(gpu_ops["name"], _COMMUNICATION))
    return conform(gpu_ops.hstack([is_communication]).with_row_index("op_id"), GPU_OPS)


def _build_ops(table: str, ops: pl.DataFrame, raw: RawReport, process: int) -> pl.DataFrame:
    """Build the operations of one table: `GPU_OPS` without numbers; an unknown process is `process`."""
    return ops.select(
        kind=pl.lit(OP_TABLES[table], OP_KIND),
        process_key=pl.col("process").fill_null(process),
        device_id=pl.col("device").fill_null(0),
        context_id="context",
        stream_id=pl.col("stream").fill_null(0),
        correlation_id="correlation",
        start_ns="start",
        end_ns="end",
        name=_name(table, ops, raw),
        graph_id=pl.coalesce(  # the graph, or else its node; 0 is none
            pl.when(pl.col(name) != 0).then(pl.col(name)) for name in ("graph", "graph_node")
        ),
    )


def build_op_details(raw: RawReport) -> OpDetails:
    """Build the details of operations; of a report read without group "details", the names of kernels only.

    Returns:
        The details, for operations in the order of `build_gpu_ops`.
    """
    parts, rows, count = [OP_DETAILS.to_frame()], [np.zeros(0, dtype=np.uint32)], 0
    for table in OP_TABLES:
        ops = raw[table]
        if ops.is_empty():
            continue
        columns = _KERNEL_DETAILS if table == "kernels" else ("bytes",) if "bytes" in ops.columns else ()
        first, number = np.arange(1), np.zeros(len(ops), dtype=np.uint32)
        if recorded := [ops[column] for column in columns if ops[column].null_count() < len(ops)]:
            first, number = number_rows(recorded)
        if table == "kernels":
            details = _kernel_details(index_rows(ops[[*columns]], first), raw)
        elif columns:
            details = index_rows(ops[[*columns]], first).rename({"bytes": "size_bytes"})
        else:
            details = pl.DataFrame({"size_bytes": [None]}, schema={"size_bytes": pl.Int64})
        parts.append(conform_part(details, OP_DETAILS))
        rows.append(number + np.uint32(count))
        count += len(first)
    return OpDetails(distinct=pl.concat(parts, rechunk=True), row=np.concatenate(rows))


def _kernel_details(kernels: pl.DataFrame, raw: RawReport) -> pl.DataFrame:
    """Describe launches of kernels (`OP_DETAILS` without sizes)."""
    full_id = numbers(kernels["full_name_id"])
    is_other = (full_id != numbers(kernels["name_id"])) & (full_id != NEVER) & has_value(kernels["name_id"])
    names = resolve(kernels["full_name_id"], raw["strings"])
    return kernels.select(
        full_name=gather(names, np.where(is_other, np.arange(len(names)), -1)),
        registers_per_thread="registers",
        static_shared_bytes="static_shared",
        dynamic_shared_bytes="dynamic_shared",
        **{  # null where one of the three is
            prefix: pl.concat_str([f"{prefix}_{axis}" for axis in "xyz"], separator=",").cast(NAME)
            for prefix in ("grid", "block")
            if "details" in raw.groups
        },
    )


def _name(table: str, ops: pl.DataFrame, raw: RawReport) -> pl.Series:
    if table == "kernels":
        return resolve(ops["name_id"], raw["strings"])
    if table == "copies":
        first, direction = find_distinct(whole_numbers(ops["direction"]))
        words = gather(ops["direction"], first).to_list()
        names = ["Memcpy" if word is None else f"Memcpy {word}" for word in words]
        return gather(pl.Series(names, dtype=NAME), direction)
    if table == "graphs":
        return ops.select(
            (pl.lit("CUDA graph ") + pl.col("graph").cast(pl.String)).fill_null("CUDA graph").cast(NAME)
        ).to_series()
    name = "Memset" if table == "sets" else "Decompress"
    return pl.Series([name], dtype=NAME).new_from_index(0, ops.height)


def build_api_calls(raw: RawReport) -> pl.DataFrame:
    """Build the calls, with their names and processes.

    Returns:
        `API_CALLS` in the order of the export.
    """
    calls = raw["calls"]
    return calls.select(
        process_key=process_key(calls["thread"]),
        thread_key="thread",
        correlation_id="correlation",
        start_ns="start",
        end_ns="end",
        # cudaLaunchKernel_v7000: with the version of the ABI
        name=resolve(calls["name_id"], raw["strings"], strip=r"_v\d+$"),
    ).pipe(conform, API_CALLS)


def list_pageable_copies(raw: RawReport) -> pl.DataFrame:
    """List the calls that copy from or to pageable memory of the host: they are staged, and often wait.

    Returns:
        `PAGEABLE_COPIES`; empty unless kinds of memory were read (`details`, `cpu`) and recorded.
    """
    return (
        raw["copies"]
        .filter((pl.col("source") == "pageable") | (pl.col("target") == "pageable"))
        .select(process_key="process", correlation_id="correlation")
        .drop_nulls()
        .unique(maintain_order=True)
        .pipe(conform, PAGEABLE_COPIES)
    )


_NONE = (1 << 32) - 1  # the id of no stream and of no event


def build_stream_calls(raw: RawReport) -> pl.DataFrame:
    """Build the streams and events of calls.

    Returns:
        `STREAM_CALLS`.
    """
    calls = pl.concat(
        raw[table].hstack([pl.Series("is_record", [is_record]).new_from_index(0, raw[table].height)])
        for table, is_record in (("synchronizations", False), ("cuda_events", True))
    )
    stream, event, record = (
        np.where(ids == _NONE, NEVER, ids)
        for ids in (numbers(calls[name]) for name in ("stream", "event", "record"))
    )
    columns = [
        calls["process"].alias("process_key"),
        calls["correlation"].alias("correlation_id"),
        calls["context"].alias("context_id"),
        as_numbers("stream_id", stream),
        as_numbers("event_id", event),
        as_numbers("record_id", np.where(event == NEVER, NEVER, record)),
        calls["is_record"],
    ]
    return conform(build_frame(columns), STREAM_CALLS)


EVENT_CALLS = build_schema(
    # one row per call that records an event, or waits for one, with its times; records first, then by order
    # of the calls
    {
        "process_key": pl.Int64,
        "correlation_id": pl.Int64,
        "thread_key": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "name": NAME,
        "stream_id": pl.Int64,
        "event_id": pl.Int64,
        "is_record": pl.Boolean,
        # number of the record: of the call that made it, and of those that wait for it; null if unknown
        "record": pl.Int64,
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
    with_event = stream_calls.drop_nulls("event_id")
    if with_event.is_empty():
        return EVENT_CALLS.to_frame()
    keys = ["process_key", "correlation_id"]
    timed = with_event.join(
        api_calls.unique(keys, keep="first", maintain_order=True), on=keys, how="inner", maintain_order="left"
    ).sort("is_record", descending=True, maintain_order=True)
    count = int(timed["is_record"].sum())
    records, waits = timed[:count], timed[count:]
    record = np.concatenate([np.arange(count), _find_records(records, waits)])
    return timed.with_columns(as_numbers("record", record, null=-1)).pipe(conform, EVENT_CALLS)


def _find_records(records: pl.DataFrame, waits: pl.DataFrame) -> Int64s:
    """Find the row of the record that each call waits for; -1 if it is unknown."""
    if records.is_empty() or waits.is_empty():
        return np.full(len(waits), -1)
    process, event = (
        [numbers(frame[name]) for frame in (records, waits)] for name in ("process_key", "event_id")
    )
    of_event = pack(np.concatenate(process), np.concatenate(event))
    of_record, of_wait = of_event[: len(records)], of_event[len(records) :]
    # the last record before each call; -1 without one, or if the order of both is unknown
    start, end = numbers(records["start_ns"]), numbers(records["end_ns"])
    time = numbers(waits["start_ns"])
    by_time = np.argsort(start, kind="stable")
    at = find_last(of_wait, time, of_record[by_time], start[by_time])
    found = np.where(at >= 0, by_time[at], -1)
    is_before = (found >= 0) & (end[found] <= time) & ~_is_ambiguous(of_record, records)[found]
    found = np.where(is_before, found, -1)
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
    return np.where((found >= 0) & (event[0][found] == event[1]), found, -1), wanted != NEVER


def _is_ambiguous(of_record: Int64s, records: pl.DataFrame) -> Bools:
    """Return the mask of records of an event with records in several contexts.

    Several events have its number.
    """
    context = numbers(records["context_id"])
    first, event = find_distinct(of_record)
    return np.asarray(mark_rows(event[context != context[first][event]], len(first))[event])


def build_memory_events(raw: RawReport) -> pl.DataFrame:
    """Build the events, in order of time.

    Returns:
        `MEMORY_EVENTS`.
    """
    return (
        raw["cuda_memory"]
        .sort("time", maintain_order=True)
        .select(
            process_key="process",
            device_id=pl.col("device").fill_null(0),
            correlation_id="correlation",
            time_ns="time",
            kind="kind",
            is_release=pl.col("action") == "release",
            address=pl.col("address").reinterpret(signed=False),
            size_bytes="bytes",
        )
        .pipe(conform, MEMORY_EVENTS)
    )


# Names of overhead that the profiler does not cause: CUDA loads modules and compiles kernels without a
# profiler, too; it waits where its buffer of commands is full; and libraries that a program opens (`dlopen`)
# are loaded anyway. "Unknown": of kinds that older versions of nsys do not know, as lazy loading.
_NOT_OF_PROFILER = rf"{LOADING}|command buffer|^dl[a-z]+\(|^Unknown$"


def build_overheads(raw: RawReport) -> pl.DataFrame:
    """Build the intervals in which tracing or CUDA held a thread (`OVERHEADS`).

    Empty unless they were read.
    """
    rows = pl.concat([raw["overheads"], raw["cuda_overheads"]])
    is_of_nsys = pl.Series(np.arange(len(rows)) < len(raw["overheads"]))
    return (
        rows.select(thread_key="thread", start_ns="start", end_ns="end")
        .hstack([resolve(rows["name_id"], raw["strings"], dtype=pl.String()).alias("name")])
        .with_columns(is_of_profiler=~pl.col("name").str.contains(_NOT_OF_PROFILER).fill_null(value=False))
        # of CUDA's own table, only named intervals are known to be of the profiler
        .with_columns(pl.col("is_of_profiler") & (pl.col("name").is_not_null() | is_of_nsys))
        .pipe(conform, OVERHEADS)
    )
