"""Rows of tables as text: which are shown, in which order and units, and with names shortened."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, takewhile
from types import MappingProxyType
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.frames.table import AnyTable, Column, FilledTable, View, describe_columns, split_unit
from nsys_pp.units import NS_PER_MS, NS_PER_S, NS_PER_US, format_bytes


def clean(text: str) -> str:
    """Replace unprintable characters by blanks: a report's text could otherwise move the cursor."""
    return "".join(character if character.isprintable() else " " for character in text)


def shorten_name(name: str, cells: int, *, is_symbol: bool = False) -> str:
    """Shorten a name to a number of cells: its middle is cut, of a function first its parameters.

    >>> shorten_name("void at::fill<(int)4, at::FillFunctor<float>>(int, char (*)[4])", 44, is_symbol=True)
    'at::fill<(int)4, at::FillFunctor<float>>(…)'
    >>> shorten_name("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTN", 24)
    'nvjet_hsh_25…z_coopA_NTN'
    """
    from rich.cells import cell_len, set_cell_size  # a table in a file needs no rich

    if is_symbol and cell_len(name) > cells and (start := _find_parameters(name)) > 0:
        name = f"{name[:start].removeprefix('void ')}(…)"
    if cell_len(name) <= cells:
        return name
    end = set_cell_size(name[::-1], (cells - 1) // 2)[::-1]
    return f"{set_cell_size(name, cells - 1 - cell_len(end))}…{end}"


def _find_parameters(name: str) -> int:
    """Find the start of the parameters at the end of a name; -1 without parameters.

    >>> _find_parameters("void f<(int)2>(char (*)[4], int)"), _find_parameters("Memcpy HtoD")
    (14, -1)
    """
    if not name.endswith(")"):
        return -1
    depths = accumulate((letter == ")") - (letter == "(") for letter in reversed(name))
    return next((len(name) - back for back, depth in enumerate(depths, 1) if depth == 0), -1)


TIME_UNITS: Mapping[str, int] = {"s": NS_PER_S, "ms": NS_PER_MS, "us": NS_PER_US, "ns": 1}

_BYTE_UNITS: Mapping[str, int] = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}

# Units for people of a unit of data, the largest first.
_SIZES: Mapping[str, Mapping[str, int]] = {"ns": TIME_UNITS, "bytes": _BYTE_UNITS}

_FIXED: Mapping[str, tuple[str, float, int]] = {  # unit of data -> unit for people, factor, decimals
    "bytes_per_s": ("GB/s", 1e-9, 2),
    "per_s": ("1/s", 1.0, 1),
    "fraction": ("%", 100.0, 2),
    "ppm": ("ppm", 1.0, 1),
}


