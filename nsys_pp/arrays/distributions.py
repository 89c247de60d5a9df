"""Distributions of values: small enough for parts, and exact under merging.

A distribution is the columns `nsys_pp.frames.aggregates.DISTRIBUTION` of a row: moments, and the distinct
values with their counts. Moments are always exact. Values are exact while a row has at most `MOST_VALUES`
distinct ones. Above that, each value is replaced by the middle of its bin: bins keep nine binary digits after
the leading one, 512 per power of two, so that the error of a median or quantile is below 0.1 %. Rounding a
rounded value has no effect, so distributions may be merged in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import has_value, index_rows, keep_rows, numbers
from nsys_pp.arrays.search import number_rows, order_rows
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.aggregates import DISTRIBUTION, MOST_VALUES
from nsys_pp.frames.conform import NAME

_KEPT_BITS = 10  # the leading one and nine more
_ROW, _ALL = "_row", "_all"


class _Runs(Struct, frozen=True, kw_only=True):
    """Distinct values of rows with their counts, by row and value; no row is empty."""

    row: Int64s
    value: Int64s
    count: Int64s

    def join(self) -> _Runs:
        """Merge adjacent runs with the same row and value."""
        is_new = (self.row[1:] != self.row[:-1]) | (self.value[1:] != self.value[:-1])
        first = np.flatnonzero(np.append(True, is_new)[: len(self.row)])
        if len(first) == len(self.row):
            return self
        return _Runs(row=self.row[first], value=self.value[first], count=np.add.reduceat(self.count, first))

    def round_rows(self, is_rounded: npt.NDArray[np.bool_]) -> _Runs:
        """Round the values of marked rows, and of rows with more than `MOST_VALUES` values."""
        too_many = is_rounded | (np.bincount(self.row, minlength=len(is_rounded)) > MOST_VALUES)
        if not too_many.any():
            return self
        return _Runs(
            row=self.row,
            value=np.where(too_many[self.row], _round_values(self.value), self.value),
            count=self.count,
        ).join()

    def as_lists(self) -> list[pl.Series]:
        """Return `values` and `value_counts` of each row, in order."""
        columns = {_ROW: self.row, "values": self.value, "value_counts": self.count}
        lists = (
            pl.DataFrame([pl.Series(name, values) for name, values in columns.items()])
            .group_by(pl.col(_ROW).set_sorted(), maintain_order=True)
            .all()
        )
        return [lists[name] for name in ("values", "value_counts")]


def build_distributions(
    frame: pl.DataFrame, keys: Sequence[str], value: str, *, counts: Sequence[str] = ()
) -> pl.DataFrame:
    """Build the distribution of the values of each group.

    Args:
        frame: Any frame.
        keys: Columns of the groups; nulls are a group. Without keys, all rows are one group.
        value: Column of integers; rows with null are skipped.
        counts: Columns of integers without nulls, to be added up.

    Returns:
        The keys, with their types, `DISTRIBUTION` and the sums of `counts`: one row per group, in order of
        their first rows. Empty in, empty out.
    """
    known = keep_rows(frame, has_value(frame[value]))
    first, number = _number_groups(known, keys)
    values = numbers(known[value])
    order = order_rows(number, values)
    runs = _Runs(row=number[order], value=values[order], count=np.ones(len(order), dtype=np.int64)).join()
    groups = index_rows(known[list(keys)], first).get_columns() if keys else []
    sums = [pl.Series(name, _sum_rows(numbers(known[name]), number, len(first))) for name in counts]
    moments = compute_moments(runs.row, runs.value, runs.count, len(first))
    lists = runs.round_rows(np.zeros(len(first), dtype=np.bool_)).as_lists()
    return pl.DataFrame(
        [*groups, *(pl.Series(name, values) for name, values in moments.items()), *lists, *sums]
    )


def merge_distributions(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Merge the distributions of each group into the distribution of all their values.

    Squares are merged as in Chan, Golub and LeVeque (1979): the squares of the rows, plus the squares
    of their means, weighted by count.

    Args:
        frame: The keys and `DISTRIBUTION`; other columns are dropped. Rows with a `count` of null or 0 are
            skipped.
        keys: As in `build_distributions`.

    Returns:
        As in `build_distributions`: the keys and `DISTRIBUTION`, one row per group, in order of their first
        rows.
    """
    known = frame.filter(pl.col("count") > 0)
    # a constant is one group where there are no keys
    groups = (
        known.with_row_index(_ROW)
        .with_columns(pl.lit(0).alias(_ALL))
        .group_by(*keys, _ALL, maintain_order=True)
        .agg(
            rows=pl.col(_ROW).cast(pl.Int64),
            count=pl.col("count").sum(),
            total=pl.col("total").sum(),
            least=pl.col("least").min(),
            most=pl.col("most").max(),
            squares=pl.col("squares").sum(),
        )
    )
    new_row = np.empty(len(known), dtype=np.int64)
    new_row[_flatten(groups["rows"])] = np.repeat(np.arange(len(groups)), groups["rows"].list.len())
    least = groups["least"].to_numpy()
    distance = _mean_above(known, least[new_row]) - _mean_above(groups, least)[new_row]
    between = _sum_rows(known["count"].to_numpy() * distance**2, new_row, len(groups))
    groups = groups.with_columns(squares=pl.col("squares") + pl.Series(between))

    old = _runs_of(known)
    # The values of a rounded row do not add up to its total; if they do by chance, not rounding again is
    # harmless.
    is_rounded = np.zeros(len(groups), dtype=np.bool_)
    is_rounded[
        new_row[_sum_rows(old.value * old.count, old.row, len(known)) != known["total"].to_numpy()]
    ] = True
    row = new_row[old.row]
    order = order_rows(row, old.value)
    runs = _Runs(row=row[order], value=old.value[order], count=old.count[order]).join()
    return groups.hstack(runs.round_rows(is_rounded).as_lists()).select(
        *keys, *(pl.col(column).cast(dtype) for column, dtype in DISTRIBUTION.items())
    )


