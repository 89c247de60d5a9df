"""`nsys-pp project`: when every range ran on its GPU, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nsys_pp import commands as api
from nsys_pp.cli.options import force_option, input_options, projection_options
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.project_table import print_projections
from nsys_pp.cli.record import say_wrote
from nsys_pp.cli.result import result_options


@click.command()
@input_options
@click.option(
    "-o",
    "--output",
    default="-",
    show_default=True,
    help="A .parquet, .csv, .json, .md or .sqlite file; `-` prints.",
)
@click.option(
    "--format",
    "format",
    type=click.Choice(["table", "parquet", "csv", "json", "sqlite", "markdown"]),
    help="Whatever the ending of the output says; a table when printed.",
)
@click.option("--per-stream", is_flag=True, help="One row per stream instead of one per device.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=40,
    show_default=True,
    help="Most rows to print as a table.",
)
@projection_options
@force_option
@result_options
def project(
    reports: tuple[str, ...], output: str, format: str | None, limit: int, force: bool, **options: Any
) -> None:
    """Project every NVTX range onto the first and last GPU operation that it launched.

    \b
    Example:
      nsys-pp project report.sqlite -o ranges.parquet
    """
    format = format or ("table" if output == "-" else api.FORMATS.get(Path(output).suffix))
    if format is None:
        raise click.UsageError(
            f"`{output}` has none of the endings {', '.join(api.FORMATS)}; or name a `--format`"
        )
    if output == "-" and format in ("parquet", "sqlite"):
        raise click.UsageError(f"{format} is not printed; name a file with `-o`")
    if output != "-" and format == "table":
        raise click.UsageError("a table is printed; leave out `-o`, or name another `--format`")
    if output != "-":
        api.check_output(Path(output), force=force, inputs=api.find_reports(reports))
    with show_progress() as progress:
        frame = api.project(reports, progress=progress, **options)
    if output != "-":
        api.write_table(frame, Path(output), format=format, name="projections", force=force)
        say_wrote(f"Wrote {output}: {len(frame):,} rows", Path(output))
    elif format == "table":
        print_projections(frame, limit=limit, ops=options["ops"], scope=options["scope"])
    else:
        click.echo(api.format_table(frame, format=format), nl=False)
