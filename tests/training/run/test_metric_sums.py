"""Sums of metrics over intervals, against their definition in loops."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.report import METRIC_VALUES
from nsys_pp.frames.requested import FAMILY_TIMES, MEASURED_TIMES
from nsys_pp.training.sums import measure_families, sum_metrics

INTERVALS = st.lists(
    st.tuples(st.sampled_from(["forward", "GEMM"]), st.integers(0, 40), st.integers(0, 12)), max_size=12
)
STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12)), max_size=4)
SAMPLES = st.dictionaries(st.integers(0, 60), st.integers(-5, 100), max_size=12)


def place(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Put steps one after the other, each after a gap."""
    placed, at = [], 0
    for gap, length in steps:
        placed.append((at + gap, at + gap + length))
        at += gap + length
    return placed


@settings(deadline=None, max_examples=150)
@given(INTERVALS, STEPS, SAMPLES)
def test_sums_are_those_of_the_definition(
    intervals: list[tuple[str, int, int]], steps: list[tuple[int, int]], samples: dict[int, int]
) -> None:
    rows: list[tuple[int, str, str | None, int | None, int, int]] = [
        (3, "jobs", item, None, start, start + length) for item, start, length in intervals
    ]
    rows += [(3, "steps", None, number, start, end) for number, (start, end) in enumerate(place(steps))]
    measured = pl.DataFrame(rows, schema=MEASURED_TIMES, orient="row")
    times = sorted(samples)
    frame = pl.DataFrame([(time, float(samples[time])) for time in times], schema=METRIC_VALUES, orient="row")
    found = {
        (group, item, step): (integral, time, peak)
        for _, _, group, item, step, integral, time, peak in sum_metrics(
            measured, {"a": frame}, lane=3
        ).iter_rows()
    }
    expected = {}
    for key in {(group, item, step) for _, group, item, step, _, _ in rows}:
        moments = {
            moment
            for _, *of, start, end in rows
            if tuple(of) == key
            for moment in range(start, end)
            if times and times[0] <= moment < times[-1]
        }
        values = [samples[max(time for time in times if time <= moment)] for moment in sorted(moments)]
        if values:
            expected[key] = (pytest.approx(sum(values)), len(values), max(values))
    assert found == expected


KERNELS = st.lists(
    st.tuples(st.sampled_from(["GEMM", "copy"]), st.integers(-3, 60), st.integers(0, 9)), max_size=12
)


@settings(deadline=None, max_examples=100)
@given(KERNELS, STEPS)
def test_kernels_are_of_the_step_that_they_start_in(
    kernels: list[tuple[str, int, int]], drawn: list[tuple[int, int]]
) -> None:
    steps = [(number, *span) for number, span in enumerate(place(drawn))]
    rows = [(family, start, start + length) for family, start, length in kernels]
    found = measure_families(
        pl.DataFrame(rows, schema=FAMILY_TIMES, orient="row"),
        pl.DataFrame(
            steps, schema={"step": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row"
        ),
        lane=3,
    )
    moments = [
        (family, step, moment)
        for _, group, family, step, start, end in found.rows()
        if group == "families"
        for moment in range(start, end)
    ]
    assert len(moments) == len(set(moments)), "time of several kernels is listed once"
    assert set(moments) == {
        (family, step, moment)
        for family, start, end in rows
        for step, first, last in steps
        if first <= start < last
        for moment in range(start, end)
    }
