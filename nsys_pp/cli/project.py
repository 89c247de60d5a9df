"""`nsys-pp project`: GPU intervals of all ranges, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import nsys_pp
from nsys_pp.cli.command import STANDARD_OUTPUT, command, end_with, run_with_progress
from nsys_pp.cli.log import log, log_output
from nsys_pp.cli.tables import TABLE_FORMATS, output_tables
from nsys_pp.output.tables import FORMATS, SUFFIXES
from nsys_pp.units import format_count

if TYPE_CHECKING:
    import polars as pl


@command(
    output={"default": STANDARD_OUTPUT, "default_text": "standard output"},
    format=TABLE_FORMATS,
    limit={"default": 40, "default_text": "40 in tables; all rows in other formats"},
    ops={"default": "kernel"},
    scope={"default": "auto"},
)
def project(
    reports: tuple[str, ...], output: Path, format: str | None, limit: int, force: bool, **options: Any
) -> None:
    """Project NVTX ranges onto the GPU operations they launch.

    The GPU interval of a range lasts from the first start to the last end of its operations. `-o`
    writes a .parquet, .csv, .json, .md or .sqlite file.

    \b
    Example:
      nsys-pp project report.sqlite -o ranges.parquet
    """
    from nsys_pp.commands.project import define_projection_table
    from nsys_pp.frames.table import FilledTable
    from nsys_pp.output.files import check_output
    from nsys_pp.output.tables.formats import format_table, write_table
    from nsys_pp.run.batch import list_existing_inputs
    from nsys_pp.run.options import parse_counted_ops

    format = _choose_format(output, format)
    if output != STANDARD_OUTPUT:
        check_output(output, force=force, inputs=list_existing_inputs(reports, with_parts=False))
    result = run_with_progress(nsys_pp.project, reports, **options)
    table = define_projection_table(parse_counted_ops(options["ops"]), options["scope"])
    filled = FilledTable(table=table, frame=result.ranges)
    if output != STANDARD_OUTPUT:
        write_table(filled, output, format=format, force=force)
        if sentence := _describe_unprojected(result.row_counts):
            log(sentence, event="rows")
        log_output(f"Wrote {output}: {format_count(len(result.ranges), 'row')}", output)
    elif format == "table":
        output_tables([filled], output=output, format=format, limit=limit)
    else:
        click.echo(format_table(filled, format=format), nl=False)
    end_with(result)


def _choose_format(output: Path, format: str | None) -> str:
    """Return the format of an output; refuse formats that contradict it."""
    if output == STANDARD_OUTPUT:
        format = format or "table"
        if format != "table" and FORMATS[format].text is None:
            raise click.UsageError(f"{format} cannot be printed; choose a file with `-o`")
        return format
    if format == "table":
        raise click.UsageError("a table is printed; omit `-o`, or choose another `--format`")
    format = format or SUFFIXES.get(output.suffix)
    if format is None:
        raise click.UsageError(
            f"unknown extension of `{output}`; expected {', '.join(SUFFIXES)}, or choose a `--format`"
        )
    return format


def _describe_unprojected(row_counts: pl.DataFrame) -> str:
    """Format the number of ranges without a projection in all reports, by reason; "" if there are none."""
    ranges = row_counts.filter(stage="projection", table="ranges")
    reasons = ranges.drop_nulls("reason").group_by("reason", maintain_order=True).agg(count="row_count")
    left_out = [f"{sum(counts):,} {reason}" for reason, counts in reasons.rows()]
    return f"Of {ranges['row_count'].sum():,} ranges, {' and '.join(left_out)}" if left_out else ""