_DECIMALS = {"ms": 3, "us": 1}  # of columns with a display unit

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
    """Format each column as text, in one unit for all its rows.

    Only sizes that differ too much have a unit each.

    All totals have the same unit, and so do all values of single calls, unless a column would then be all
    zeros. In that unit, the largest value has one to six digits before the point, and no mean is rounded to
    zero.

    Args:
        frame: Rows of a table.
        columns: The columns of the table to format.
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
    unit, factor, decimals = _FIXED.get(column.unit, ("", 1.0, 0 if is_whole else 1))
    if column.unit in _SIZES:
        largest, sizes = _largest(values), _SIZES[column.unit]
        of_bytes = next((one for one in _BYTE_UNITS if largest >= _BYTE_UNITS[one]), "B")
        unit = time_unit if column.unit == "ns" else of_bytes
        factor = 1 / sizes[unit]
        if sizes[unit] > 1 or not is_whole:
            shown, least = largest * factor, _least(values) * factor
            decimals = 3 if shown < 10 or (least < 0.1 and shown < 10_000) else 2 if shown < 100_000 else 1
        if unit == column.display_unit:
            decimals = _DECIMALS.get(unit, decimals)
    decimals = decimals if column.decimals is None else column.decimals
    # other numbers are identifiers, as those of steps and stages
    mark = "," if unit or column.is_count or not is_whole else ""
    sign = "+" if column.is_signed else ""
    write: Callable[[Any], str] = partial(_write, factor=factor, decimals=decimals, style=f"{sign}{mark}")
    if column.unit == "bytes" and _least(values) * factor < 0.001:
        unit, write = "", lambda size: format_bytes(round(size))
    return TextColumn(
        column=column,
        unit=unit,
        is_number=values.dtype.is_numeric(),
        texts=tuple(
            ("" if blank else column.null_text or "-") if value is None else write(value)
            for value, blank in zip(values, is_blank, strict=True)
        ),
    )


def _write(value: object, factor: float, decimals: int, style: str) -> str:
    if isinstance(value, int | float):
        if factor == 1 and decimals == 0:
            return f"{value:{style}}"
        text = f"{value * factor:{style}.{decimals}f}"
        return text.replace("-", "", 1) if text.startswith("-") and not text.strip("-0.,") else text
    return clean(str(value))


def _choose_time_units(frame: pl.DataFrame, columns: Sequence[Column]) -> dict[str, str]:
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
        finer = {"s": "ms", "ms": "us", "us": "ns"}.get(unit, unit)
        if min(means, default=largest) < 0.01 * TIME_UNITS[unit] and _fits(largest, finer):
            unit = finer
        for name, values in times.items():
            is_seen = not 0 < _largest(values) < 0.001 * TIME_UNITS[unit]
            units[name] = unit if is_seen else _choose_time_unit(_largest(values))
    return units


def _choose_time_unit(time_ns: float) -> str:
    """Choose the unit of a time.

    It is seconds if milliseconds would have seven digits, milliseconds from 1 ms, and so on.

    >>> [_choose_time_unit(time) for time in (999, 1_000, 1e6, 999_999e6, 999_999_950_001, 1e12)]
    ['ns', 'us', 'ms', 'ms', 's', 's']
    """
    if not _fits(time_ns, "ms"):
        return "s"
    return next((unit for unit in ("ms", "us") if time_ns >= TIME_UNITS[unit]), "ns")


def _fits(time_ns: float, unit: str) -> bool:
    """Return whether a time has at most six digits before the point, rounded as it is shown."""
    return round(time_ns / TIME_UNITS[unit], 1) < _MOST_DIGITS


def _least(values: pl.Series) -> float:
    """Return the smallest magnitude that is not zero; infinity if all are zero."""
    sizes = values.cast(pl.Float64).abs()
    least = sizes.filter(sizes > 0).min()
    return least if isinstance(least, float) else math.inf


def _largest(values: pl.Series) -> float:
    largest = values.cast(pl.Float64).abs().max()
    return float(largest) if isinstance(largest, float) and math.isfinite(largest) else 0.0


_SAME = {
    "avg": "mean",
    "average": "mean",
    "minimum": "min",
    "maximum": "max",
    "calls": "count",
    "ratio": "fraction",
}


_SUMMED = ("count", "bytes", "fraction")  # words that name the first column of such values


def find_groups(frame: pl.DataFrame, table: AnyTable) -> tuple[str, ...]:
    """Return the leading group columns of a frame; the last column is never one."""
    groups = {name for name, column in describe_columns(table).items() if column.is_group}
    return tuple(takewhile(groups.__contains__, frame.columns[:-1]))


def find_sort_column(columns: Iterable[str], word: str) -> str | None:
    """Find a column by its name, with or without unit, or by Paddle's name for it.

    If a table has columns of the CPU and of the GPU, "total" is that of the GPU.

    >>> columns = ("host_total_ns", "gpu_total_ns", "gpu_mean_ns", "call_count", "name")
    >>> [find_sort_column(columns, word) for word in ("total", "CPUTotal", "GPUAvg", "count", "bytes")]
    ['gpu_total_ns', 'host_total_ns', 'gpu_mean_ns', 'call_count', None]
    >>> [find_sort_column(["total_ns", "gpu_total_ns"], word) for word in ("total", "CPUTotal", "GPUTotal")]
    ['total_ns', 'total_ns', 'gpu_total_ns']
    """
    columns = list(columns)
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=U)(?=[A-Z][a-z])", "_", word.strip()).lower().split("_")
    words = [
        _SAME.get(part, part)
        for part in [{"cpu": "host", "device": "gpu"}.get(words[0], words[0]), *words[1:]]
    ]
    asked = "_".join(words)
    if asked == "name":
        return next(reversed(columns), None)  # a table that could not be built has no columns
    stems = {split_unit(name)[0]: name for name in reversed(columns)}
    stem = split_unit(asked)[0]
    wanted = [stem, f"gpu_{stem}", f"host_{stem}"]
    # a table of one side has no side in its names; one of two may name that of the GPU alone
    sides = {"gpu": ("gpu_", "host_"), "host": ("host_",)}.get(words[0])
    if sides and not any(name.startswith(sides) for name in columns):
        wanted.append(stem.partition("_")[2])
    named = (name for name in columns if name == word)
    of_stem = (stems[name] for name in wanted if name in stems)
    of_unit = (name for name in columns if asked in _SUMMED and name.endswith(f"_{asked}"))
    return next(chain(named, of_stem, of_unit), None)


def sort_rows(frame: pl.DataFrame, column: str, table: AnyTable) -> pl.DataFrame:
    """Sort rows within their groups: names and minima ascend, as in Paddle's tables, other columns descend.

    Rows that are part of another row remain below it, and are sorted among themselves. Nulls come last.

    Args:
        frame: Rows of the table.
        column: Column to sort by.
        table: The table.
    """
    is_ascending = column == frame.columns[-1] or "min" in split_unit(column)[0].split("_")
    values = frame[column] if frame[column].dtype.is_numeric() else frame[column].cast(pl.String)
    keys, descending = {"group": _number_groups(frame, find_groups(frame, table))}, [False]
    depths = _depths(frame, table)
    for depth in depths.unique().sort():
        # the row of this depth that a row belongs to; none for rows above it
        row = pl.when(depths == depth).then(pl.int_range(len(frame))).when(depths < depth).then(-1)
        head = pl.select(row.forward_fill()).to_series().fill_null(-1)
        is_part = head >= 0
        value = pl.select(pl.when(is_part).then(values.gather(head.clip(0)))).to_series()
        keys |= {f"is_part{depth}": is_part, f"value{depth}": value, f"head{depth}": head}
        descending += [False, not is_ascending, False]
    order = pl.DataFrame(keys).select(pl.arg_sort_by(list(keys), descending=descending, nulls_last=True))
    return frame[order.to_series()]


def mark_first_rows(frame: pl.DataFrame, table: AnyTable, *, limit: int) -> pl.Series:
    """Return the mask of the first rows of each group, and the first parts of each of these rows.

    A third as many parts are kept, or more if a group has only one or two rows that are not parts. If no
    group has more than one row, the table is treated as one list.

    Args:
        frame: Rows of the table, sorted.
        table: The table.
        limit: Most rows of each group; 0: all.
    """
    if limit == 0 or table.is_fixed:
        return pl.repeat(True, len(frame), eager=True)
    limit = min(limit, len(frame))  # polars has no larger numbers than 128 bits
    depths = _depths(frame, table)
    counted = pl.DataFrame(
        {"is_whole": depths == 0, "group": _number_groups(frame, _settle(frame, table)[0])}
    ).select(
        is_first=pl.col("is_whole").cum_sum().over("group") <= limit,
        most_parts=limit // pl.col("is_whole").sum().over("group").clip(1, 3),
    )
    is_first, most_parts = counted["is_first"], counted["most_parts"].clip(1)
    for depth in depths.filter(depths > 0).unique().sort():
        above = pl.select(pl.when(depths < depth).then(pl.int_range(len(frame))).forward_fill()).to_series()
        counted = pl.DataFrame({"is_part": depths == depth, "above": above})
        position = counted.select(pl.col("is_part").cum_sum().over("above")).to_series()
        is_near = is_first.gather(above.fill_null(0)) & (position <= most_parts)
        is_first = pl.select(pl.when(depths == depth).then(is_near).otherwise(is_first)).to_series()
    return is_first


def arrange_rows(frame: pl.DataFrame, table: AnyTable, *, limit: int) -> pl.DataFrame:
    """Keep the rows of `mark_first_rows`, and add rows that count hidden rows, and totals of all rows.

    They are named in the last column; if it is not text, none are added.

    Args:
        frame: Rows of the table, sorted; some of its columns.
        table: The table.
        limit: Most rows of each group; 0: all.

    Returns:
        The rows, with _group (its number) and _kind ("row", "rest" of hidden rows, or "total"); the last
        two kinds are behind the rows of each group.
    """
    name = frame.columns[-1]
    groups, totals = _settle(frame, table)
    is_whole = _depths(frame, table) == 0
    rows = frame.with_columns(
        _number_groups(frame, groups).alias("_group"),
        _is_whole=is_whole,
        _block=is_whole.cum_sum().cast(pl.Int64),
        _is_shown=mark_first_rows(frame, table, limit=limit),
        _kind=pl.lit("row"),
    )
    hidden = rows.filter(~pl.col("_is_shown"))
    shown = rows.filter("_is_shown").select("_group", "_block", "_kind", *frame.columns)
    if frame.schema[name] == pl.String:
        shown = pl.concat(
            [shown, *_add_sums(rows, hidden, name=name, groups=groups, totals=totals)], how="diagonal_relaxed"
        ).sort("_group", "_block", nulls_last=True, maintain_order=True)
    return shown.select("_group", "_kind", *frame.columns)


def _add_sums(
    rows: pl.DataFrame, hidden: pl.DataFrame, *, name: str, groups: tuple[str, ...], totals: tuple[str, ...]
) -> list[pl.DataFrame]:
    """Build the rows that count hidden parts and hidden rows, and the totals of groups."""
    shown_blocks = rows.filter("_is_whole", "_is_shown")["_block"]
    parts = hidden.filter(pl.col("_block").is_in(shown_blocks.implode())).group_by("_group", "_block").len()
    total = _add_up(rows, groups, totals)
    rest = _add_up(hidden, groups, totals).join(total, on="_group", suffix="_of_all")
    text = _count_rows(rest, "more row")
    if totals and not any(split_unit(column)[1] == "fraction" for column in totals):
        percent = (100 * pl.col(totals[0]) / pl.col(f"{totals[0]}_of_all")).round(1)
        with_share = pl.format("{}, {} %", text, percent)
        text = rest.select(pl.when(percent.is_finite()).then(with_share).otherwise(text)).to_series()
    keep = ["_group", *groups, *totals]
    part_text = ("  " + _count_rows(parts, "more part")).alias(name)
    has_total = pl.lit(bool(totals)) & (pl.col("len") > 1)
    return [
        parts.select("_group", "_block", part_text, _kind=pl.lit("rest")),
        rest.select(*keep, text.alias(name), _kind=pl.lit("rest")),
        total.filter(has_total).select(*keep, pl.lit("total").alias(name), _kind=pl.lit("total")),
    ]


def _settle(frame: pl.DataFrame, table: AnyTable) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of groups and of totals.

    If each group has one row, there are no groups and no totals of shares.
    """
    groups = find_groups(frame, table)
    totals = tuple(column for column in table.totals if column in frame.columns)
    if not groups or _number_groups(frame, groups).n_unique() < len(frame):
        return groups, totals
    return (), tuple(column for column in totals if split_unit(column)[1] != "fraction")


