"""Launches against a join in plain loops."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.segments import expand_windows
from nsys_pp.frames.report import API_CALLS, GPU_OPS, LAUNCHES
from nsys_pp.projection.launches import match_launches

# Processes as nsys numbers them, and correlation ids that span 32 bits; few, so that many meet.
PROCESSES = (1 << 24, 281_492_156_579_840, -(1 << 62))
ids = st.sampled_from([0, 1, 2, 3, 2**32 - 1])
rows = st.lists(st.tuples(st.sampled_from(PROCESSES), ids), max_size=15)
rows_with_null = st.lists(st.tuples(st.sampled_from(PROCESSES), st.none() | ids), max_size=15)


def calls(pairs: list[tuple[int, int]]) -> pl.DataFrame:
    return pl.DataFrame([{"process_key": p, "correlation_id": c} for p, c in pairs], schema=API_CALLS)


def ops(pairs: list[tuple[int, int | None]]) -> pl.DataFrame:
    numbered = [{"op_id": row, "process_key": p, "correlation_id": c} for row, (p, c) in enumerate(pairs)]
    return pl.DataFrame(numbered, schema=GPU_OPS)


@settings(max_examples=300, deadline=None)
@given(rows, rows_with_null)
def test_launches_are_all_pairs_of_one_process_and_id(
    given_calls: list[tuple[int, int]], given_ops: list[tuple[int, int | None]]
) -> None:
    launches = match_launches(calls(given_calls), ops(given_ops))
    assert launches.schema == LAUNCHES
    assert launches["op_id"].is_sorted()
    expected = [
        (op_id, row)
        for op_id, op in enumerate(given_ops)
        for row, call in enumerate(given_calls)
        if op == call
    ]
    assert launches.rows() == expected


@settings(max_examples=50, deadline=None)
@given(rows, rows_with_null, st.randoms(use_true_random=False))
def test_operations_may_come_in_any_order(
    given_calls: list[tuple[int, int]], given_ops: list[tuple[int, int | None]], random: object
) -> None:
    frame = ops(given_ops)
    shuffled = frame[np.array(random.sample(range(len(frame)), len(frame)), dtype=np.int64)]  # type: ignore[attr-defined]
    assert (
        match_launches(calls(given_calls), shuffled)
        .sort("op_id", "call_row")
        .equals(match_launches(calls(given_calls), frame))
    )


def test_a_graph_is_one_call_of_many_operations() -> None:
    launches = match_launches(calls([(1, 7), (1, 8), (1, 9)]), ops([(1, 9), *[(1, 8)] * 40, (1, 7)]))
    assert launches["call_row"].to_list() == [2, *[1] * 40, 0]


def test_one_id_of_two_processes_is_two_calls() -> None:
    assert match_launches(calls([(1, 5), (2, 5)]), ops([(2, 5), (1, 5), (3, 5)])).rows() == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("first", "second"), [([], [(1, 1)]), ([(1, 1)], []), ([], []), ([(1, 1)], [(1, None)])]
)
def test_nothing_in_nothing_out(first: list[tuple[int, int]], second: list[tuple[int, int | None]]) -> None:
    assert match_launches(calls(first), ops(second)).equals(LAUNCHES.to_frame())


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=20))
def test_windows_are_listed_one_after_the_other(windows: list[tuple[int, int]]) -> None:
    first, size = np.array(windows, dtype=np.int64).reshape(-1, 2).T
    listed = [position for start, count in windows for position in range(start, start + count)]
    assert expand_windows(first, first + size).tolist() == listed
