"""Small random reports, for tests that compare aggregates with their definitions in plain loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import strategies as st

from nsys_pp.aggregates.times import Windows, find_windows
from nsys_pp.frames.aggregates import AGGREGATE_FRAMES
from nsys_pp.frames.part import PartOptions
from nsys_pp.frames.report import API_CALLS, GPU_OPS, OS_CALLS, RANGES
from nsys_pp.frames.training import STEPS
from nsys_pp.projection.launches import match_launches
from nsys_pp.run.report import survey_report

Row = dict[str, Any]
TIMES = st.integers(0, 60)
SPANS = st.tuples(TIMES, TIMES).map(lambda pair: (min(pair), max(pair)))
DEVICES = st.sampled_from([(1, 0), (1, 1), (2, 0)])
WORK = [("kernel", False), ("kernel", True), ("memcpy", False), ("memset", False), ("graph", False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallReport:
    """Frames of a report."""

    gpu_ops: pl.DataFrame
    api_calls: pl.DataFrame
    launches: pl.DataFrame
    steps: pl.DataFrame
    windows: Windows


def fill(schema: pl.Schema, rows: Iterable[Row]) -> pl.DataFrame:
    """Make a frame of rows with some columns; the others are null."""
    return pl.DataFrame([dict.fromkeys(schema) | row for row in rows], schema=schema, orient="row")


def make_report(
    ops: Sequence[Row] = (),
    calls: Sequence[Row] = (),
    steps: Sequence[Row] = (),
    *,
    ranges: pl.DataFrame | None = None,
    os_calls: pl.DataFrame | None = None,
) -> SmallReport:
    """Make a report; operations and calls are matched by correlation_id."""
    gpu_ops = fill(GPU_OPS, ({"kind": "kernel", "is_communication": False} | row for row in ops))
    gpu_ops = gpu_ops.with_columns(op_id=pl.int_range(pl.len(), dtype=pl.UInt32))
    api_calls, step_frame = (
        fill(API_CALLS, calls),
        fill(STEPS, steps).sort("process_key", "device_id", "start_ns"),
    )
    windows = find_windows(
        step_frame,
        gpu_ops=gpu_ops,
        api_calls=api_calls,
        os_calls=OS_CALLS.to_frame() if os_calls is None else os_calls,
        ranges=RANGES.to_frame() if ranges is None else ranges,
    )
    launches = match_launches(api_calls, gpu_ops)
    return SmallReport(
        gpu_ops=gpu_ops, api_calls=api_calls, launches=launches, steps=step_frame, windows=windows
    )


def op(
    device: tuple[int, int],
    span: tuple[int, int],
    work: tuple[str, bool] = WORK[0],
    *,
    stream: tuple[int, int] = (1, 7),
    correlation: int | None = None,
) -> Row:
    """Make an operation; `stream` is of a context."""
    return {
        "process_key": device[0],
        "device_id": device[1],
        "context_id": stream[0],
        "stream_id": stream[1],
        "start_ns": span[0],
        "end_ns": span[1],
        "kind": work[0],
        "is_communication": work[1],
        "correlation_id": correlation,
    }


def call(process: int, correlation: int, span: tuple[int, int]) -> Row:
    return {
        "process_key": process,
        "thread_key": process,
        "correlation_id": correlation,
        "start_ns": span[0],
        "end_ns": span[1],
    }


def step(
    device: tuple[int, int], number: int, span: tuple[int, int], host: tuple[int, int] | None = None
) -> Row:
    row = {"process_key": device[0], "device_id": device[1], "step": number}
    host_start, host_end = host or (None, None)
    return row | {
        "start_ns": span[0],
        "end_ns": span[1],
        "host_start_ns": host_start,
        "host_end_ns": host_end,
    }


OPS = st.lists(
    st.builds(
        op,
        DEVICES,
        SPANS,
        st.sampled_from(WORK),
        stream=st.sampled_from([(1, 7), (1, 9), (2, 7)]),
        correlation=st.one_of(st.none(), st.integers(0, 12)),
    ),
    max_size=14,
)
CALLS = st.lists(st.builds(call, st.integers(1, 2), st.integers(0, 12), SPANS), max_size=14)
STEP_ROWS = st.lists(
    st.builds(step, DEVICES, st.integers(0, 9), SPANS, st.one_of(st.none(), SPANS)),
    max_size=5,
    unique_by=lambda row: (row["process_key"], row["device_id"], row["step"]),
)
REPORTS = st.builds(make_report, OPS, CALLS, STEP_ROWS)


def find_moments(rows: Iterable[Row]) -> set[int]:
    """List the nanoseconds within at least one row."""
    return {time for row in rows for time in range(row["start_ns"], row["end_ns"])}


def aggregate(path: Path) -> dict[str, pl.DataFrame]:
    """Build all aggregates of a report that was written."""
    frames = survey_report(
        path, PartOptions(), nsys=None, with_training=True, with_aggregates=True
    ).part.frames
    return {name: frames[name] for name in AGGREGATE_FRAMES}