def _add_up(rows: pl.DataFrame, groups: tuple[str, ...], totals: tuple[str, ...]) -> pl.DataFrame:
    """Add up the rows of each group without parts of rows; a sum of only nulls is null."""
    return (
        rows.filter("_is_whole")
        .group_by("_group", maintain_order=True)
        .agg(
            *(pl.col(column).first() for column in groups),
            *(pl.when(pl.col(column).count() > 0).then(pl.col(column).sum()) for column in totals),
            pl.len(),
        )
    )


def _count_rows(counted: pl.DataFrame, noun: str) -> pl.Series:
    texts = [f"… {count:,} {noun}{'s' * (count > 1)}" for count in counted["len"].to_list()]
    return pl.Series(texts, dtype=pl.String)


def _number_groups(frame: pl.DataFrame, groups: tuple[str, ...]) -> pl.Series:
    if not groups:
        return pl.repeat(0, len(frame), dtype=pl.Int64, eager=True)
    return frame.select(pl.struct(groups).rle_id().cast(pl.Int64)).to_series()


def _depths(frame: pl.DataFrame, table: AnyTable) -> pl.Series:
    """Return the number of leading blanks of each name; 0 in tables that are not nested."""
    if not table.is_nested:
        return pl.repeat(0, len(frame), dtype=pl.Int64, eager=True)
    name = pl.col(frame.columns[-1]).cast(pl.String).fill_null("")
    bare = name.str.strip_chars_start(" ")
    return frame.select(name.str.len_chars().cast(pl.Int64) - bare.str.len_chars()).to_series()


