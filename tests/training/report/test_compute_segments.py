"""Compute segments against their definition."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import API_CALLS, GPU_OPS, LAUNCHES
from nsys_pp.frames.training import COMPUTE_SEGMENTS, PAUSE_NS, STEPS
from nsys_pp.training.kernels import build_compute_segments, find_segments
from nsys_pp.training.launched import LaunchedOps

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
        is_partial=pl.lit(False), confidence=pl.lit(None), reason=pl.lit(None),
    ).pipe(conform, STEPS)  # fmt: skip


def compute_segments_of(ops: list[Span], steps: list[Span]) -> pl.DataFrame:
    launched = LaunchedOps(gpu_ops=ops_of(ops), api_calls=API_CALLS.to_frame(), launches=LAUNCHES.to_frame())
    return build_compute_segments(find_segments(launched, steps_of(steps)), launched.devices)


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


def test_an_operation_at_the_earliest_time_is_a_stretch() -> None:
    """As damaged reports have: its pause after no operation at all cannot be computed."""
    start = -(1 << 62) + 1
    found = compute_segments_of([(start, 500), (2_000_000, 3_000_000)], [])
    assert found.select("start_ns", "end_ns").rows() == [(start, 500), (2_000_000, 3_000_000)]


def test_no_operations_no_stretches() -> None:
    assert compute_segments_of([], [(0, 1000)]).equals(COMPUTE_SEGMENTS.to_frame())
