"""Columns of a table as text: headings with units, and numbers in readable units."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl
from msgspec import Struct

from nsys_pp.frames.table import Column, split_unit
from nsys_pp.output.tables.names import clean
from nsys_pp.units import NS_PER_MS, NS_PER_S, NS_PER_US, format_bytes

TIME_UNITS: Mapping[str, int] = {"s": NS_PER_S, "ms": NS_PER_MS, "us": NS_PER_US, "ns": 1}
_BYTE_UNITS: Mapping[str, int] = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_FIXED: Mapping[str, tuple[str, float, int]] = {  # unit of data -> unit for people, factor, decimals
    "bytes_per_s": ("GB/s", 1e-9, 2),
    "per_s": ("1/s", 1.0, 1),
    "fraction": ("%", 100.0, 2),
    "ppm": ("ppm", 1.0, 1),
}
_DECIMALS = {"ms": 3, "us": 1}  # of columns with a display unit
_FINER = {"s": "ms", "ms": "us", "us": "ns"}
_MOST_DIGITS = 1e6


class TextColumn(Struct, frozen=True, kw_only=True):
    """A column as text.

    Attributes:
        column: The column.
        unit: Unit of its texts; "" without one.
        is_number: Its texts are aligned to the right.
        texts: A text for each row; "" in rows without this cell.
    """

    column: Column
    unit: str
    is_number: bool
    texts: tuple[str, ...]

    @property
    def heading(self) -> str:
        """The heading in one line."""
        return f"{self.column.heading} ({self.unit})" if self.unit else self.column.heading


def format_columns(
    frame: pl.DataFrame, columns: Sequence[Column], *, unit: str | None, is_blank: Sequence[bool]
) -> list[TextColumn]:
    """Format each column as text, in one unit for all its rows; only sizes that differ too much have a unit each.

    All totals have the same unit, and so do all values of single calls, unless a column would then be all zeros. In
    that unit, the largest value has one to six digits before the point, and no mean is rounded to zero.

    Args:
        frame: Rows of a table.
        columns: The columns of the frame, in its order.
        unit: Unit of all times; chosen if None.
        is_blank: Mask of the rows whose cells without a value are blank; they are dashes in other rows.
    """
    free = [column for column in columns if not column.display_unit]
    units = _choose_time_units(frame, free) if unit is None else {}
    return [
        _format(frame[column.name], column, unit or units.get(column.name) or column.display_unit, is_blank)
        for column in columns
    ]


def convert_times(frame: pl.DataFrame, unit: str) -> pl.DataFrame:
    """Convert times to a unit: `total_ns` becomes `total_ms`, a float; with "ns" the frame stays as it is.

    >>> convert_times(pl.DataFrame({"total_ns": [1_500], "count": [2]}), "us").to_dicts()
    [{'total_us': 1.5, 'count': 2}]
    """
    if unit == "ns":
        return frame
    return frame.select(
        (pl.col(name) / TIME_UNITS[unit]).alias(f"{name[:-2]}{unit}")
        if split_unit(name)[1] == "ns"
        else pl.col(name)
        for name in frame.columns
    )


def _format(values: pl.Series, column: Column, time_unit: str, is_blank: Sequence[bool]) -> TextColumn:
    is_whole = values.dtype.is_integer()
    unit, factor, decimals = _FIXED.get(column.unit, (column.display_unit, 1.0, 0 if is_whole else 1))
    if column.unit in ("ns", "bytes"):
        largest = _largest(values)
        sizes = TIME_UNITS if column.unit == "ns" else _BYTE_UNITS
        unit = (
            time_unit
            if column.unit == "ns"
            else next((unit for unit in sizes if largest >= sizes[unit]), "B")
        )
        factor = 1 / sizes[unit]
        decimals = (
            0
            if is_whole and sizes[unit] == 1
            else _choose_decimals(largest * factor, _least(values) * factor)
        )
        decimals = _DECIMALS.get(column.display_unit, decimals) if unit == column.display_unit else decimals
    decimals = decimals if column.decimals is None else column.decimals
    mark = (
        "," if unit or column.is_count or not is_whole else ""
    )  # numbers of steps and stages are identifiers
    sign = "+" if column.is_signed else ""
    write: Callable[[Any], str] = partial(_write, factor=factor, decimals=decimals, style=f"{sign}{mark}")
    if column.unit == "bytes" and _least(values) * factor < 0.001:
        unit, write = "", _write_bytes
    texts = tuple(
        ("" if blank else column.null_text or "-") if value is None else write(value)
        for value, blank in zip(values, is_blank, strict=True)
    )
    return TextColumn(column=column, unit=unit, is_number=values.dtype.is_numeric(), texts=texts)


def _write(value: object, factor: float, decimals: int, style: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if factor == 1 and decimals == 0:
            return f"{value:{style}}"
        text = f"{value * factor:{style}.{decimals}f}"
        return text.replace("-", "", 1) if text.startswith("-") and not text.strip("-0.,") else text
    return clean(str(value))


def _write_bytes(value: float) -> str:
    """Format a size in its own unit, for columns whose sizes differ too much."""
    return format_bytes(round(value))


def _choose_time_units(frame: pl.DataFrame, columns: Sequence[Column]) -> dict[str, str]:
    """Choose units of times: one for totals, one for values of single calls."""
    units = {}
    for is_single in (False, True):
        times = {
            column.name: frame[column.name]
            for column in columns
            if column.unit == "ns" and column.is_single == is_single
        }
        largest = max(map(_largest, times.values()), default=0.0)
        unit = _choose_time_unit(largest)
        means = (_least(values) for name, values in times.items() if "mean" in name or "median" in name)
        finer = _FINER.get(unit, unit)
        if min(means, default=largest) < 0.01 * TIME_UNITS[unit] and _fits(largest, finer):
            unit = finer
        for name, values in times.items():
            is_seen = not 0 < _largest(values) < 0.001 * TIME_UNITS[unit]
            units[name] = unit if is_seen else _choose_time_unit(_largest(values))
    return units


def _choose_time_unit(time_ns: float) -> str:
    """Choose the unit of a time: seconds if milliseconds would have seven digits, milliseconds from 1 ms, and so on.

    >>> [_choose_time_unit(time) for time in (999, 1_000, 1e6, 999_999e6, 999_999_950_001, 1e12)]
    ['ns', 'us', 'ms', 'ms', 's', 's']
    """
    if not _fits(time_ns, "ms"):
        return "s"
    return next((unit for unit in ("ms", "us") if time_ns >= TIME_UNITS[unit]), "ns")


def _fits(time_ns: float, unit: str) -> bool:
    """Return whether a time has at most six digits before the point, rounded as it is shown."""
    return round(time_ns / TIME_UNITS[unit], 1) < _MOST_DIGITS


def _choose_decimals(largest: float, least: float) -> int:
    return 3 if largest < 10 or (least < 0.1 and largest < 10_000) else 2 if largest < 100_000 else 1


def _least(values: pl.Series) -> float:
    """Return the smallest magnitude that is not zero; infinity if all are zero."""
    sizes = values.cast(pl.Float64).abs()
    least = sizes.filter(sizes > 0).min()
    return least if isinstance(least, float) else math.inf


def _largest(values: pl.Series) -> float:
    largest = values.cast(pl.Float64).abs().max()
    return float(largest) if isinstance(largest, float) and math.isfinite(largest) else 0.0
