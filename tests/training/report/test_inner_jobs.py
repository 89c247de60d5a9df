"""Jobs around jobs never form a cycle."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from nsys_pp.arrays.ancestors import check_forest
from nsys_pp.arrays.columns import numbers
from nsys_pp.arrays.search import find_rows
from nsys_pp.frames.report import NAME
from nsys_pp.training.names import find_parents, nest_jobs

KINDS = ("backward", "forward_backward", "recompute", "weight_gradient", "send", "forward")
JOBS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(1, 2), st.integers(0, 3), st.integers(1, 3)), max_size=8
)


@example(rows=[("recompute", 1, 0, 1), ("backward", 1, 0, 1)])
@example(rows=[("weight_gradient", 1, 0, 1), ("send", 1, 0, 1), ("forward_backward", 1, 0, 1)])
@given(rows=JOBS)
def test_equal_ranges_are_not_around_each_other(rows: list[tuple[str, int, int, int]]) -> None:
    jobs = pl.DataFrame(
        {
            "range_id": range(10, 10 + len(rows)),
            "kind": [kind for kind, *_ in rows],
            "process_key": [1] * len(rows),
            "thread_key": [thread for _, thread, *_ in rows],
            "end_thread_key": [None] * len(rows),
            "start_ns": [start for *_, start, _ in rows],
            "end_ns": [start + length for *_, start, length in rows],
            "name": [kind for kind, *_ in rows],
        },
        schema_overrides={
            "kind": pl.Enum([*KINDS, "data", "other", "receive", "send_receive"]),
            "end_thread_key": pl.Int64,
            "name": NAME,
        },
    )
    nested = nest_jobs(jobs)
    check_forest(find_rows(np.asarray(numbers(nested["range_id"])), numbers(nested["outer_id"])))


def _find_parent(rows: list[tuple[int, int, int]], at: int) -> int:
    """Find the innermost row around a row by its definition; of equal ones the earlier is the outer one."""
    thread, start, end = rows[at]
    around = [
        (rows[other][1], -rows[other][2], other)
        for other in range(len(rows))
        if other != at
        and rows[other][0] == thread
        and (rows[other][1], -rows[other][2], other) < (start, -end, at)
        and rows[other][2] >= end
    ]
    return max(around)[2] if around else -1


@given(
    rows=st.lists(st.tuples(st.integers(1, 2), st.integers(0, 9), st.integers(1, 9)), max_size=14),
    left_out=st.sets(st.integers(0, 13)),
)
def test_parents_are_their_definition(rows: list[tuple[int, int, int]], left_out: set[int]) -> None:
    rows = [(thread, start, start + length) for thread, start, length in rows]
    is_nestable = np.array([row not in left_out for row in range(len(rows))], dtype=np.bool_)
    jobs = pl.DataFrame(
        rows, schema={"thread_key": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row"
    )
    kept = [row for row in range(len(rows)) if is_nestable[row]]
    expected = [-1] * len(rows)
    for at, row in enumerate(kept):
        parent = _find_parent([rows[other] for other in kept], at)
        expected[row] = kept[parent] if parent >= 0 else -1
    assert find_parents(jobs, is_nestable).tolist() == expected
