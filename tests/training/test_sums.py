"""Sums of metrics by step, against their definition in plain loops."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.report import METRIC_VALUES
from nsys_pp.frames.training import FAMILY_TIMES, MEASURED_TIMES, RUN_STEPS
from nsys_pp.training.sums import (
    MACHINE_STEPS,
    NETWORK_RATES,
    list_machine_steps,
    measure_families,
    sum_bytes,
    sum_metrics,
)

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


RATES = st.lists(
    st.tuples(st.integers(-9, 40), st.integers(0, 15), st.integers(0, 9), st.integers(0, 3)), max_size=12
)

STEPS_NETWORK_SUMS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12)), max_size=4)


@settings(deadline=None, max_examples=150)
@given(RATES, STEPS_NETWORK_SUMS)
def test_bytes_are_those_of_the_definition(
    drawn: list[tuple[int, int, int, int]], lengths: list[tuple[int, int]]
) -> None:
    rates = [(start, start + length, float(rate), float(rate + more)) for start, length, rate, more in drawn]
    steps, at = [], 0
    for number, (gap, length) in enumerate(lengths):
        steps.append((number, at + gap, at + gap + length))
        at += gap + length
    found = sum_bytes(
        pl.DataFrame(rates, schema=NETWORK_RATES, orient="row"),
        pl.DataFrame(steps, schema=MACHINE_STEPS, orient="row"),
    )
    expected = []
    for step, first, last in steps:
        inside = [
            (moment, rate, peak)
            for start, end, rate, peak in rates
            for moment in range(start, end)
            if first <= moment < last
        ]
        if inside:
            total = sum(rate for _, rate, _ in inside)
            expected.append((step, pytest.approx(total, abs=1e-6), max(peak for *_, peak in inside)))
    assert found.rows() == expected


def test_steps_of_a_machine_end_where_the_next_one_begins() -> None:
    rows = [(0, 0, 5, 20), (1, 0, 8, 30), (0, 1, 20, 40), (1, 1, 30, 50), (0, 3, 70, 80)]
    steps = pl.DataFrame([(*row, False, "range") for row in rows], schema=RUN_STEPS, orient="row")
    assert list_machine_steps(steps).rows() == [(0, 5, 20), (1, 20, 50), (3, 70, 80)]
