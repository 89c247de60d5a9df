"""The definition of projection in plain loops: slow, obvious, and what the package is held to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import polars as pl

Row = dict[str, Any]


def union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    total, reach = 0, None
    for start, end in sorted(intervals):
        if reach is None or start > reach:
            total, reach = total + end - start, end
        elif end > reach:
            total, reach = total + end - reach, end
    return total


def parent_of(one: Row, others: list[Row]) -> Row | None:
    """The innermost range of the thread around `one`: starts last; of equal ones the later row."""
    around = [
        other
        for other in others
        if other is not one
        and other["thread_key"] == one["thread_key"]
        and other["start_ns"] <= one["start_ns"]
        and other["end_ns"] >= one["end_ns"]
        and (
            (other["start_ns"], other["end_ns"]) != (one["start_ns"], one["end_ns"])
            or other["range_id"] < one["range_id"]
        )
    ]
    return max(
        around, key=lambda other: (other["start_ns"], -other["end_ns"], other["range_id"]), default=None
    )


def project(
    ranges: pl.DataFrame,
    api_calls: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    kinds: set[str],
    scope: str,
    per_stream: bool,
) -> list[Row]:
    """Rows of PROJECTIONS as dicts, by (range_id, device_id, stream_id)."""
    calls = list(api_calls.iter_rows(named=True))
    ops_of = defaultdict(list)
    for op in gpu_ops.iter_rows(named=True):
        if op["kind"] in kinds and op["correlation_id"] is not None:
            ops_of[op["process_key"], op["correlation_id"]].append(op)
    all_ranges = list(ranges.iter_rows(named=True))
    on_one_thread = [one for one in all_ranges if one["end_thread_key"] is None]
    rows = []
    for one in all_ranges:
        crosses = one["end_thread_key"] is not None
        inside = [
            call
            for call in calls
            if call["process_key"] == one["process_key"]
            and one["start_ns"] <= call["start_ns"]
            and call["end_ns"] <= one["end_ns"]
        ]
        own = [call for call in inside if call["thread_key"] == one["thread_key"]]
        if scope == "thread" and crosses:
            continue
        used = scope if scope != "auto" else ("thread" if own and not crosses else "process")
        counted = own if used == "thread" else inside
        by_place: dict[tuple[int, int | None], dict[int, tuple[Row, Row]]] = defaultdict(dict)
        for call in counted:
            for op in ops_of[call["process_key"], call["correlation_id"]]:
                place = (op["device_id"], op["stream_id"] if per_stream else None)
                by_place[place][op["op_id"]] = (op, call)
        depth, parent = 0, None if crosses else parent_of(one, on_one_thread)
        above = parent
        while above is not None:
            depth, above = depth + 1, parent_of(above, on_one_thread)
        for (device_id, stream_id), launched in by_place.items():
            ops = [op for op, _ in launched.values()]
            rows.append(
                {
                    "process_key": one["process_key"],
                    "thread_key": one["thread_key"],
                    "device_id": device_id,
                    "stream_id": stream_id,
                    "range_id": one["range_id"],
                    "parent_id": parent["range_id"] if parent else None,
                    "depth": depth,
                    "domain": one["domain"],
                    "name": one["name"],
                    "start_ns": one["start_ns"],
                    "end_ns": one["end_ns"],
                    "gpu_start_ns": min(op["start_ns"] for op in ops),
                    "gpu_end_ns": max(op["end_ns"] for op in ops),
                    "busy_ns": union_ns((op["start_ns"], op["end_ns"]) for op in ops),
                    "total_ns": sum(op["end_ns"] - op["start_ns"] for op in ops),
                    "call_count": len({call["correlation_id"] for _, call in launched.values()}),
                    "op_count": len(ops),
                    "scope": used,
                    "is_open": one["is_open"],
                    "first_ops": {
                        op["name"] for op in ops if op["start_ns"] == min(o["start_ns"] for o in ops)
                    },
                    "last_ops": {op["name"] for op in ops if op["end_ns"] == max(o["end_ns"] for o in ops)},
                }
            )
    return sorted(
        rows, key=lambda r: (r["range_id"], r["device_id"], -1 if r["stream_id"] is None else r["stream_id"])
    )