def describe_distributions(frame: pl.DataFrame, *, unit: str = "ns") -> pl.DataFrame:
    """Replace distributions by the columns of tables.

    Args:
        frame: Any frame with `DISTRIBUTION`.
        unit: Suffix of the names of the columns.

    Returns:
        The frame without `DISTRIBUTION`, and `count`, `total_ns`, `mean_ns`, `median_ns`, `min_ns`, `max_ns`,
        `std_ns`. As in `nsys stats`, the median of an even number of values is the mean of the two middle
        ones, and the standard deviation is of a sample (n - 1), 0.0 for a single value. If `count` is null or
        0, all other columns are null.
    """
    known = pl.col("count") > 0
    numbers: dict[str, pl.Expr | pl.Series] = {
        "total": pl.col("total"),
        "mean": pl.col("total") / pl.col("count"),
        "median": quantile(frame, 0.5),
        "min": pl.col("least"),
        "max": pl.col("most"),
        "std": (pl.col("squares") / (pl.col("count") - 1).clip(lower_bound=1)).sqrt(),
    }
    return frame.select(
        pl.exclude(DISTRIBUTION),
        "count",
        **{f"{name}_{unit}": pl.when(known).then(number) for name, number in numbers.items()},
    )


def compute_moments(
    row: Int64s, value: Int64s, count: Int64s, row_count: int
) -> dict[str, npt.NDArray[np.generic]]:
    """Compute the moments of rows from their values.

    They equal those of `build_distributions` to the bit unless values are rounded.

    Args:
        row: Row of each value, ascending.
        value: Values, ascending in each row.
        count: Occurrences of each value.
        row_count: Number of rows; rows without values have zeros.

    Returns:
        count, total, least, most and squares of each row. Additions are in order, so that results do not
        depend on the machine.
    """
    with np.errstate(all="ignore"):  # damaged parts may hold any numbers
        counts: Int64s = np.asarray(_sum_rows(count, row, row_count), dtype=np.int64)
        total: Int64s = np.asarray(_sum_rows(value * count, row, row_count), dtype=np.int64)
        least, most = np.zeros((2, row_count), dtype=np.int64)
        most[row] = value  # the last one of a row stays
        least[row[::-1]] = value[::-1]
        mean = (total - least * counts) / counts
        return {
            "count": counts,
            "total": total,
            "least": least,
            "most": most,
            "squares": _sum_rows(count * (value - least[row] - mean[row]) ** 2, row, row_count),
        }


