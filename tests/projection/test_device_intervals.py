"""Projection onto devices and streams with extreme times or several targets."""

from __future__ import annotations

from typing import Any

import polars as pl

from nsys_pp.frames.report import API_CALLS, GPU_OPS, RANGES
from nsys_pp.projection.ranges import project_ranges


def project(ops: list[dict[str, Any]], **options: Any) -> pl.DataFrame:
    """Project one range around one call per operation, in order."""
    common = {"process_key": 1, "thread_key": 1, "is_open": False}
    count = len(ops)
    ranges = pl.DataFrame([{**common, "range_id": 1, "start_ns": 0, "end_ns": 10 * count}], schema=RANGES)
    calls = [
        {"process_key": 1, "thread_key": 1, "correlation_id": n, "start_ns": 10 * n, "end_ns": 10 * n + 1}
        for n in range(count)
    ]
    defaults = {"process_key": 1, "device_id": 0, "stream_id": 7, "kind": "kernel"}
    rows = [{**defaults, "op_id": n, "correlation_id": n, **op} for n, op in enumerate(ops)]
    calls_frame, ops_frame = pl.DataFrame(calls, schema=API_CALLS), pl.DataFrame(rows, schema=GPU_OPS)
    return project_ranges(ranges, calls_frame, ops_frame, **options)


def test_first_and_last_are_found_whatever_lies_between() -> None:
    """Index and time together need more than 64 bits here."""
    far = 1 << 60
    frame = project(
        [
            {"name": "middle", "start_ns": 0, "end_ns": 5},
            {"name": "last", "start_ns": far, "end_ns": far + 9},
            {"name": "first", "start_ns": -far, "end_ns": -far + 7},
            {"name": "late", "start_ns": far + 1, "end_ns": far + 8},
        ]
    )
    assert frame.select("gpu_start_ns", "gpu_end_ns", "first_op", "last_op", "busy_ns").rows() == [
        (-far, far + 9, "first", "last", 5 + 9 + 7)
    ]


def test_of_equal_ones_the_first_launched_counts() -> None:
    ops = [{"name": name, "start_ns": 0, "end_ns": 5} for name in ("a", "b", "c")]
    assert project(ops).select("first_op", "last_op").rows() == [("a", "a")]


def test_targets_are_sorted() -> None:
    targets = [(1, 9), (0, 20), (1, 7), (0, 3), (1, 9)]
    ops = [
        {"device_id": d, "stream_id": s, "start_ns": n, "end_ns": n + 1} for n, (d, s) in enumerate(targets)
    ]
    assert project(ops)["device_id"].to_list() == [0, 1]
    split = project(ops, per_stream=True).select("device_id", "stream_id", "op_count")
    assert split.rows() == [(0, 3, 1), (0, 20, 1), (1, 7, 1), (1, 9, 2)]


def test_a_graph_counts_as_one_call() -> None:
    ops = [{"correlation_id": 0, "start_ns": n, "end_ns": n + 2} for n in range(4)]
    assert project(ops).select("call_count", "op_count", "busy_ns").rows() == [(1, 4, 5)]
