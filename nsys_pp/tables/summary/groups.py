"""Functions that build tables of a summary: group rows by rank, machine, stage or step, compare ranks, sort."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.arrays.natural_sort import natural_key
from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, build_table_schema
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, GROUP_COLUMNS, RANK_COLUMNS, TableOptions

_GROUP, _VALUE, _NUMBER = "_group", "_value", "process"


def add_groups(frame: pl.DataFrame, summary: Summary, options: TableOptions) -> pl.DataFrame:
    """Add the group columns of a table to a frame of aggregates, with `process` and `step`."""
    named = summary.processes.select(_NUMBER, "machine", "stage", "gpu", rank="label")
    columns = [column for column in COLUMNS_OF_GROUP[options.by] if column != "step"]
    return frame.join(named.select(_NUMBER, *columns), on=_NUMBER, how="left", maintain_order="left")


def process_groups(options: TableOptions) -> tuple[str, ...]:
    """Return the group columns of a table of GPU processes: each rank already has a row, so "rank" adds none."""
    return () if options.by == "rank" else COLUMNS_OF_GROUP[options.by]


def repeat_hosts(summary: Summary) -> pl.DataFrame:
    """Repeat `HOST_TIMES` for every GPU of a process, instead of the first one only, to compare it with its GPUs."""
    processes = summary.processes.select("process", "report", "process_key")
    same_process = processes.join(processes, on=["report", "process_key"], nulls_equal=True, suffix="_of")
    return (
        summary.frames["host_times"]
        .join(same_process.select("process", "process_of"), on="process")
        .with_columns(process="process_of")
        .drop("process_of")
    )


def share(part: str | pl.Expr, whole: str | pl.Expr) -> pl.Expr:
    """Return the share of a part in a whole; null if the whole is 0."""
    part, whole = (pl.col(value) if isinstance(value, str) else value for value in (part, whole))
    return pl.when(whole > 0).then(part / whole)


def over(value: pl.Expr, columns: Sequence[str]) -> pl.Expr:
    """Aggregate a value over the rows with equal columns; over all rows without columns."""
    return value.over(columns) if columns else value


def sum_by(frame: pl.DataFrame, columns: Sequence[str], **sums: pl.Expr) -> pl.DataFrame:
    """Aggregate rows by columns, where nulls are equal; empty in, empty out."""
    by = [pl.col(column) for column in columns] or [pl.lit(0).alias(_GROUP)]
    return frame.group_by(by, maintain_order=True).agg(**sums).select(*columns, *sums)


def join_by(left: pl.DataFrame, right: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Join a single row per group to the rows of that group; nulls for groups without one."""
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
    """Add `RANK_COLUMNS`, if a group has more than one rank.

    The ranks of a group are the GPU processes with any row in it; a rank that lacks a row of its group has the
    total 0 there. Processes without a GPU are not ranks, unless no process has a GPU.

    Args:
        table: Rows with `groups` and `keys`.
        frame: Aggregates that the rows were summed from: `process`, `groups` and `keys`.
        summary: The summary.
        groups: Group columns of the table.
        keys: Columns that identify a row in its group.
        value: Column of the frame that is summed.
    """
    ranks = summary.processes.filter(pl.col("gpu").is_not_null()).select(_NUMBER)
    if len(ranks):
        frame = frame.join(ranks, on=_NUMBER, how="semi", maintain_order="left")
    counts = sum_by(frame, groups, rank_count=pl.col(_NUMBER).n_unique())
    if frame.is_empty() or counts["rank_count"].max() == 1:
        return table
    totals = (
        frame.group_by(*groups, *keys, _NUMBER)
        .agg(pl.col(value).sum().alias(_VALUE))
        .join(summary.processes.select(_NUMBER, "label"), on=_NUMBER, how="left")
    )
    # The zeros of ranks without the row are the first of the sorted totals.
    rank_count = pl.col("rank_count").cast(pl.Int64)
    zero_count = rank_count - pl.col("totals").list.len()

    def at(index: pl.Expr) -> pl.Expr:
        total = pl.col("totals").list.get(index - zero_count, null_on_oob=True)
        return pl.when(index < zero_count).then(0).otherwise(total)

    by_row = sum_by(
        totals.sort(_VALUE, _NUMBER, descending=[False, True]),
        [*groups, *keys],
        totals=pl.col(_VALUE),
        slowest_rank=pl.col("label").last(),
    )
    described = join_by(by_row, counts, groups).select(
        *groups,
        *keys,
        rank_min_ns=at(pl.lit(0)),
        rank_median_ns=(at((rank_count - 1) // 2) + at(rank_count // 2)) / 2,
        rank_max_ns=pl.col("totals").list.last(),
        slowest_rank=pl.when(pl.col("totals").list.last() > 0).then("slowest_rank"),
    )
    return join_by(table, described, [*groups, *keys])


def order_table(
    table: pl.DataFrame,
    columns: Sequence[Column],
    *,
    groups: Sequence[str],
    sort: str | None = None,
    before: Sequence[str] = (),
) -> pl.DataFrame:
    """Sort the rows and columns of a table: groups in natural order, their rows by size.

    Args:
        table: Rows with at least `groups` and `columns`.
        columns: Columns of the table; `RANK_COLUMNS` are inserted before the last one.
        groups: Group columns of the table.
        sort: Column that sorts the rows of a group, descending, then by name; None: their order is kept.
        before: Columns that sort the rows first, ascending.
    """
    *others, name = columns
    ordered = (
        *(column for group in groups for column in GROUP_COLUMNS if column.name == group),
        *(column for column in others if column.name not in groups),
        *(column for column in RANK_COLUMNS if column.name in table.columns),
        name,
    )
    by_size = [] if sort is None else [pl.col(sort), pl.col(name.name).cast(pl.String)]
    descending = [False] * (1 + len(before)) + [True, False][: len(by_size)]
    rows = number_groups(table, groups).sort(
        _GROUP, *before, *by_size, descending=descending, nulls_last=True, maintain_order=True
    )
    return conform(rows, build_table_schema(ordered))


def number_groups(table: pl.DataFrame, groups: Sequence[str]) -> pl.DataFrame:
    """Add `_group`: the number of each row's group, in natural order; groups without a name come last."""
    if not groups:
        return table.with_columns(pl.lit(0).alias(_GROUP))
    named = table.select(groups).unique()

    def key(row: tuple[object, ...]) -> list[tuple[bool, object]]:
        return [
            (value is None, natural_key(value) if isinstance(value, str) else value or 0) for value in row
        ]

    rows = sorted(named.rows(), key=key)
    order = pl.DataFrame(rows, schema=named.schema, orient="row").with_row_index(_GROUP)
    return table.join(order, on=list(groups), how="left", nulls_equal=True, maintain_order="left")
