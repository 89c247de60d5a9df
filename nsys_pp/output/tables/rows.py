"""Rows of a table to be shown: sorted, limited to the first of each group, with totals of all rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile

import polars as pl
from msgspec import Struct

from nsys_pp.frames.table import AnyTable, describe_columns, split_unit

_SAME = {
    "avg": "mean",
    "average": "mean",
    "minimum": "min",
    "maximum": "max",
    "calls": "count",
    "ratio": "fraction",
}
_SIDES = {"cpu": "host", "device": "gpu"}


class ShownRows(Struct, frozen=True, kw_only=True):
    """Rows to be shown.

    Attributes:
        frame: The rows; behind those of each group, rows that count hidden rows, and totals.
        kinds: Kind of each row: "row", "rest" or "total".
        groups: Number of the group of each row.
        group_columns: Leading columns that a group shows once; () if each row is a group.
        hidden_count: Number of rows that are not shown, parts included.
    """

    frame: pl.DataFrame
    kinds: list[str]
    groups: list[int]
    group_columns: tuple[str, ...]
    hidden_count: int


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
    """
    columns = list(columns)
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=U)(?=[A-Z][a-z])", "_", word.strip()).lower().split("_")
    words = [_SAME.get(part, part) for part in [_SIDES.get(words[0], words[0]), *words[1:]]]
    asked = "_".join(words)
    if asked == "name":
        return columns[-1] if columns else None
    stems = {split_unit(name)[0]: name for name in reversed(columns)}
    stem = split_unit(asked)[0]
    wanted = [stem, f"gpu_{stem}", f"host_{stem}"]
    if words[0] in ("gpu", "host") and not any(name.startswith(("gpu_", "host_")) for name in columns):
        wanted.append(stem.partition("_")[2])  # a table of one side has no side in its names
    if word in columns:
        return word
    if column := next((stems[name] for name in wanted if name in stems), None):
        return column
    of_unit = (
        name for name in columns if asked in ("count", "bytes", "fraction") and name.endswith(f"_{asked}")
    )
    return next(of_unit, None)


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


def limit_rows(frame: pl.DataFrame, table: AnyTable, *, limit: int) -> pl.DataFrame:
    """Keep the first rows of each group, and the first parts of each of these rows.

    A third as many parts are kept, or more if a group has only one or two rows that are not parts. If no group has more
    than one row, the table is treated as one list.

    Args:
        frame: Rows of the table, sorted.
        table: The table.
        limit: Most rows of each group; 0: all.
    """
    return frame.filter(_is_first(frame, table, limit))


def arrange_rows(frame: pl.DataFrame, table: AnyTable, *, limit: int) -> ShownRows:
    """Keep the same rows as `limit_rows`, and add rows that count hidden rows, and totals of all rows.

    They are named in the last column; if it is not text, none are added.

    Args:
        frame: Rows of the table, sorted; some of its columns.
        table: The table.
        limit: Most rows of each group; 0: all.
    """
    name = frame.columns[-1]
    groups, totals = _settle(frame, table)
    is_whole = _depths(frame, table) == 0
    is_shown = _is_first(frame, table, limit)
    rows = frame.with_columns(
        _number_groups(frame, groups).alias("_group"),
        _is_whole=is_whole,
        _block=is_whole.cum_sum().cast(pl.Int64),
        _is_shown=is_shown,
        _kind=pl.lit("row"),
    )
    hidden = rows.filter(~pl.col("_is_shown"))
    shown = rows.filter("_is_shown").select("_group", "_block", "_kind", *frame.columns)
    if frame.schema[name] == pl.String:
        added = _add_sums(rows, hidden, name=name, groups=groups, totals=totals)
        shown = pl.concat([shown, *added], how="diagonal_relaxed").sort(
            "_group", "_block", nulls_last=True, maintain_order=True
        )
    return ShownRows(
        frame=shown.select(frame.columns),
        kinds=shown["_kind"].to_list(),
        groups=shown["_group"].to_list(),
        group_columns=groups,
        hidden_count=len(hidden),
    )


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
    """Return the columns of groups and of totals; if each group has one row, no groups and no totals of shares."""
    groups = find_groups(frame, table)
    totals = tuple(column for column in table.totals if column in frame.columns)
    if not groups or _number_groups(frame, groups).n_unique() < len(frame):
        return groups, totals
    return (), tuple(column for column in totals if split_unit(column)[1] != "fraction")


def _is_first(frame: pl.DataFrame, table: AnyTable, limit: int) -> pl.Series:
    """Return the mask of rows that are shown."""
    if limit == 0 or table.is_fixed:
        return pl.repeat(True, len(frame), eager=True)
    depths = _depths(frame, table)
    group = _number_groups(frame, _settle(frame, table)[0])
    counted = pl.DataFrame({"is_whole": depths == 0, "group": group}).select(
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
    """Return a text for each number of rows: "… 1,234 more rows"."""
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
