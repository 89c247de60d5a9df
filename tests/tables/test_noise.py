from __future__ import annotations

import statistics

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.tables.noise import (
    leave_out_largest,
    median_of_others,
    noise_of_difference,
    noise_of_extremes,
    noise_of_median,
    summarise_samples,
)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=30))
@settings(deadline=None, max_examples=100)
def test_the_median_of_others_leaves_the_row_itself_out(rows: list[tuple[int, int]]) -> None:
    frame = pl.DataFrame(rows, schema={"group": pl.Int64, "value": pl.Int64}, orient="row")
    expected = []
    for at, (group, _) in enumerate(rows):
        others = [value for other, (of, value) in enumerate(rows) if of == group and other != at]
        expected.append(statistics.median(others) if others else None)
    assert median_of_others(frame, by=["group"], value="value").to_list() == expected


def test_null_is_a_group_of_its_own() -> None:
    frame = pl.DataFrame({"group": [None, 1, None, None], "value": [1, 2, 3, 5]})
    assert median_of_others(frame, by=["group"], value="value").to_list() == [4.0, None, 3.0, 2.0]


@pytest.mark.parametrize(
    ("counts", "most"),
    [((2, 2), 0.03), ((2, 5), 0.03), ((3, 3), 0.02), ((4, 4), 0.02), ((5, 5), 0.01), ((10, 10), 0.008)],
)
def test_few_pairs_of_equal_runs_differ_by_more_than_noise(counts: tuple[int, int], most: float) -> None:
    pairs = 10_000
    random = np.random.default_rng(1)
    sides = []
    for count in counts:
        samples = pl.DataFrame(
            {"pair": np.repeat(np.arange(pairs), count), "value": random.standard_normal(pairs * count)}
        )
        others = leave_out_largest(samples, by=["pair"], value="value")
        of_others = summarise_samples(others, by=["pair"], value="value").select("pair", others="deviation")
        sides.append(summarise_samples(samples, by=["pair"], value="value").join(of_others, on="pair"))
    both = sides[0].join(sides[1], on="pair", suffix="_b")
    deviation, of_all_others = (pl.col(name) + pl.col(f"{name}_b") for name in ("deviation", "others"))
    sample_counts = pl.col("sample_count"), pl.col("sample_count_b")
    found = both.select(
        median=(pl.col("median") - pl.col("median_b")).abs() > noise_of_difference(deviation, *sample_counts),
        largest=(pl.col("largest") - pl.col("largest_b")).abs()
        > noise_of_extremes(deviation, of_all_others, *sample_counts),
        is_above=pl.col("median") > noise_of_median(pl.col("deviation"), pl.col("sample_count")),
    ).mean()
    assert 0 < found["median"].item() < most
    assert found["largest"].item() < most
    assert found["is_above"].item() < 2 * most


def test_one_odd_sample_changes_little() -> None:
    samples = pl.DataFrame(
        {"run": [0] * 6 + [1] * 6, "value": [10, 11, 12, 13, 14, 15, 10, 11, 12, 13, 14, 900]}
    )
    usual, odd = summarise_samples(samples, by=["run"], value="value").sort("run").rows(named=True)
    assert odd["median"] == usual["median"]
    assert odd["deviation"] < 2 * usual["deviation"]


def test_the_largest_sample_is_left_out_once() -> None:
    samples = pl.DataFrame({"run": [0, 0, 0, 1, None, None], "value": [9, 3, 9, 7, 2, 1]})
    left = leave_out_largest(samples, by=["run"], value="value")
    assert left.rows() == [(0, 9), (0, 3), (None, 1)] or left.rows() == [(0, 3), (0, 9), (None, 1)]


def test_one_sample_tells_nothing_of_noise() -> None:
    one = summarise_samples(pl.DataFrame({"run": [0], "value": [7]}), by=["run"], value="value")
    noise = one.select(noise_of_median(pl.col("deviation"), pl.col("sample_count"))).item()
    assert (one["median"].item(), noise) == (7.0, None)
