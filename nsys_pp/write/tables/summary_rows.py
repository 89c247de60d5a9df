"""Rows of a summary as they are shown: in an order, the first of each group, and what all add up to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import polars as pl

from nsys_pp.write.tables.summary_columns import split_unit

_SAME = {
    "avg": "mean",
    "average": "mean",
    "minimum": "min",
    "maximum": "max",
    "calls": "count",
    "ratio": "fraction",
}
_SIDES = {"cpu": "host", "device": "gpu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What rows of a table have to do with each other.

    Attributes:
        groups: Columns by which it is split, and sorted; they come first.
        totals: Columns that may be added up.
        is_nested: Blanks that begin a name, in the last column, are indentation: the row is part of the one above.
        is_fixed: It always has the same few rows, and none of them is left out.
    """

    groups: tuple[str, ...] = ()
    totals: tuple[str, ...] = ()
    is_nested: bool = False
    is_fixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRows:
    """Rows to be shown.

    Attributes:
        frame: The rows, with those for what is left out, and totals, behind each group.
        kinds: Of each row: "row", "rest" or "total".
        groups: Of each row, the number of its group.
        once: Columns whose values are those of the group; () where each row is a group.
    """

    frame: pl.DataFrame
    kinds: list[str]
    groups: list[int]
    once: tuple[str, ...]


