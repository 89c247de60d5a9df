"""Spreads, held to plain loops over the values themselves."""

from __future__ import annotations

import statistics
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.distributions import (
    build_distributions,
    describe_distributions,
    merge_distributions,
    quantile,
)
from nsys_pp.frames.aggregates import DISTRIBUTION, MOST_VALUES
from nsys_pp.frames.conform import build_schema

FRAME = build_schema({"name": pl.Categorical(), "device": pl.Int32, "value": pl.Int64})
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["copy", "sum", None]),
        st.sampled_from([0, 1, None]),
        st.integers(-5, 5) | st.integers(0, 10**4) | st.integers(0, 10**14) | st.none(),
    ),
    max_size=40,
)

checked = settings(deadline=None, max_examples=100)


def frame_of(rows: list[tuple[str | None, int | None, int | None]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=FRAME, orient="row")


def assert_same(found: pl.DataFrame, expected: pl.DataFrame) -> None:
    assert found.drop("squares").equals(expected.drop("squares"))
    assert found["squares"].to_list() == pytest.approx(expected["squares"].to_list(), rel=1e-9)


@checked
@given(ROWS)
def test_a_spread_tells_the_values_of_each_group(
    rows: list[tuple[str | None, int | None, int | None]],
) -> None:
    groups: dict[tuple[str | None, int | None], list[int]] = {}
    for name, device, value in rows:
        if value is not None:
            groups.setdefault((name, device), []).append(value)

    found = build_distributions(frame_of(rows), ["name", "device"], "value")

    assert found.schema == pl.Schema({"name": pl.Categorical(), "device": pl.Int32, **DISTRIBUTION})
    assert list(found.select("name", "device").iter_rows()) == list(groups)
    for row, values in zip(found.iter_rows(named=True), groups.values(), strict=True):
        assert (row["count"], row["total"]) == (len(values), sum(values))
        assert (row["least"], row["most"]) == (min(values), max(values))
        assert dict(zip(row["values"], row["value_counts"], strict=True)) == Counter(values)
        assert row["values"] == sorted(set(values))
        mean = statistics.mean(values)
        assert row["squares"] == pytest.approx(sum((value - mean) ** 2 for value in values), rel=1e-9)


@checked
@given(ROWS, st.lists(st.integers(0, 9), min_size=40, max_size=40))
def test_counts_are_added_up_where_a_value_is_known(
    rows: list[tuple[str | None, int | None, int | None]], counts: list[int]
) -> None:
    expected: dict[tuple[str | None, int | None], int] = {}
    for (name, device, value), count in zip(rows, counts, strict=False):
        if value is not None:
            expected[name, device] = expected.get((name, device), 0) + count
    frame = frame_of(rows).with_columns(calls=pl.Series(counts[: len(rows)], dtype=pl.Int64))

    found = build_distributions(frame, ["name", "device"], "value", counts=["calls"])

    assert found["calls"].to_list() == list(expected.values())
    assert found.drop("calls").equals(build_distributions(frame, ["name", "device"], "value"))


@checked
@given(ROWS)
def test_descriptions_are_those_of_the_statistics_module(
    rows: list[tuple[str | None, int | None, int | None]],
) -> None:
    found = describe_distributions(build_distributions(frame_of(rows), ["name"], "value"))

    for row in found.iter_rows(named=True):
        values = [value for name, _, value in rows if name == row["name"] and value is not None]
        assert row["count"] == len(values)
        assert (row["total_ns"], row["min_ns"], row["max_ns"]) == (sum(values), min(values), max(values))
        assert row["mean_ns"] == pytest.approx(statistics.mean(values))
        assert row["median_ns"] == pytest.approx(statistics.median(values))
        assert row["std_ns"] == pytest.approx(statistics.stdev(values) if len(values) > 1 else 0.0)


@checked
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=40), st.floats(0, 1))
def test_quantiles_are_those_of_numpy(values: list[int], fraction: float) -> None:
    found = quantile(build_distributions(pl.DataFrame({"value": values}), [], "value"), fraction)

    assert found.to_list() == pytest.approx([np.quantile(values, fraction)], rel=1e-9)


@checked
@given(ROWS, st.lists(st.integers(0, 3), min_size=40, max_size=40))
def test_spreads_of_parts_make_the_spread_of_the_whole(
    rows: list[tuple[str | None, int | None, int | None]], parts: list[int]
) -> None:
    frame = frame_of(rows).with_columns(part=pl.Series(parts[: len(rows)], dtype=pl.Int64))

    merged = merge_distributions(
        build_distributions(frame, ["part", "name", "device"], "value"), ["name", "device"]
    )

    assert_same(merged, build_distributions(frame, ["name", "device"], "value"))


def test_values_are_exact_up_to_the_limit_and_a_thousandth_off_beyond() -> None:
    exact = build_distributions(pl.DataFrame({"value": 10**6 + np.arange(MOST_VALUES)}), [], "value")
    assert exact["values"][0].to_list() == list(range(10**6, 10**6 + MOST_VALUES))

    values = np.sort(np.geomspace(1, 1e12, 50_001).astype(np.int64))
    rounded = build_distributions(pl.DataFrame({"value": values}), [], "value")
    for fraction in (0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0):
        assert quantile(rounded, fraction)[0] == pytest.approx(values[int(50_000 * fraction)], rel=1e-3)
    assert rounded["total"][0] == values.sum()
    assert describe_distributions(rounded)["std_ns"][0] == pytest.approx(np.std(values.astype(float), ddof=1))


def test_small_deviations_of_large_values_survive() -> None:
    values = [10**17, 10**17 + 1, 10**17 + 2]
    halves = pl.concat(
        [build_distributions(pl.DataFrame({"value": part}), [], "value") for part in (values[:1], values[1:])]
    )

    for whole in (
        build_distributions(pl.DataFrame({"value": values}), [], "value"),
        merge_distributions(halves, []),
    ):
        assert describe_distributions(whole)["std_ns"][0] == pytest.approx(1.0)


def test_fractions_outside_of_what_there_is_are_refused() -> None:
    with pytest.raises(ValueError, match="fraction"):
        quantile(build_distributions(frame_of([]), [], "value"), 1.5)
