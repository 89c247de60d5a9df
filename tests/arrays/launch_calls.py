"""The launch call of an operation by its definition, in plain loops."""

from __future__ import annotations

from typing import Any

import polars as pl


def expect_launch_calls(
    gpu_ops: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> dict[int, int]:
    """Find the row of the launch call of each operation with a known call."""
    calls = list(api_calls.iter_rows(named=True))
    candidates: dict[int, list[int]] = {}
    for op_id, row in launches.rows():
        candidates.setdefault(op_id, []).append(row)
    starts = dict(gpu_ops.select("op_id", "start_ns").iter_rows())
    return {op_id: _pick_row(rows, calls, starts[op_id]) for op_id, rows in candidates.items()}


def _pick_row(rows: list[int], calls: list[dict[str, Any]], op_start_ns: int) -> int:
    in_order = sorted(rows, key=lambda row: (calls[row]["start_ns"], -calls[row]["end_ns"]))
    possible = [row for row in in_order if calls[row]["start_ns"] <= op_start_ns]
    if not possible:
        return in_order[0]
    latest = calls[possible[-1]]
    return next(
        row
        for row in possible
        if calls[row]["thread_key"] == latest["thread_key"] and calls[row]["end_ns"] >= latest["end_ns"]
    )
