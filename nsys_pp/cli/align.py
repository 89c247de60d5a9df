"""`nsys-pp align`: clocks of all machines, with error bounds."""

from __future__ import annotations

import json
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.command import STANDARD_OUTPUT, command, end_with, run_with_progress
from nsys_pp.cli.tables import SCREEN_FORMATS, output_tables


@command(format=SCREEN_FORMATS)
def align(reports: tuple[str, ...], format: str, **options: Any) -> None:
    """Align the clocks of all machines, with error bounds.

    A collective ends on all its ranks at the same time, and a message ends after it began: these
    constraints align clocks to microseconds, where UTC is off by milliseconds. `merge` aligns
    clocks in the same way.

    \b
    Example:
      nsys-pp align node*/report*.sqlite
    """
    from nsys_pp.commands.align import CLOCK_TABLE
    from nsys_pp.frames.table import FilledTable

    aligned = run_with_progress(nsys_pp.align, reports, **options)
    if format == "json":
        clocks = [
            {**row, "reports": [str(aligned.paths[index]) for index in row["reports"]]}  # keys are stable
            for row in aligned.clocks.to_dicts()
        ]
        click.echo(json.dumps(clocks, indent=2, ensure_ascii=False))
    else:
        frame = CLOCK_TABLE.build(aligned.clocks, aligned.labels)
        output_tables([FilledTable(table=CLOCK_TABLE, frame=frame)], output=STANDARD_OUTPUT, format="table")
    end_with(aligned)
