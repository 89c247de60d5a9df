"""Steps at the end of a capture that launched more than it recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import API_CALLS, GPU_OPS, LAUNCHES
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.steps import StepHosts, mark_unfinished_steps
from tests.training.analysed_reports import APART, analyse_reports, simulate_reports


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("lag", [0, 2])
def test_steps_whose_kernels_run_after_the_capture_are_partial(seed: int, lag: int, tmp_path: Path) -> None:
    """Their ranges may have ended: hosts run ahead by some steps."""
    options = (
        f"--schedule 1f1b --steps 4 --window-ms 20 --vary-micro-batches 0.5 --lag-steps {lag} --seed {seed}"
    )
    simulate_reports(tmp_path, f"{options} {APART}")
    truth = pl.read_parquet(tmp_path / "truth" / "steps.parquet")
    is_recorded = truth.select("rank", "step", "is_recorded")
    for found in analyse_reports(tmp_path):
        both = found.steps.join(is_recorded, on=["rank", "step"]).drop_nulls("host_start_ns")
        assert len(both) >= 2
        assert both["is_partial"].to_list() == both["is_recorded"].not_().to_list()


@st.composite
def captures(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[tuple[int, str, bool]]]:
    """Draw the ranges of steps, and calls: time, name, and whether its operation is recorded."""
    edges = sorted(draw(st.sets(st.integers(0, 60), min_size=2, max_size=9)))
    ranges = list(zip(edges[::2], edges[1::2], strict=False))
    names = st.sampled_from(["cudaLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch", "cudaMemcpyAsync"])
    return ranges, draw(st.lists(st.tuples(st.integers(-5, 65), names, st.booleans()), max_size=25))


@settings(max_examples=150)
@given(captures(), st.booleans())
def test_marks_equal_their_definition(
    drawn: tuple[list[tuple[int, int]], list[tuple[int, str, bool]]], has_end: bool
) -> None:
    ranges, calls = drawn
    begin, end = np.array(ranges, dtype=np.int64).reshape(-1, 2).T
    steps = steps_of(np.zeros(len(ranges), dtype=np.int64), begin, end, has_end=has_end)
    found = mark_unfinished_steps(steps, np.ones(len(ranges), dtype=np.int64), launched_ops_of(calls))

    def is_missing(number: int) -> bool:
        start, end = ranges[number]
        until = ranges[number + 1][0] - 1 if number + 1 < len(ranges) else 1_000
        until = min(until, end) if has_end else until
        return any(start <= time <= until and "Launch" in name and not done for time, name, done in calls)

    assert found.tolist() == [
        all(is_missing(later) for later in range(number, len(ranges))) for number in range(len(ranges))
    ]


def test_calls_of_other_processes_do_not_count() -> None:
    calls = [(5, "cudaLaunchKernel", False)]
    steps = steps_of(np.array([0, 1]), np.array([0, 0]), np.array([9, 9]), has_end=True)
    found = mark_unfinished_steps(steps, np.array([1, 2]), launched_ops_of(calls))
    assert found.tolist() == [True, False]


def steps_of(device: Int64s, begin: Int64s, end: Int64s, *, has_end: bool) -> StepHosts:
    no = np.zeros(len(device), dtype=np.bool_)
    return StepHosts(
        device=device,
        number=device,
        first=begin,
        begin=begin,
        end=end,
        is_open=no,
        is_capture=no,
        has_end=no | has_end,
    )


def launched_ops_of(calls: list[tuple[int, str, bool]]) -> LaunchedOps:
    return LaunchedOps(gpu_ops=GPU_OPS.to_frame(), api_calls=calls_of(calls), launches=launches_of(calls))


def calls_of(calls: list[tuple[int, str, bool]]) -> pl.DataFrame:
    rows: dict[str, Any] = {
        "process_key": [1] * len(calls),
        "thread_key": [1] * len(calls),
        "correlation_id": range(len(calls)),
        "start_ns": [time for time, _, _ in calls],
        "end_ns": [time for time, _, _ in calls],
        "name": [name for _, name, _ in calls],
    }
    return conform(pl.DataFrame(rows, schema_overrides={"name": pl.String}), API_CALLS)


def launches_of(calls: list[tuple[int, str, bool]]) -> pl.DataFrame:
    rows = [number for number, (_, _, done) in enumerate(calls) if done]
    return pl.DataFrame({"op_id": range(len(rows)), "call_row": rows}, schema={**LAUNCHES})
