"""What tables share: rows split by rank, machine, stage or step, put in order, and spread over ranks."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.arrays.natural_sort import natural_key
from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.conform import conform
from nsys_pp.tables.summary.table import (
    COLUMNS_OF_GROUP,
    GROUP_COLUMNS,
    RANK_COLUMNS,
    Columns,
    TableOptions,
    schema_of,
)

_GROUP, _VALUE, _PLACE = "_group", "_value", "place"


def add_groups(frame: pl.DataFrame, summary: Summary, options: TableOptions) -> pl.DataFrame:
    """Add the columns that the table is split by to a frame of sums, which has `place` and `step`."""
    named = summary.places.select(_PLACE, "machine", "stage", "gpu", rank="label")
    columns = [column for column in COLUMNS_OF_GROUP[options.by] if column != "step"]
    return frame.join(named.select(_PLACE, *columns), on=_PLACE, how="left", maintain_order="left")


def groups_of_places(options: TableOptions) -> tuple[str, ...]:
    """Return the columns that a table of GPU processes is split by: by rank it is so anyway."""
    return () if options.by == "rank" else COLUMNS_OF_GROUP[options.by]


def spread_hosts(summary: Summary) -> pl.DataFrame:
    """Return `HOST_TIMES` at every place of a process, not at the first alone: to set against its GPUs."""
    places = summary.places.select("place", "report", "process_key")
    same_process = places.join(places, on=["report", "process_key"], nulls_equal=True, suffix="_of")
    return (
        summary.frames["host_times"]
        .join(same_process.select("place", "place_of"), on="place")
        .with_columns(place="place_of")
        .drop("place_of")
    )


def share(part: str | pl.Expr, whole: str | pl.Expr) -> pl.Expr:
    """Return what fraction one is of the other; null of nothing."""
    part, whole = (pl.col(of) if isinstance(of, str) else of for of in (part, whole))
    return pl.when(whole > 0).then(part / whole)


def over(value: pl.Expr, columns: Sequence[str]) -> pl.Expr:
    """Aggregate a value over the rows that agree in the columns; over all where there are no columns."""
    return value.over(columns) if columns else value


def sum_by(frame: pl.DataFrame, columns: Sequence[str], **sums: pl.Expr) -> pl.DataFrame:
    """Aggregate the rows that agree in the columns, nulls among them; of no rows, none."""
    by = [pl.col(column) for column in columns] or [pl.lit(0).alias(_GROUP)]
    return frame.group_by(by, maintain_order=True).agg(**sums).select(*columns, *sums)


def join_by(left: pl.DataFrame, right: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Join what is known of a group, one row, to rows of it; nulls where nothing is known."""
    on = list(columns)
    if on:
        return left.join(right, on=on, how="left", nulls_equal=True, maintain_order="left")
    if right.is_empty():
        return left.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in right.schema.items())
    return left.join(right, how="cross")


def add_ranks(
    table: pl.DataFrame,
    frame: pl.DataFrame,
    summary: Summary,
    *,
    groups: Sequence[str],
    keys: Sequence[str],
    value: str,
) -> pl.DataFrame:
    """Add `RANK_COLUMNS`, where some group has more than one rank.

    A rank of a group is a place that has any row of it; where it lacks one that others have, its total is 0.
    Processes that used no GPU are no ranks, unless there are no others.

    Args:
        table: Has `groups` and `keys`.
        frame: The sums that it was made of: `place`, `groups` and `keys`.
        summary: Whose `places` they are.
        groups: Columns that the table is split by.
        keys: Columns that tell rows of a group apart.
        value: Column of the frame that is added up.
    """
    ranks = summary.places.filter(pl.col("gpu").is_not_null()).select(_PLACE)
    if len(ranks):
        frame = frame.join(ranks, on=_PLACE, how="semi", maintain_order="left")
    counts = sum_by(frame, groups, rank_count=pl.col(_PLACE).n_unique())
    if frame.is_empty() or counts["rank_count"].max() == 1:
        return table
    totals = (
        frame.group_by(*groups, *keys, _PLACE)
        .agg(pl.col(value).sum().alias(_VALUE))
        .join(summary.places.select(_PLACE, "label"), on=_PLACE, how="left")
    )
    # Zeros of ranks without the row come first among the sorted totals.
    rank_count = pl.col("rank_count").cast(pl.Int64)
    zero_count = rank_count - pl.col("totals").list.len()

    def at(index: pl.Expr) -> pl.Expr:
        found = pl.col("totals").list.get(index - zero_count, null_on_oob=True)
        return pl.when(index < zero_count).then(0).otherwise(found)

    spread = sum_by(
        totals.sort(_VALUE, _PLACE, descending=[False, True]),
        [*groups, *keys],
        totals=pl.col(_VALUE),
        slowest_rank=pl.col("label").last(),
    )
    described = join_by(spread, counts, groups).select(
        *groups,
        *keys,
        rank_min_ns=at(pl.lit(0)),
        rank_median_ns=(at((rank_count - 1) // 2) + at(rank_count // 2)) / 2,
        rank_max_ns=pl.col("totals").list.last(),
        slowest_rank=pl.when(pl.col("totals").list.last() > 0).then("slowest_rank"),
    )
    return join_by(table, described, [*groups, *keys])


def finish(
    table: pl.DataFrame,
    columns: Columns,
    *,
    groups: Sequence[str],
    sort: str | None = None,
    before: Sequence[str] = (),
) -> pl.DataFrame:
    """Put columns and rows in order: groups in natural order, the largest first in each.

    Args:
        table: Has at least the columns that it is split by, and `columns`.
        columns: Of the table; its `RANK_COLUMNS` go before the last one.
        groups: Columns that it is split by.
        sort: Column that rows are sorted by within their group, downwards, then by name; None: as they are.
        before: Columns that rows are sorted by before that, upwards.
    """
    ranks = {name: column for name, column in RANK_COLUMNS.items() if name in table.columns}
    *others, name = columns
    ordered: Columns = {
        **{group: GROUP_COLUMNS[group] for group in groups},
        **{column: columns[column] for column in others},
        **ranks,
        name: columns[name],
    }
    by_size = [] if sort is None else [pl.col(sort), pl.col(name).cast(pl.String)]
    falls = [False] * (1 + len(before)) + [True, False][: len(by_size)]
    rows = number_groups(table, groups).sort(
        _GROUP, *before, *by_size, descending=falls, nulls_last=True, maintain_order=True
    )
    return conform(rows, schema_of(ordered))


def number_groups(table: pl.DataFrame, groups: Sequence[str]) -> pl.DataFrame:
    """Add `_group`: the number of the row's group, in natural order, what has no name last."""
    if not groups:
        return table.with_columns(pl.lit(0).alias(_GROUP))
    found = table.select(groups).unique()

    def key(row: tuple[object, ...]) -> list[tuple[bool, object]]:
        return [
            (value is None, natural_key(value) if isinstance(value, str) else value or 0) for value in row
        ]

    rows = sorted(found.rows(), key=key)
    order = pl.DataFrame(rows, schema=found.schema, orient="row").with_row_index(_GROUP)
    return table.join(order, on=list(groups), how="left", nulls_equal=True, maintain_order="left")
