"""`nsys-pp summary`: tables of operators, kernels, copies, communication and idle time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nsys_pp
from nsys_pp.cli.command import STANDARD_OUTPUT, command, end_with, parse_table_names, run_with_progress
from nsys_pp.cli.log import log_notes, log_skipped, record_verdict
from nsys_pp.cli.tables import TABLE_FORMATS, check_outputs, check_sort, output_tables, settle_format
from nsys_pp.errors import MissingDataError
from nsys_pp.tables.registry import PADDLE_LAYOUTS, PADDLE_TABLES, VERDICT
from nsys_pp.tables.registry import SUMMARY_TABLES as TABLES
from nsys_pp.tables.registry import TABLES as TRAINING_TABLES

_SHOWN = (
    *("overview", "device", "model", "distribution", "operators", "families", "kernels"),
    *("copies", "communication", "idle", "launches", "memory"),
)
_TEXT_LIMIT = 15


@command(
    output={"default": STANDARD_OUTPUT, "default_text": "standard output"},
    format=TABLE_FORMATS,
    names={
        **parse_table_names(TABLES),
        "default_text": "on standard output all but ranges, base_kernels, cuda, os and sync; else all",
    },
    limit={"default_text": f"{_TEXT_LIMIT} in tables and Markdown; all rows in other formats"},
)
def summary(
    reports: tuple[str, ...],
    names: tuple[str, ...] | None,
    sort: str | None,
    limit: int | None,
    unit: str | None,
    output: Path,
    format: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Summarise time by operator, kernel, copy, and idle cause.

    The first lines are the findings of `nsys-pp pipeline`. Reports of many ranks are added up, or grouped
    with `--by`. Parts (`nsys-pp extract`) are read without their events. `-o` writes a .json, .md or .sqlite
    file with all tables, a .csv or .parquet file with one table, or a folder with a file per table.

    \b
    Examples:
      nsys-pp summary report.sqlite
      nsys-pp summary node*/report*.sqlite --table kernels --by rank -o kernels.csv
    """
    from nsys_pp.frames.table import fill_tables

    format = settle_format(output, format, names, option="--table")
    is_text = format in ("table", "markdown")
    is_paddle = options["paddle_compat"]
    with_verdict = names is None and not is_paddle
    shown = tuple(PADDLE_LAYOUTS) if is_paddle else _SHOWN
    names = names or (shown if is_text and output == STANDARD_OUTPUT else tuple(TABLES))
    registry = PADDLE_TABLES if is_paddle else TABLES
    tables = {name: registry[name] for name in names}
    check_sort(sort, tables)
    check_outputs(output, format, (*([VERDICT] if with_verdict else []), *names), reports, force=force)
    summarised = run_with_progress(nsys_pp.summarise, reports, tables=names, **options)
    missing = [f"no table {name}: {reason}" for name, reason in summarised.absent.items()]
    if not (summarised.tables or is_text):
        raise MissingDataError(missing[0], "`nsys-pp info` lists what was recorded")
    filled = fill_tables(tables, summarised.tables, summarised.absent)
    if with_verdict:
        filled = [*fill_tables(TRAINING_TABLES, {VERDICT: summarised.verdict_table()}), *filled]
        record_verdict(summarised.verdict)
    log_skipped(summarised.skipped)
    limit = (_TEXT_LIMIT if is_text else 0) if limit is None else limit
    output_tables(filled, output=output, format=format, limit=limit, sort=sort, unit=unit, force=force)
    log_notes([*([] if is_text else missing), *summarised.notes])
    end_with(summarised)
