"""Random frames for projection: the irregularities of real reports, with few rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

from nsys_pp.frames.report import API_CALLS, GPU_OPS, RANGES
from nsys_pp.projection.waited_calls import find_waited_calls

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]


@st.composite
def frames(draw: st.DrawFn) -> Frames:
    """Draw RANGES, API_CALLS and GPU_OPS of a random report; shrinks towards few rows and one thread."""
    return random_frames(
        seed=draw(st.integers(0, 2**32 - 1)),
        range_count=draw(st.integers(0, 25)),
        call_count=draw(st.integers(0, 40)),
        span=draw(st.sampled_from([6, 30, 400])),
        processes=draw(st.integers(1, 2)),
        threads=draw(st.integers(1, 3)),
        devices=draw(st.integers(1, 2)),
        streams=draw(st.integers(1, 3)),
        is_sequential=draw(st.booleans()),
        is_queued=draw(st.booleans()),
    )


def random_frames(
    *,
    seed: int,
    range_count: int,
    call_count: int,
    span: int,
    processes: int,
    threads: int,
    devices: int,
    streams: int,
    is_sequential: bool,
    is_queued: bool,
) -> Frames:
    """Draw frames whose times lie around zero, so that some are negative.

    With `is_sequential` the calls of a thread follow each other, as real ones do; without, they
    overlap and nest arbitrarily. With `is_queued` operations follow each other on their stream.
    Correlation ids restart in every process; calls have none, one or many operations (graphs);
    some operations have no call, or no correlation id.
    """
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, processes, range_count)
    thread = owner * 100 + rng.integers(0, threads, range_count)
    start = rng.integers(-span // 2, span // 2, range_count)
    names = np.array(["step", "forward", "backward", None], dtype=object)
    crosses = (rng.random(range_count) < 0.1) & (threads > 1)
    ranges = pl.DataFrame(
        {
            "range_id": rng.permutation(range_count) + 1,
            "kind": np.where(rng.random(range_count) < 0.7, "push_pop", "start_end"),
            "process_key": owner,
            "thread_key": thread,
            "end_thread_key": [int(t) + 1 if c else None for t, c in zip(thread, crosses, strict=True)],
            "start_ns": start,
            "end_ns": start + rng.integers(0, span, range_count) * (rng.random(range_count) < 0.9),
            "is_open": rng.random(range_count) < 0.1,
            "domain": names[rng.integers(0, 4, range_count)].tolist(),
            "name": names[rng.integers(0, 4, range_count)].tolist(),
            "category": None,
            "color_argb": None,
            "payload": None,
        },
        schema=RANGES,
    )
    calls = _random_calls(rng, call_count, span, processes, threads, is_sequential)
    return ranges, calls, _random_ops(rng, calls, span, devices, streams, is_queued)


def _random_calls(
    rng: np.random.Generator, count: int, span: int, processes: int, threads: int, is_sequential: bool
) -> pl.DataFrame:
    owner = rng.integers(0, processes, count)
    thread = owner * 100 + rng.integers(0, threads, count)
    if is_sequential:
        gap, length = rng.integers(0, 3, count), rng.integers(0, 3, count)
        start, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for key in np.unique(thread):
            rows = np.flatnonzero(thread == key)
            end[rows] = np.cumsum(gap[rows] + length[rows]) - span // 2
            start[rows] = end[rows] - length[rows]
    else:
        start = rng.integers(-span // 2, span // 2, count)
        end = start + rng.integers(0, max(span // 4, 1), count)
    correlation_id = np.zeros(count, np.int64)
    for process in range(processes):
        rows = np.flatnonzero(owner == process)
        correlation_id[rows] = rng.permutation(len(rows)) + 1
    return pl.DataFrame(
        {
            "process_key": owner,
            "thread_key": thread,
            "correlation_id": correlation_id,
            "start_ns": start,
            "end_ns": end,
            "name": ["cudaLaunchKernel"] * count,
        },
        schema=API_CALLS,
    )


def _random_ops(
    rng: np.random.Generator, calls: pl.DataFrame, span: int, devices: int, streams: int, is_queued: bool
) -> pl.DataFrame:
    per_call = rng.choice([0, 1, 1, 1, 1, 5, 40], len(calls), p=[0.2, 0.2, 0.2, 0.2, 0.1, 0.08, 0.02])
    of_call = np.repeat(np.arange(len(calls)), per_call)
    of_call = of_call[np.argsort(rng.random(len(of_call)))]
    count = len(of_call)
    stray = rng.random(count)
    correlation_id = calls["correlation_id"].to_numpy()[of_call].astype(object)
    correlation_id[stray < 0.05] = None
    correlation_id[stray > 0.95] = 10_000
    device, stream = rng.integers(0, devices, count), rng.integers(7, 7 + streams, count)
    start = rng.integers(-span, span, count)
    end = start + rng.integers(0, max(span // 2, 1), count)
    if is_queued:
        for queue in np.unique(device * 1000 + stream):
            rows = np.flatnonzero(device * 1000 + stream == queue)
            rows = rows[np.argsort(of_call[rows], kind="stable")]
            length, gap = rng.integers(0, 5, len(rows)), rng.integers(0, 2, len(rows))
            end[rows] = np.cumsum(length + gap)
            start[rows] = end[rows] - length
    return pl.DataFrame(
        {
            "op_id": np.arange(count),
            "kind": rng.choice(["kernel", "memcpy", "memset", "graph"], count, p=[0.6, 0.2, 0.1, 0.1]),
            "process_key": calls["process_key"].to_numpy()[of_call],
            "device_id": device,
            "context_id": 1,
            "stream_id": stream,
            "correlation_id": correlation_id.tolist(),
            "start_ns": start,
            "end_ns": end,
            "name": [f"op_{n}" for n in rng.integers(0, 5, count)],
            "is_communication": False,
            "graph_id": None,
        },
        schema=GPU_OPS,
    )


Row = dict[str, Any]


def union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    total, reach = 0, None
    for start, end in sorted(intervals):
        if reach is None or start > reach:
            total, reach = total + end - start, end
        elif end > reach:
            total, reach = total + end - reach, end
    return total


def parent_of(row: Row, ranges: list[Row]) -> Row | None:
    """Return the innermost range of the thread around `row`: the last to start; of equal ones the later row."""
    around = [
        other
        for other in ranges
        if other is not row
        and other["thread_key"] == row["thread_key"]
        and other["start_ns"] <= row["start_ns"]
        and other["end_ns"] >= row["end_ns"]
        and (
            (other["start_ns"], other["end_ns"]) != (row["start_ns"], row["end_ns"])
            or other["range_id"] < row["range_id"]
        )
    ]
    return max(
        around, key=lambda other: (other["start_ns"], -other["end_ns"], other["range_id"]), default=None
    )


def _list_waited(
    ranges: pl.DataFrame, api_calls: pl.DataFrame, ops_of: dict[tuple[int, int], list[Row]]
) -> list[set[tuple[int, int]]]:
    """List the pairs of a thread and the row of a call that it waited for, and that it may have waited for.

    `test_waited_calls.py` compares these with true waits.
    """
    launching = [
        (at, -1 if op["device_id"] is None else op["device_id"])
        for at, key in enumerate(api_calls.select("process_key", "correlation_id").rows())
        for op in ops_of.get(key, [])
    ]
    call_row, device = np.array(launching, dtype=np.int64).reshape(-1, 2).T
    found = find_waited_calls(ranges, api_calls, call_row, device=device)
    return [
        set(zip(pairs.thread.tolist(), pairs.call_row.tolist(), strict=True))
        for pairs in (found.certain, found.possible)
    ]


def project(
    ranges: pl.DataFrame,
    api_calls: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    kinds: set[str],
    scope: str,
    per_stream: bool,
) -> list[Row]:
    """Return rows of PROJECTIONS as dicts, by (range_id, device_id, stream_id)."""
    calls = list(api_calls.iter_rows(named=True))
    ops_of = defaultdict(list)
    for op in gpu_ops.iter_rows(named=True):
        if op["kind"] in kinds and op["correlation_id"] is not None:
            ops_of[op["process_key"], op["correlation_id"]].append(op)
    all_ranges = list(ranges.iter_rows(named=True))
    waited = _list_waited(ranges, api_calls, ops_of)
    on_a_thread = [row for row in all_ranges if row["end_thread_key"] is None]
    rows = []
    for row in all_ranges:
        crosses = row["end_thread_key"] is not None
        of_process = [
            call
            for call in calls
            if call["process_key"] == row["process_key"]
            and row["start_ns"] <= call["start_ns"]
            and call["end_ns"] <= row["end_ns"]
        ]
        of_thread = [call for call in of_process if call["thread_key"] == row["thread_key"]]
        if scope == "thread" and crosses:
            continue
        used_scope, counted = scope, of_process if scope == "process" or crosses else of_thread
        if crosses:
            used_scope = "process"
        elif scope == "auto":
            certain, possible = (
                [call for call in of_process if (row["thread_key"], calls.index(call)) in pairs]
                for pairs in waited
            )
            counted = of_thread + (certain if of_thread or certain else possible)
            used_scope = "thread"
        by_target: dict[tuple[int, int | None], dict[int, tuple[Row, Row]]] = defaultdict(dict)
        for call in counted:
            for op in ops_of[call["process_key"], call["correlation_id"]]:
                target = (op["device_id"], op["stream_id"] if per_stream else None)
                by_target[target][op["op_id"]] = (op, call)
        depth, parent = 0, None if crosses else parent_of(row, on_a_thread)
        ancestor = parent
        while ancestor is not None:
            depth, ancestor = depth + 1, parent_of(ancestor, on_a_thread)
        for (device_id, stream_id), launched in by_target.items():
            ops = [op for op, _ in launched.values()]
            is_own = all(call["thread_key"] == row["thread_key"] for _, call in launched.values())
            rows.append(
                {
                    "process_key": row["process_key"],
                    "thread_key": row["thread_key"],
                    "device_id": device_id,
                    "stream_id": stream_id,
                    "range_id": row["range_id"],
                    "parent_id": parent["range_id"] if parent else None,
                    "depth": depth,
                    "domain": row["domain"],
                    "name": row["name"],
                    "start_ns": row["start_ns"],
                    "end_ns": row["end_ns"],
                    "gpu_start_ns": min(op["start_ns"] for op in ops),
                    "gpu_end_ns": max(op["end_ns"] for op in ops),
                    "busy_ns": union_ns((op["start_ns"], op["end_ns"]) for op in ops),
                    "total_ns": sum(op["end_ns"] - op["start_ns"] for op in ops),
                    "call_count": len({call["correlation_id"] for _, call in launched.values()}),
                    "op_count": len(ops),
                    "scope": used_scope if is_own or scope != "auto" else "process",
                    "is_open": row["is_open"],
                    "first_ops": {
                        op["name"] for op in ops if op["start_ns"] == min(o["start_ns"] for o in ops)
                    },
                    "last_ops": {op["name"] for op in ops if op["end_ns"] == max(o["end_ns"] for o in ops)},
                }
            )
    return sorted(
        rows, key=lambda r: (r["range_id"], r["device_id"], -1 if r["stream_id"] is None else r["stream_id"])
    )
