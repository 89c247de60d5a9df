"""`nsys-pp project`: GPU intervals of all ranges, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.inputs import exit_if_skipped
from nsys_pp.cli.log import log, log_output
from nsys_pp.cli.options.batch import keep_going_option, wait_options, work_options
from nsys_pp.cli.options.inputs import input_options
from nsys_pp.cli.options.output import STANDARD_OUTPUT, force_option, format_option, output_option
from nsys_pp.cli.options.projection import projection_options
from nsys_pp.cli.options.result import result_options
from nsys_pp.cli.options.tables import limit_option
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.sections import PROJECTION, SectionCommand, option
from nsys_pp.output.tables.format_registry import FORMATS, SUFFIXES
from nsys_pp.units import format_count


@click.command(cls=SectionCommand)
@output_option("-", default_text="standard output")
@format_option(
    ["table", "markdown", "csv", "json", "parquet", "sqlite"],
    default_text="inferred from the file extension; table on standard output",
)
@force_option
@input_options
@limit_option(40, default_text="40 in tables; all rows in other formats")
@projection_options
@option(
    "--per-stream", section=PROJECTION, is_flag=True, help="One row per stream instead of one per device."
)
@work_options
@wait_options
@keep_going_option
@result_options
@click.pass_context
def project(
    ctx: click.Context,
    /,
    reports: tuple[str, ...],
    output: Path,
    format: str | None,
    limit: int,
    force: bool,
    **options: Any,
) -> None:
    """Project NVTX ranges onto the GPU operations they launch.

    The GPU interval of a range lasts from the first start to the last end of its operations. `-o`
    writes a .parquet, .csv, .json, .md or .sqlite file.

    \b
    Example:
      nsys-pp project report.sqlite -o ranges.parquet
    """
    from nsys_pp.cli.row_counts import describe_unprojected
    from nsys_pp.commands.project import define_projection_table
    from nsys_pp.frames.table import FilledTable
    from nsys_pp.output.files import check_output
    from nsys_pp.output.tables.output import format_table, write_table
    from nsys_pp.run.batch import list_existing_inputs
    from nsys_pp.run.options import parse_counted_ops

    format = _choose_format(output, format)
    if output != STANDARD_OUTPUT:
        check_output(output, force=force, inputs=list_existing_inputs(reports, with_parts=False))
    with show_progress() as progress:
        result = nsys_pp.project(reports, progress=progress, **options)
    table = define_projection_table(parse_counted_ops(options["ops"]), options["scope"])
    filled = FilledTable(table=table, frame=result.ranges)
    if output != STANDARD_OUTPUT:
        write_table(filled, output, format=format, force=force)
        if sentence := describe_unprojected(result.row_counts):
            log(sentence, event="rows")
        log_output(f"Wrote {output}: {format_count(len(result.ranges), 'row')}", output)
    elif format == "table":
        from nsys_pp.cli.screen import open_screen  # with rich, which a file does not need
        from nsys_pp.output.tables.terminal import print_tables

        with open_screen() as console:
            print_tables([filled], console=console, limit=limit)
    else:
        click.echo(format_table(filled, format=format), nl=False)
    exit_if_skipped(ctx, result.skipped, result.row_counts)


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