_LEAST = 12  # characters; a shorter beginning is no burden

_ENDS = "/_-. "  # of words; numbers and words are not cut


def cut_shared_starts(columns: Sequence[TextColumn]) -> tuple[list[TextColumn], list[str]]:
    """Cut the beginning that all labels of a column of reports share, and note it."""
    cut, notes = [], []
    for column in columns:
        start = find_shared_start(column.texts) if column.column.is_file else ""
        if start:
            shown = tuple(f"…{text.removeprefix(start)}" for text in column.texts)
            notes.append(f"…: `{start}`, with which the name of each report begins")
            column = replace(column, texts=shown)
        cut.append(column)
    return cut, notes


def find_shared_start(texts: Sequence[str]) -> str:
    """Find the beginning of several texts that is long enough to be cut, up to the end of a word.

    It is "" otherwise.

    >>> find_shared_start(["profile_of_training_rank10", "profile_of_training_rank11"])
    'profile_of_training_'
    >>> find_shared_start(["rank10", "rank11"]), find_shared_start(["profile_of_training_0"])
    ('', '')
    """
    if len(set(texts)) < 2:
        return ""
    first, last = min(texts), max(texts)  # in order, all others are between these
    length = next(
        (at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first)
    )
    shared = first[:length]
    end = max(shared.rfind(letter) for letter in _ENDS) + 1
    return shared[:end] if end >= _LEAST else ""


