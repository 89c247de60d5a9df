"""Data loading in states of lanes, against its definition at every moment."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.training import CAUSE
from nsys_pp.training.causes import cut_loading

STATES = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, 3),
        st.integers(1, 9),
        st.sampled_from(["host", "idle", "copy", None]),
    ),
    max_size=8,
)
LOADS = st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 40), st.integers(0, 9)), max_size=5)


@settings(deadline=None, max_examples=150)
@given(STATES, LOADS)
def test_late_launches_while_data_is_loaded_wait_for_data(
    drawn: list[tuple[int, int, int, str | None]], loads: list[tuple[int, int, int]]
) -> None:
    rows, now = [], {0: 0, 1: 0}
    for lane, gap, length, cause in drawn:
        start = now[lane] + gap
        now[lane] = start + length
        rows.append((lane, cause, start, now[lane]))
    states = pl.DataFrame(
        rows,
        schema={"lane": pl.UInt32, "cause": CAUSE, "start_ns": pl.Int64, "end_ns": pl.Int64},
        orient="row",
    )
    loading = pl.DataFrame(
        [(lane, start, start + length) for lane, start, length in loads],
        schema={"lane": pl.UInt32, "host_start_ns": pl.Int64, "host_end_ns": pl.Int64},
        orient="row",
    )
    found = [
        (lane, moment, cause)
        for lane, cause, start, end in cut_loading(states, loading, owner="lane").iter_rows()
        for moment in range(start, end)
    ]
    expected = []
    for lane, cause, start, end in rows:
        for moment in range(start, end):
            is_loading = any(of == lane and at <= moment < at + length for of, at, length in loads)
            expected.append((lane, moment, "data" if is_loading and cause in ("host", "idle") else cause))
    assert sorted(found, key=str) == sorted(expected, key=str)
