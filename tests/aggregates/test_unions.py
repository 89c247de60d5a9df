"""Unions and sums within windows, held to sets of nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.aggregates.times import Union, count_within, sum_within, unite
from nsys_pp.arrays.types import Int64s
from tests.aggregates.small_reports import SPANS

_INTERVALS = st.lists(SPANS, max_size=12)
_WINDOWS = st.lists(SPANS, max_size=5)


def _columns(spans: list[tuple[int, int]]) -> tuple[Int64s, Int64s]:
    start, end = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    return start, end


def _set(spans: list[tuple[int, int]]) -> set[int]:
    return {time for span in spans for time in range(*span)}


@settings(deadline=None, max_examples=100)
@given(one=_INTERVALS, other=_INTERVALS, windows=_WINDOWS)
def test_what_is_measured_is_what_sets_hold(
    one: list[tuple[int, int]], other: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    first, last = _columns(windows)
    a, b = unite(*_columns(one)), unite(*_columns(other))
    cut = [set(range(*window)) for window in windows]
    assert a.within(first, last).tolist() == [len(_set(one) & window) for window in cut]
    assert (a | b).within(first, last).tolist() == [len((_set(one) | _set(other)) & window) for window in cut]
    both = [len(_set(one) & _set(other) & window) for window in cut]
    assert a.overlap_within(b, first, last).tolist() == both
    summed = [sum(len(set(range(*span)) & window) for span in one) for window in cut]
    assert sum_within(*_columns(one), first, last).tolist() == summed
    counted = [sum(start in window for start, _ in one) for window in cut]
    assert count_within(_columns(one)[0], first, last).tolist() == counted


@settings(deadline=None, max_examples=100)
@given(spans=_INTERVALS)
def test_a_union_is_disjoint_ascending_and_does_not_touch(spans: list[tuple[int, int]]) -> None:
    union = unite(*_columns(spans))
    assert (union.start < union.end).all()
    assert (union.end[:-1] < union.start[1:]).all()
    assert _set(list(zip(union.start.tolist(), union.end.tolist(), strict=True))) == _set(spans)


def test_sums_beyond_64_bits_do_not_harm() -> None:
    year_ns = 31_536_000 * 10**9
    start = np.arange(1000, dtype=np.int64) * 10 + year_ns
    assert year_ns * len(start) > np.iinfo(np.int64).max
    assert sum_within(start, start + 4, start[:1], start[-1:]).tolist() == [4 * 999]


def test_nothing_covers_nothing() -> None:
    nothing = np.empty(0, dtype=np.int64)
    union = unite(nothing, nothing)
    assert isinstance(union, Union)
    assert (union | union).within(np.array([0]), np.array([9])).tolist() == [0]
    assert union.within(nothing, nothing).tolist() == []
