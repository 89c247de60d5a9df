"""The launch call of an operation by its definition, in plain loops."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays.launch_calls import find_launch_calls, gather_calls
from nsys_pp.frames.report import API_CALLS, GPU_OPS
from nsys_pp.projection.launches import match_launches
from tests.projection.definition import Frames, frames


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


def find(api_calls: pl.DataFrame, gpu_ops: pl.DataFrame) -> list[int]:
    launches = match_launches(api_calls, gpu_ops)
    row = find_launch_calls(gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches)
    return row.tolist()  # type: ignore[no-any-return]


def make_calls(*calls: tuple[int, int, int]) -> pl.DataFrame:
    """Calls of one correlation id: thread, start, end."""
    rows = [(1, thread, 7, start, end, "cudaLaunchKernel") for thread, start, end in calls]
    return pl.DataFrame(rows, schema=API_CALLS, orient="row")


def make_op(start_ns: int) -> pl.DataFrame:
    row = (0, "kernel", 1, 0, 1, 7, 7, start_ns, start_ns + 10, "gemm", False, None)
    return pl.DataFrame([row], schema=GPU_OPS, orient="row")


@given(frames())
def test_the_launch_call_is_that_of_the_definition(report: Frames) -> None:
    _, api_calls, gpu_ops = report
    expected = expect_launch_calls(gpu_ops, api_calls, match_launches(api_calls, gpu_ops))
    assert find(api_calls, gpu_ops) == [expected.get(op_id, -1) for op_id in gpu_ops["op_id"]]


@given(
    st.lists(st.tuples(st.integers(1, 2), st.integers(0, 9), st.integers(0, 4)), min_size=1, max_size=5),
    st.integers(0, 12),
)
def test_calls_that_share_a_correlation_id_in_any_order(
    calls: list[tuple[int, int, int]], start_ns: int
) -> None:
    api_calls = make_calls(*((thread, start, start + length) for thread, start, length in calls))
    gpu_ops = make_op(start_ns)
    launches = match_launches(api_calls, gpu_ops)
    assert find(api_calls, gpu_ops) == [expect_launch_calls(gpu_ops, api_calls, launches)[0]]


@pytest.mark.parametrize(
    ("calls", "start_ns", "expected"),
    [
        pytest.param([(1, 100, 110), (1, 500, 510)], 120, 0, id="before the id was reused"),
        pytest.param([(1, 100, 110), (1, 500, 510)], 520, 1, id="after the id was reused"),
        pytest.param([(1, 500, 510), (1, 100, 110)], 120, 1, id="the later call stands first"),
        pytest.param([(1, 102, 108), (1, 100, 110)], 120, 1, id="a driver call inside a runtime call"),
        pytest.param([(1, 100, 110), (1, 102, 108)], 105, 0, id="started while the calls ran"),
        pytest.param([(1, 100, 110), (2, 102, 108)], 120, 1, id="a call on another thread is not around"),
        pytest.param([(1, 120, 130), (1, 100, 110)], 90, 1, id="clock error: all calls began later"),
    ],
)
def test_the_launch_call_can_have_caused_the_operation(
    calls: list[tuple[int, int, int]], start_ns: int, expected: int
) -> None:
    assert find(make_calls(*calls), make_op(start_ns)) == [expected]


def test_values_of_calls_are_never_where_no_call_is_known() -> None:
    api_calls = make_calls((1, 100, 110))
    row = find_launch_calls(
        pl.Series([0]),
        gpu_ops=make_op(120),
        api_calls=api_calls,
        launches=match_launches(api_calls, make_op(1).clear()),
    )
    assert row.tolist() == [-1]
    assert gather_calls(api_calls["start_ns"], row)[0] < 0