class ShownTable(Struct, frozen=True, kw_only=True):
    """A table as text.

    Attributes:
        columns: Its columns; () without rows to show.
        kinds: Kind of each row: "row", "rest" (of hidden rows) or "total".
        groups: Number of the group of each row.
        group_count: Leading columns that a group shows once.
        lines: Lines in place of rows.
        notes: Lines below the table.
        caption: Computation of its numbers; "" without any rows.
        hidden_count: Rows that the limit hides.
    """

    columns: tuple[TextColumn, ...] = ()
    kinds: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    group_count: int = 0
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    caption: str = ""
    hidden_count: int = 0


class Content(Struct, frozen=True, kw_only=True):
    """Tables to be written, and their rows and units.

    Attributes:
        tables: Tables with their rows, in order.
        limit: Most rows of each group, and a third as many parts of each; 0: all.
        sort: Column that sorts the rows, where a table has it; see `find_sort_column`.
        unit: Unit of all times. None: nanoseconds in data formats, chosen by the values in text formats.
        document: Keys of the JSON document before its tables.
        is_wide: A terminal shows long names in full, in several lines.
        others: Names of tables that a terminal says are shown on request.
    """

    tables: Sequence[FilledTable]
    limit: int = 0
    sort: str | None = None
    unit: str | None = None
    document: Mapping[str, Any] = MappingProxyType({})
    is_wide: bool = False
    others: Sequence[str] = ()


