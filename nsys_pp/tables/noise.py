"""Noise of medians and maxima: statistics that are robust against single outliers.

The deviation of samples x_1 ... x_n is sum |x_i - median|, where each term is limited to 5 times the median
of the terms that are not 0. For normal values, `1.2533 * deviation / (n - 1)` estimates their standard
deviation (1.2533 is sqrt(pi / 2)), and 1.2533 times that, over sqrt(n), is the standard error of their
median. The noise is three such errors. Of pairs of runs drawn from one normal distribution, 2.6 % differ by
more with 2 steps each, 1.6 % with 3, 1.5 % with 4, and less than 0.8 % with 5 and more
(`tests/tables/test_noise.py`).

The noise of the largest sample is estimated from all other samples: otherwise a single outlier would be
hidden by its own deviation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys_pp.arrays.search import number_rows

_PER_DEVIATION = math.pi / 2  # 1.2533 squared: from a deviation to the error of a median
_ERRORS = 3
_CUT = 5


def summarise_samples(samples: pl.DataFrame, *, by: Sequence[str], value: str) -> pl.DataFrame:
    """Compute median, maximum, deviation and count of the values of each group.

    Args:
        samples: One row per sample; nulls are left out.
        by: Columns that identify a group.
        value: Column of the samples.

    Returns:
        One row per group, any order: `by`, `median`, `largest` and `deviation` (Float64), `sample_count`.
    """
    residual = (pl.col(value) - pl.col(value).median().over(by)).abs().cast(pl.Float64)
    usual = pl.col("residual").filter(pl.col("residual") > 0).median().over(by)
    return (
        samples.drop_nulls(value)
        .with_columns(residual=residual)
        .with_columns(residual=pl.min_horizontal("residual", _CUT * usual))
        .group_by(by)
        .agg(
            median=pl.col(value).median().cast(pl.Float64),
            largest=pl.col(value).max().cast(pl.Float64),
            deviation=pl.col("residual").sum(),
            sample_count=pl.len().cast(pl.Int64),
        )
    )


def leave_out_largest(samples: pl.DataFrame, *, by: Sequence[str], value: str) -> pl.DataFrame:
    """Drop the largest sample of each group; only one if several are equal.

    >>> leave_out_largest(pl.DataFrame({"group": 3 * [0], "value": [5, 9, 9]}), by=["group"], value="value")[
    ...     "value"
    ... ].to_list()
    [5, 9]
    """
    rank = pl.col(value).rank("ordinal").over(by)
    return samples.drop_nulls(value).filter(rank < pl.len().over(by))


def noise_of_median(deviation: pl.Expr, count: pl.Expr) -> pl.Expr:
    """Return the noise of a median; null with one sample."""
    return pl.when(count > 1).then(_ERRORS * _PER_DEVIATION * deviation / (count - 1) / count.sqrt())


def noise_of_difference(deviation: pl.Expr, count_a: pl.Expr, count_b: pl.Expr) -> pl.Expr:
    """Return the noise of the difference of two medians; null if either has one sample.

    Args:
        deviation: Sum of the deviations of both.
        count_a: Number of samples of A.
        count_b: Number of samples of B.
    """
    scale = _ERRORS * _PER_DEVIATION * deviation / (count_a + count_b - 2)
    return pl.when((count_a > 1) & (count_b > 1)).then(scale * (1 / count_a + 1 / count_b).sqrt())


def noise_of_extremes(
    deviation: pl.Expr, deviation_of_others: pl.Expr, count_a: pl.Expr, count_b: pl.Expr
) -> pl.Expr:
    """Return the noise of the difference of two maxima; null if either has one sample.

    The maximum of a few normal values varies no more than a single value does. The fewer the other samples
    are, the less certain is their deviation, so the noise is more errors: 6 with 3 samples each, 4 with 5. Of
    pairs of runs drawn from one normal distribution, 1.3 % differ by more with 3 steps each, 0.7 % with 4,
    and less with more. With two steps each, the others have no deviation: that of all samples is used.

    Args:
        deviation: Sum of the deviations of both.
        deviation_of_others: The same without the largest sample of each (`leave_out_largest`).
        count_a: Number of samples of A.
        count_b: Number of samples of B.
    """
    samples = count_a + count_b - 2
    others = samples - 2
    per_deviation = _ERRORS * math.sqrt(2 * _PER_DEVIATION)
    return (
        pl.when((count_a < 2) | (count_b < 2))
        .then(None)
        .when(others > 0)
        .then(per_deviation * deviation_of_others / others * samples / others)
        .otherwise(per_deviation * deviation / samples)
    )


def median_of_others(frame: pl.DataFrame, *, by: Sequence[str], value: str) -> pl.Series:
    """Return the median of `value` over the other rows of each row's group; null for a row without others.

    Args:
        frame: Any frame.
        by: Columns that identify a group, of integers, booleans or categories; at least one.
        value: Column of numbers.

    >>> frame = pl.DataFrame({"group": [0, 0, 0, 1], "value": [1, 5, 9, 2]})
    >>> median_of_others(frame, by=["group"], value="value").to_list()
    [7.0, 5.0, 3.0, None]
    """
    _, number = number_rows([frame[name] for name in by])  # a rank of rows takes ten times as long
    ordered = frame.select(
        pl.Series("group", number), value=pl.col(value).cast(pl.Float64), row=pl.int_range(pl.len())
    ).sort("group", "value")
    group, values = ordered["group"].to_numpy(), ordered["value"].to_numpy()
    rows = np.arange(len(values))
    first = np.searchsorted(group, group)
    count = np.searchsorted(group, group, side="right") - first
    position = rows - first
    # Without the row itself, the values behind it move up by one position.
    low, high = np.maximum(count - 2, 0) // 2, (count - 1) // 2
    low, high = (np.minimum(at + (at >= position), count - 1) + first for at in (low, high))
    medians = np.full(len(values), np.nan)
    medians[ordered["row"].to_numpy()] = np.where(count > 1, (values[low] + values[high]) / 2, np.nan)
    return pl.Series(value, medians, dtype=pl.Float64).fill_nan(None)