def quantile(frame: pl.DataFrame, fraction: float) -> pl.Series:
    """Return a quantile of each row's values, with linear interpolation.

    Args:
        frame: Any frame with `DISTRIBUTION`.
        fraction: 0 for the minimum, 0.5 for the median, 1 for the maximum.

    Returns:
        One number per row of the frame, named `quantile`; null if `count` is null or 0.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"invalid fraction {fraction}; expected 0 to 1")
    is_known = frame["count"].fill_null(0).to_numpy() > 0
    known = frame.filter(pl.Series(is_known))
    runs = _runs_of(known)
    count = known["count"].to_numpy()
    last_of_value = np.cumsum(runs.count)  # index of the last copy of each value among all values of all rows
    position = (count - 1) * fraction
    below = np.floor(position).astype(np.int64)
    first_of_row = np.cumsum(count) - count
    low, high = (
        runs.value[np.searchsorted(last_of_value, first_of_row + at, side="right")].astype(np.float64)
        for at in (below, np.minimum(below + 1, count - 1))
    )
    # Middles of bins may lie outside of the range of values.
    value = np.clip(
        low + (high - low) * (position - below), known["least"].to_numpy(), known["most"].to_numpy()
    )
    result = np.full(len(frame), np.nan)
    result[is_known] = value
    return pl.Series("quantile", result, nan_to_null=True)


def _mean_above(distributions: pl.DataFrame, base: Int64s) -> Floats:
    """Return the distance of each row's mean to a lower value, precise also for large values."""
    count = distributions["count"].to_numpy()
    return np.asarray((distributions["total"].to_numpy() - base * count) / count)


def _number_groups(frame: pl.DataFrame, keys: Sequence[str]) -> tuple[Int64s, Int64s]:
    """Find the first row of each group, ascending, and the number of each row's group among these."""
    if not keys:
        return np.arange(min(len(frame), 1)), np.zeros(len(frame), dtype=np.int64)
    columns = [frame[key] for key in keys]
    first, number = number_rows(
        [column.cast(NAME) if column.dtype == pl.String else column for column in columns]
    )
    return first, number.astype(np.int64)


def _runs_of(frame: pl.DataFrame) -> _Runs:
    return _Runs(
        row=np.repeat(np.arange(len(frame)), frame["values"].list.len().to_numpy()),
        value=_flatten(frame["values"]),
        count=_flatten(frame["value_counts"]),
    )


def _round_values(values: Int64s) -> Int64s:
    """Return the middles of bins with ten significant binary digits.

    >>> _round_values(np.array([1023, 1024, 1025, 1026, -5000]))
    array([ 1023,  1025,  1025,  1027, -5004])
    """
    size = np.abs(values)
    _, bits = np.frexp(size.astype(np.float64))
    dropped = np.maximum(bits.astype(np.int64) - _KEPT_BITS, 0)
    middle = ((size >> dropped) << dropped) + ((1 << dropped) >> 1)
    return np.where(values < 0, -middle, middle)


def _sum_rows(values: npt.NDArray[np.generic], row: Int64s, row_count: int) -> npt.NDArray[np.generic]:
    sums = np.zeros(row_count, dtype=values.dtype)
    np.add.at(sums, row, values)
    return sums


def _flatten(lists: pl.Series) -> Int64s:
    """Concatenate the values of lists; no list is null or empty."""
    if lists.is_empty():
        return np.empty(0, dtype=np.int64)
    return lists.explode(empty_as_null=False).to_numpy()