def arrange_tables(content: Content, *, is_whole: bool = False) -> list[ShownTable]:
    """Arrange each table for a text format; see `arrange_table`."""
    return [
        arrange_table(filled, limit=content.limit, sort=content.sort, unit=content.unit, is_whole=is_whole)
        for filled in content.tables
    ]


def arrange_table(
    filled: FilledTable,
    *,
    limit: int = 0,
    sort: str | None = None,
    unit: str | None = None,
    is_whole: bool = False,
) -> ShownTable:
    """Arrange a table for a text format; columns with only nulls are left out, but never all columns.

    Args:
        filled: The table.
        limit: Most rows of each group, and a third as many parts of each; 0: all. Totals are of all rows.
        sort: Column that sorts the rows, if the table has it; see `find_sort_column`.
        unit: Unit of all times; chosen by the values if None.
        is_whole: Include the rows that the view hides.
    """
    table, frame = filled.table, sort_table(filled, sort)
    if frame.is_empty():
        return ShownTable(notes=(clean(str(filled.why_empty)),))
    view = table.view or View(columns=tuple(frame.columns))
    if view.lines is not None:
        return ShownTable(lines=(*map(clean, view.lines(frame)),), caption=clean(table.caption))
    notes, derived = view.notes(frame), view.derive(frame)
    rows = derived if is_whole else derived.filter(view.only)
    if len(rows) < len(frame):
        share = f"{len(frame) - len(rows):,} of {len(frame):,}" if len(rows) else f"all {len(frame):,}"
        notes.insert(0, view.hidden.format(share))
    by_name = describe_columns(table)
    named = [by_name.get(one) if isinstance(one, str) else one for one in view.columns]
    columns = _choose_columns(rows, [one for one in named if one is not None and one.name in rows.columns])
    caption = "; ".join([table.caption, *(column.note for column in columns if column.note)])
    if rows.is_empty():
        return ShownTable(notes=(*map(clean, notes),), caption=clean(caption))
    texts_of_kinds = [  # underscores of our own enumerations are blanks
        pl.selectors.boolean().replace_strict({True: "yes", False: "no"}, return_dtype=pl.String),
        pl.selectors.enum().cast(pl.String).str.replace_all("_", " "),
        pl.selectors.categorical().cast(pl.String),
    ]
    spelled = rows.select(column.name for column in columns).with_columns(texts_of_kinds)
    shown = arrange_rows(spelled, table, limit=limit)
    kinds = tuple(shown["_kind"])
    hidden_count = len(spelled) - kinds.count("row")
    if hidden_count and {*kinds} <= {"row"}:
        notes.append(f"{hidden_count:,} more row{'s' * (hidden_count > 1)}")
    texts = format_columns(shown, columns, unit=unit, is_blank=[kind != "row" for kind in kinds])
    texts, cut = cut_shared_starts(texts)
    notes += cut
    return ShownTable(
        columns=tuple(texts),
        kinds=kinds,
        groups=tuple(shown["_group"]),
        group_count=len(_settle(spelled, table)[0]),
        notes=(*map(clean, notes),),
        caption=clean(caption),
        hidden_count=hidden_count,
    )


def sort_table(filled: FilledTable, sort: str | None) -> pl.DataFrame:
    """Return the rows of a table, sorted by a column if the table has it."""
    frame = filled.frame
    column = None if sort is None else find_sort_column(frame.columns, sort)
    return frame if column is None else sort_rows(frame, column, filled.table)


def _choose_columns(rows: pl.DataFrame, columns: list[Column]) -> list[Column]:
    """Drop columns with only nulls, and optional ones with a single value; group columns are kept."""
    groups = [*takewhile(lambda column: column.is_group, columns)]

    def is_shown(column: Column) -> bool:
        values = rows[column.name]
        is_empty = values.null_count() == len(values) and not (column in groups or column.null_text)
        return not (is_empty or (column.is_optional and values.n_unique() < 2))

    return [*filter(is_shown, columns)] or columns
