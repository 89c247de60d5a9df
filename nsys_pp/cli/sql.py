"""`nsys-pp sql`: a query over the frames and tables of a run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

import nsys_pp
from nsys_pp.cli.command import STANDARD_OUTPUT, command, end_with, run_with_progress
from nsys_pp.cli.log import log_skipped
from nsys_pp.cli.tables import TABLE_FORMATS, check_outputs, output_tables, settle_format

if TYPE_CHECKING:
    import polars as pl

    from nsys_pp.frames.table import FilledTable

_LEAST_INSTANT_NS = 10**15  # 11 days: no duration of a capture
_DIGITS, _MOST_DECIMALS = 4, 9


@command(
    output={"default": STANDARD_OUTPUT, "default_text": "standard output"},
    format=TABLE_FORMATS,
    reports={"is_optional": True},
    limit={"default": 40, "default_text": "40 in tables; all rows in other formats"},
)
def sql(
    query: str | None,
    reports: tuple[str, ...],
    explain: bool,
    output: Path,
    format: str | None,
    limit: int,
    force: bool,
    **options: Any,
) -> None:
    """Query the frames and tables of a run in SQL.

    Tables are the jobs, messages and gaps of the run, the projections of its ranges, its clocks, and all
    tables of `pipeline` and (as summary_NAME) of `summary`. `--explain` lists them.

    \b
    Example:
      nsys-pp sql "SELECT kind, sum(compute_ns) FROM jobs GROUP BY kind" node*/report*.sqlite
    """
    if not explain and (query is None or not reports):
        raise click.UsageError("expected a query and reports, or `--explain`")
    format = settle_format(output, format, ["answer"], option="one query")
    check_outputs(
        output, format, ["columns" if explain else "answer"], () if explain else reports, force=force
    )
    limit = limit if output == STANDARD_OUTPUT and format == "table" else 0
    if explain:
        columns = _build_table(_list_columns([*filter(None, [query, *reports])]), name="columns")
        output_tables([columns], output=output, format=format, force=force)
        return
    answer = run_with_progress(nsys_pp.sql, str(query), reports, **options)
    log_skipped(answer.skipped)
    filled = _build_table(answer.table, name="answer")
    output_tables([filled], output=output, format=format, limit=limit, force=force)
    end_with(answer)


def _list_columns(words: list[str]) -> Any:
    """List the columns of the named tables, or of all.

    Names of reports are accepted, as all have the same tables.
    """
    from nsys_pp.commands.sql import list_sql_columns
    from nsys_pp.run.batch import list_existing_inputs

    columns = list_sql_columns()
    tables = [word for word in words if word in columns["table"]]
    for word in words:
        if word not in tables and not list_existing_inputs([word]):
            names = ", ".join(columns["table"].unique(maintain_order=True))
            raise click.UsageError(f"no table {word!r}; expected one of {names}")
    return columns.filter(columns["table"].is_in(tables)) if tables else columns


def _build_table(frame: Any, *, name: str) -> FilledTable:
    """Describe a frame as a table; values of nested types become text."""
    import polars as pl

    from nsys_pp.frames.table import Column, FilledTable, Table

    nested = [column for column, dtype in frame.schema.items() if dtype.is_nested()]
    frame = frame.with_columns(
        pl.Series(column, [json.dumps(value, default=str) for value in frame[column].to_list()], pl.String)
        for column in nested
    )
    columns = tuple(
        Column(values.name, values.dtype, "", heading=values.name, **_choose_digits(values))
        for values in frame.iter_columns()
    )
    table = Table(
        name=name,
        title="",
        columns=columns,
        caption="",
        build=lambda: frame,
        empty="no rows",
        is_fixed=name == "columns",
    )
    return FilledTable(table=table, frame=frame)


def _choose_digits(values: pl.Series) -> dict[str, Any]:
    """Choose the digits of numbers on a terminal.

    Instants have all, computed numbers four of the smallest.
    """
    from nsys_pp.frames.table import split_unit

    if not values.dtype.is_numeric() or values.is_empty():
        return {}
    unit = split_unit(values.name)[1]
    sizes = values.cast(float, strict=False).abs()
    known = sizes.filter(sizes.is_finite() & (sizes > 0)).drop_nulls()
    if unit == "ns" and (known >= _LEAST_INSTANT_NS).any():
        return {"display_unit": "ns", "decimals": 0 if values.dtype.is_integer() else 1}
    if unit or not values.dtype.is_float() or known.is_empty():
        return {}
    digits = _DIGITS - 1 - math.floor(math.log10(cast(float, known.min())))
    return {"decimals": min(max(digits, 1), _MOST_DECIMALS)}
