"""Stretches of computation, against their definition; what they needed is held to the truth in `test_bubbles`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.recording.export import write_report
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import API_CALLS, GPU_OPS, LAUNCHES
from nsys_pp.frames.training import COMPUTE_SEGMENTS, PAUSE_NS, STEPS
from nsys_pp.model import build_report
from nsys_pp.projection.launches import match_launches
from nsys_pp.read import read_report
from nsys_pp.training.report.compute_segments import build_compute_segments

Span = tuple[int, int]


def ops_of(spans: list[Span]) -> pl.DataFrame:
    return pl.DataFrame(spans, schema=["start_ns", "end_ns"], orient="row").with_columns(
        op_id=pl.int_range(pl.len()), kind=pl.lit("kernel"), process_key=pl.lit(1), device_id=pl.lit(0),
        context_id=pl.lit(1), stream_id=pl.lit(7), correlation_id=pl.lit(None), name=pl.lit("gemm"),
        is_communication=pl.lit(False), graph_id=pl.lit(None),
    ).pipe(conform, GPU_OPS)  # fmt: skip


def steps_of(spans: list[Span]) -> pl.DataFrame:
    return pl.DataFrame(spans, schema=["start_ns", "end_ns"], orient="row").with_columns(
        process_key=pl.lit(1), device_id=pl.lit(0), step=pl.int_range(pl.len()), is_numbered=pl.lit(False),
        name=pl.lit(None), source=pl.lit("jobs"), host_start_ns=pl.lit(None), host_end_ns=pl.lit(None),
        is_partial=pl.lit(False),
    ).pipe(conform, STEPS)  # fmt: skip


def compute_segments_of(ops: list[Span], steps: list[Span]) -> pl.DataFrame:
    return build_compute_segments(
        gpu_ops=ops_of(ops),
        steps=steps_of(steps),
        api_calls=API_CALLS.to_frame(),
        launches=LAUNCHES.to_frame(),
    )


def defined(ops: list[Span], steps: list[Span]) -> list[tuple[int | None, int, int, int]]:
    """Mark every microsecond that a kernel covers; a stretch goes on over pauses, and ends with its step."""
    step_at = [next((n for n, (a, b) in enumerate(steps) if a <= t * 1000 < b), None) for t in range(200)]
    covered = [any(a <= t * 1000 < b for a, b in ops) for t in range(200)]
    rows: list[tuple[int | None, int, int, int]] = []
    for time in (t for t in range(200) if covered[t]):
        step, start = step_at[time], time * 1000
        joins = rows and rows[-1][0] == step and start - rows[-1][2] <= PAUSE_NS
        if joins and all(step_at[t] == step for t in range(rows[-1][2] // 1000, time)):
            _, begin, _, busy = rows.pop()
            rows.append((step, begin, start + 1000, busy + 1000))
        else:
            rows.append((step, start, start + 1000, 1000))
    return rows


spans = st.tuples(st.integers(0, 150), st.integers(1, 40)).map(lambda one: (one[0] * 1000, sum(one) * 1000))


@settings(deadline=None, max_examples=100)
@given(st.lists(spans, max_size=12), st.lists(st.integers(0, 190), min_size=2, max_size=4, unique=True))
def test_stretches_are_kernels_joined_over_pauses_and_cut_at_steps(ops: list[Span], edges: list[int]) -> None:
    at = [edge * 1000 for edge in sorted(edges)]
    steps = list(pairwise(at))
    found = compute_segments_of(ops, steps)
    assert found.schema == COMPUTE_SEGMENTS
    assert found.select("step", "start_ns", "end_ns", "compute_ns").rows() == defined(ops, steps)


def needs(tmp_path: Path, *calls: tuple[int, int, str], launch: int, start: int) -> tuple[str, int] | None:
    """Tell what a kernel needs that starts at `start` us, after kernels until 100 us and a receive until 300 us."""
    made: list[dict[str, Any]] = [
        {"start": 1000, "end": 2000, "correlation": 1},
        {"start": 3000, "end": 4000, "correlation": 2},
        *({"start": a * 1000, "end": b * 1000, "name": name, "correlation": 90} for a, b, name in calls),
        {"start": launch * 1000, "end": launch * 1000 + 4000, "correlation": 3},
    ]
    kernels = [
        {"start": 10_000, "end": 100_000, "correlation": 1, "name": "gemm"},
        {"start": 20_000, "end": 300_000, "correlation": 2, "name": "ncclDevKernel_SendRecv", "stream": 9},
        {"start": start * 1000, "end": start * 1000 + 50_000, "correlation": 3, "name": "gemm"},
    ]
    report = build_report(
        read_report(
            write_report(tmp_path / "r.sqlite", api_calls=made, kernels=kernels),
            need=frozenset({"ranges", "ops", "cpu"}),
        )
    )
    keys = report.gpu_ops.select("process_key", "device_id").row(0)
    steps = steps_of([(0, 10**9)]).with_columns(process_key=pl.lit(keys[0]), device_id=pl.lit(keys[1]))
    found = build_compute_segments(
        gpu_ops=report.gpu_ops,
        steps=steps.pipe(conform, STEPS),
        api_calls=report.api_calls,
        launches=match_launches(report.api_calls, report.gpu_ops),
    )
    need, end = found.select(pl.col("need").cast(pl.String), "need_end_ns").row(-1)
    return None if need is None else (need, end)


RECEIVE = ("message", 300_000)


def test_a_kernel_that_was_launched_before_waited_on_its_device(tmp_path: Path) -> None:
    assert needs(tmp_path, launch=50, start=302) == RECEIVE


def test_a_kernel_that_is_launched_after_the_host_waited_needs_what_that_waited_for(tmp_path: Path) -> None:
    assert needs(tmp_path, (60, 306, "cudaStreamSynchronize_v3020"), launch=380, start=385) == RECEIVE


def test_a_late_kernel_whose_stream_was_told_to_wait_needs_what_ended_last(tmp_path: Path) -> None:
    assert needs(tmp_path, (370, 372, "cudaStreamWaitEvent_v3020"), launch=380, start=385) == RECEIVE


def test_a_late_kernel_of_which_nothing_waits_needs_only_its_host(tmp_path: Path) -> None:
    assert needs(tmp_path, (60, 62, "cudaStreamSynchronize_v3020"), launch=380, start=385) is None


def test_no_operations_no_stretches() -> None:
    assert compute_segments_of([], [(0, 1000)]).equals(COMPUTE_SEGMENTS.to_frame())
