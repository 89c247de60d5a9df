"""Columns of a summary as text: headings with units, and numbers that can be read at a glance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from nsys_pp.units import NS_PER_MS, NS_PER_S, NS_PER_US, format_bytes
from nsys_pp.write.tables.frames import clean

TIME_UNITS: Mapping[str, int] = {"s": NS_PER_S, "ms": NS_PER_MS, "us": NS_PER_US, "ns": 1}
_BYTE_UNITS: Mapping[str, int] = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_FIXED: Mapping[str, tuple[str, float, int]] = {  # ending of a name -> unit, times, decimals
    "bytes_per_s": ("GB/s", 1e-9, 2),
    "per_s": ("1/s", 1.0, 1),
    "fraction": ("%", 100.0, 2),
}
_ENDINGS = ("ns", *_FIXED, "bytes")
_ENDINGS_ALONE = {
    "ns": "time",
    "bytes": "size",
    "bytes_per_s": "bandwidth",
    "per_s": "rate",
    "fraction": "share",
}
# what is measured of one call, which can be a millionth of a total
_OF_ONE = {"mean", "median", "min", "max", "std", "least", "most", "shortest", "longest"}
_FINER = {"s": "ms", "ms": "us", "us": "ns"}
_MOST_DIGITS = 1e6
_WORDS = {"host": "CPU", "gpu": "GPU", "cpu": "CPU", "std": "std dev", "op": "operation", "os": "OS"}
_PLURALS = {  # of what is counted; others, like `late_count`, are as they are
    **{word: f"{word}s" for word in ("call", "rank", "step", "allocation", "free", "device", "gap", "range")},
    "op": "operations",
    "launch": "launches",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumn:
    """A column as text.

    Attributes:
        name: Of the column of the frame.
        label: What the heading says.
        unit: Behind it; "" if there is none.
        is_number: It stands to the right.
        texts: A text for each row; "" where the row has nothing to say.
        rank: Columns of the lowest are the first to go where there is no room.
    """

    name: str
    label: str
    unit: str
    is_number: bool
    rank: int
    texts: tuple[str, ...]

    @property
    def heading(self) -> str:
        """The heading in one line."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def show_columns(frame: pl.DataFrame, *, unit: str | None, is_blank: list[bool]) -> list[TextColumn]:
    """Write each column as text, in a unit that all its rows share; sizes that differ too much have one each.

    Totals share a unit, and so do measures of one call, unless one of them would then be all zeros: one in which
    the largest has one to six digits before the point, and the mean of each row is seen.

    Args:
        frame: A table with units in the names of its columns.
        unit: Of all times; chosen if None.
        is_blank: Of each row, whether nothing stands where it has no value; else a dash does.
    """
    units = _choose_time_units(frame) if unit is None else {}
    return [_show(frame[name], units.get(name, unit or "ns"), is_blank) for name in frame.columns]


