"""Bytes of network metrics by step, against their definition in loops."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.training import RUN_STEPS
from nsys_pp.training.sums import MACHINE_STEPS, NETWORK_RATES, list_machine_steps, sum_bytes

RATES = st.lists(
    st.tuples(st.integers(-9, 40), st.integers(0, 15), st.integers(0, 9), st.integers(0, 3)), max_size=12
)
STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12)), max_size=4)


@settings(deadline=None, max_examples=150)
@given(RATES, STEPS)
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
    steps = pl.DataFrame([(*row, False, "range", None) for row in rows], schema=RUN_STEPS, orient="row")
    assert list_machine_steps(steps).rows() == [(0, 5, 20), (1, 20, 50), (3, 70, 80)]