def find_sort_column(columns: Iterable[str], word: str) -> str | None:
    """Find the column that a word means: its name with or without a unit, or Paddle's word for it.

    "total" is that of the GPU where a table has two.

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
        wanted.append(stem.partition("_")[2])  # a table of one side need not say which
    if word in columns:
        return word
    if found := next((stems[name] for name in wanted if name in stems), None):
        return found
    of_unit = (
        name for name in columns if asked in ("count", "bytes", "fraction") and name.endswith(f"_{asked}")
    )
    return next(of_unit, None)


def sort_rows(frame: pl.DataFrame, column: str, shape: Shape) -> pl.DataFrame:
    """Sort rows within their groups: the least first by names and minima, as Paddle does, else the largest first.

    Rows that are part of another stay below it, and are sorted among themselves. What is unknown comes last.

    Args:
        frame: A table.
        column: To sort by.
        shape: Of the table.
    """
    is_ascending = column == frame.columns[-1] or "min" in split_unit(column)[0].split("_")
    values = frame[column] if frame[column].dtype.is_numeric() else frame[column].cast(pl.String)
    keys, descending = {"group": _number_groups(frame, shape.groups)}, [False]
    depths = _depths(frame, shape)
    for depth in depths.unique().sort():
        # the row of this depth that a row belongs to; none for rows above it
        place = pl.when(depths == depth).then(pl.int_range(len(frame))).when(depths < depth).then(-1)
        head = pl.select(place.forward_fill()).to_series().fill_null(-1)
        is_part = head >= 0
        value = pl.select(pl.when(is_part).then(values.gather(head.clip(0)))).to_series()
        keys |= {f"is_part{depth}": is_part, f"value{depth}": value, f"head{depth}": head}
        descending += [False, not is_ascending, False]
    order = pl.DataFrame(keys).select(pl.arg_sort_by(list(keys), descending=descending, nulls_last=True))
    return frame[order.to_series()]


def first_rows(frame: pl.DataFrame, shape: Shape, *, top: int) -> pl.DataFrame:
    """Take the first rows of each group, and the first parts of each of them.

    Of parts a third as many are taken, or more where a group has only one or two rows that are no parts. Where
    no group has more than one row, the table is one list: the groups are its names.

    Args:
        frame: A table, sorted.
        shape: Of the table.
        top: Most rows of each group; all if 0.
    """
    return frame.filter(_is_first(frame, shape, top))


def arrange_rows(frame: pl.DataFrame, shape: Shape, *, top: int) -> ShownRows:
    """Take the same rows as `first_rows`, say what is left out, and add up all.

    Args:
        frame: A table, sorted.
        shape: Of the table.
        top: Most rows of each group; all if 0.
    """
    name = frame.columns[-1]
    shape = _settle_shape(frame, shape)
    is_whole = _depths(frame, shape) == 0
    table = frame.with_columns(
        _number_groups(frame, shape.groups).alias("_group"),
        pl.col(name).cast(pl.String),
        _is_whole=is_whole,
        _block=is_whole.cum_sum().cast(pl.Int64),
        _is_shown=_is_first(frame, shape, top),
        _kind=pl.lit("row"),
    )
    hidden = table.filter(~pl.col("_is_shown"))
    of_shown = table.filter(pl.col("_is_whole") & pl.col("_is_shown"))["_block"]
    parts = hidden.filter(pl.col("_block").is_in(of_shown.implode())).group_by("_group", "_block").len()
    total = _add_up(table, shape)
    rest = _add_up(hidden, shape).join(total, on="_group", suffix="_of_all")
    is_share = [split_unit(column)[1] == "fraction" for column in shape.totals]
    says = _count_rows("more row")
    if shape.totals and not any(is_share):
        share = shape.totals[0]
        percent = (100 * pl.col(share) / pl.col(f"{share}_of_all")).round(1)
        says = pl.when(percent.is_finite()).then(pl.format("{}, {} %", says, percent)).otherwise(says)
    keep = ["_group", *shape.groups, *shape.totals]
    rows = pl.concat(
        [
            table.filter("_is_shown").select("_group", "_block", "_kind", *frame.columns),
            parts.select(
                "_group",
                "_block",
                (pl.lit("  ") + _count_rows("more part")).alias(name),
                _kind=pl.lit("rest"),
            ),
            rest.select(*keep, says.alias(name), _kind=pl.lit("rest")),
            total.filter(pl.lit(bool(shape.totals)) & (pl.col("len") > 1)).select(
                *keep, pl.lit("total").alias(name), _kind=pl.lit("total")
            ),
        ],
        how="diagonal_relaxed",
    ).sort("_group", "_block", nulls_last=True, maintain_order=True)
    return ShownRows(
        frame=rows.select(frame.columns),
        kinds=rows["_kind"].to_list(),
        groups=rows["_group"].to_list(),
        once=shape.groups,
    )


def _settle_shape(frame: pl.DataFrame, shape: Shape) -> Shape:
    """Take a table of groups that have a row each as a list; shares of groups are no shares of it."""
    if not shape.groups or _number_groups(frame, shape.groups).n_unique() < len(frame):
        return shape
    totals = tuple(column for column in shape.totals if split_unit(column)[1] != "fraction")
    return replace(shape, groups=(), totals=totals)


def _is_first(frame: pl.DataFrame, shape: Shape, top: int) -> pl.Series:
    """Say which rows are shown."""
    if top == 0 or shape.is_fixed:
        return pl.repeat(True, len(frame), eager=True)
    depths = _depths(frame, shape)
    group = _number_groups(frame, _settle_shape(frame, shape).groups)
    counted = pl.DataFrame({"is_whole": depths == 0, "group": group}).select(
        is_first=pl.col("is_whole").cum_sum().over("group") <= top,
        most_parts=top // pl.col("is_whole").sum().over("group").clip(1, 3),
    )
    is_first, most_parts = counted["is_first"], counted["most_parts"].clip(1)
    for depth in depths.filter(depths > 0).unique().sort():
        above = pl.select(pl.when(depths < depth).then(pl.int_range(len(frame))).forward_fill()).to_series()
        counted = pl.DataFrame({"is_part": depths == depth, "above": above})
        place = counted.select(pl.col("is_part").cum_sum().over("above")).to_series()
        is_near = is_first.gather(above.fill_null(0)) & (place <= most_parts)
        is_first = pl.select(pl.when(depths == depth).then(is_near).otherwise(is_first)).to_series()
    return is_first


def _add_up(table: pl.DataFrame, shape: Shape) -> pl.DataFrame:
    """Add up the rows of each group that are part of no other; the sum of nothing known is unknown."""
    return (
        table.filter("_is_whole")
        .group_by("_group", maintain_order=True)
        .agg(
            *(pl.col(column).first() for column in shape.groups),
            *(pl.when(pl.col(column).count() > 0).then(pl.col(column).sum()) for column in shape.totals),
            pl.len(),
        )
    )


def _count_rows(what: str) -> pl.Expr:
    many = pl.when(pl.col("len") > 1).then(pl.lit("s")).otherwise(pl.lit(""))
    return pl.format("… {} {}{}", "len", pl.lit(what), many)


def _number_groups(frame: pl.DataFrame, groups: tuple[str, ...]) -> pl.Series:
    if not groups:
        return pl.repeat(0, len(frame), dtype=pl.Int64, eager=True)
    return frame.select(pl.struct(groups).rle_id().cast(pl.Int64)).to_series()


def _depths(frame: pl.DataFrame, shape: Shape) -> pl.Series:
    """Count the blanks that begin each name; none where they are just part of it."""
    if not shape.is_nested:
        return pl.repeat(0, len(frame), dtype=pl.Int64, eager=True)
    name = pl.col(frame.columns[-1]).cast(pl.String).fill_null("")
    bare = name.str.strip_chars_start(" ")
    return frame.select(name.str.len_chars().cast(pl.Int64) - bare.str.len_chars()).to_series()