def convert_times(frame: pl.DataFrame, unit: str) -> pl.DataFrame:
    """Give times in a unit: `total_ns` becomes `total_ms`, a float; in "ns" all stays as it is.

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


def split_unit(name: str) -> tuple[str, str]:
    """Take the unit from the name of a column; one that is nothing but a unit has a word for it.

    >>> split_unit("host_total_ns"), split_unit("bytes_per_s"), split_unit("call_count")
    (('host_total', 'ns'), ('bandwidth', 'bytes_per_s'), ('call_count', ''))
    """
    if name in _ENDINGS_ALONE:
        return _ENDINGS_ALONE[name], name
    ending = next((ending for ending in _ENDINGS if name.endswith(f"_{ending}")), "")
    return (name.removesuffix(f"_{ending}"), ending) if ending else (name, "")


def _show(values: pl.Series, time_unit: str, is_blank: list[bool]) -> TextColumn:
    name, is_whole = values.name, values.dtype.is_integer()
    stem, ending = split_unit(name)
    unit, times, decimals = _FIXED.get(ending, ("", 1.0, 0 if is_whole else 1))
    if ending in ("ns", "bytes"):
        largest = _largest(values)
        sizes = TIME_UNITS if ending == "ns" else _BYTE_UNITS
        unit = time_unit if ending == "ns" else next((unit for unit in sizes if largest >= sizes[unit]), "B")
        times = 1 / sizes[unit]
        decimals = (
            0 if is_whole and sizes[unit] == 1 else _choose_decimals(largest * times, _least(values) * times)
        )
    # numbers of steps and stages are names
    mark = "," if unit or _is_count(name) else ""
    write: Callable[[Any], str] = partial(_write, times=times, decimals=decimals, mark=mark)
    if ending == "bytes" and _least(values) * times < 0.001:
        unit, write = "", _write_bytes
    texts = tuple(
        ("" if blank else "-") if value is None else write(value)
        for value, blank in zip(values, is_blank, strict=True)
    )
    return TextColumn(
        name=name,
        label=_label(stem),
        unit=unit,
        is_number=values.dtype.is_numeric(),
        rank=_rank(name),
        texts=texts,
    )


def _rank(name: str) -> int:
    """Say how early a column gives way: measures of one call and of ranks before totals."""
    words = split_unit(name)[0].split("_")
    if _is_of_ranks(name):
        return 1 if {"min", "median"} & {*words} else 3
    if not _is_of_one(name):
        return 5
    return 0 if "std" in words else 4 if "mean" in words else 2


def _is_of_ranks(name: str) -> bool:
    return (name.startswith("rank_") and not _is_count(name)) or name.endswith("_rank")


def _is_count(name: str) -> bool:
    return name == "count" or name.endswith("_count")


def _write(value: object, times: float, decimals: int, mark: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:{mark}}" if times == 1 and decimals == 0 else f"{value * times:{mark}.{decimals}f}"
    return clean(str(value))


def _write_bytes(value: float) -> str:
    """Write a size in a unit of its own, where sizes differ too much for one."""
    return format_bytes(round(value))


def _choose_time_units(frame: pl.DataFrame) -> dict[str, str]:
    """Choose units of times: one for totals, one for measures of one call."""
    times = {name: frame[name] for name in frame.columns if split_unit(name)[1] == "ns"}
    units = {}
    for of_one in (False, True):
        names = [name for name in times if _is_of_one(name) == of_one]
        largest = max((_largest(times[name]) for name in names), default=0.0)
        unit = _choose_time_unit(largest)
        least = min(
            (_least(times[name]) for name in names if "mean" in name or "median" in name), default=largest
        )
        finer = _FINER.get(unit, unit)
        if least < 0.01 * TIME_UNITS[unit] and largest < _MOST_DIGITS * TIME_UNITS[finer]:
            unit = finer
        for name in names:
            is_seen = not 0 < _largest(times[name]) < 0.001 * TIME_UNITS[unit]
            units[name] = unit if is_seen else _choose_time_unit(_largest(times[name]))
    return units


def _is_of_one(name: str) -> bool:
    words = name.split("_")
    return "total" not in words and not _is_of_ranks(name) and not _OF_ONE.isdisjoint(words)


def _choose_time_unit(time_ns: float) -> str:
    """Choose seconds from 1,000 s on, milliseconds from 1 ms on, and so forth.

    >>> [_choose_time_unit(time) for time in (999, 1_000, 1e6, 999_999e6, 1e12)]
    ['ns', 'us', 'ms', 'ms', 's']
    """
    if time_ns >= 1_000 * NS_PER_S:
        return "s"
    return next((unit for unit in ("ms", "us") if time_ns >= TIME_UNITS[unit]), "ns")


def _choose_decimals(largest: float, least: float) -> int:
    return 3 if largest < 10 or (least < 0.1 and largest < 10_000) else 2 if largest < 100_000 else 1


def _least(values: pl.Series) -> float:
    """Find the least that is not zero."""
    sizes = values.cast(pl.Float64).abs()
    least = sizes.filter(sizes > 0).min()
    return least if isinstance(least, float) else math.inf


def _largest(values: pl.Series) -> float:
    largest = values.cast(pl.Float64).abs().max()
    return float(largest) if isinstance(largest, float) and math.isfinite(largest) else 0.0


def _label(stem: str) -> str:
    """Write the name of a column, without its unit, as words.

    >>> [_label(stem) for stem in ("host_total", "op_count", "count", "late_count", "share")]
    ['CPU total', 'Operations', 'Count', 'Late', 'Share']
    """
    *words, last = stem.split("_")
    if last == "count" and words:
        *words, last = words
        last = _PLURALS.get(last, last)
    text = " ".join(_WORDS.get(word, word) for word in (*words, last))
    return text[:1].upper() + text[1:]
