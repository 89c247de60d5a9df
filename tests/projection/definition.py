"""The definition of projection in plain loops: slow, obvious, the reference of the tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from nsys_pp.projection.waited_calls import find_waited_calls

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
