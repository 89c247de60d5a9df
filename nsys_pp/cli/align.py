"""`nsys-pp align`: many clocks on one, and how well that is known."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console

from nsys_pp import commands as api
from nsys_pp.cli.align_table import print_clocks
from nsys_pp.cli.clock_options import clock_options, take_told
from nsys_pp.cli.identity_options import identity_options
from nsys_pp.cli.options import end_with_skipped, input_options, keep_going_option
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.result import result_options
from nsys_pp.cli.work_options import take_work, wait_for_inputs, wait_options, work_options


@click.command()
@input_options
@clock_options
@identity_options
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, one per clock.")
@work_options
@wait_options
@keep_going_option("read")
@result_options
@click.pass_context
def align(ctx: click.Context, /, reports: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Put the clocks of all machines onto one, and tell how well that is known.

    Collectives end on all their ranks at once, messages end after they began: that ties the clocks of
    machines together to microseconds, where UTC is off by milliseconds. `merge` does the same.

    \b
    Example:
      nsys-pp align node*/report*.sqlite
    """
    overrides, work = take_told(options), take_work(options)
    with show_progress() as progress:
        inputs, incomplete = wait_for_inputs(reports, options, progress)
        aligned = api.align(inputs, overrides=overrides, work=work, progress=progress, **options)
    if as_json:
        click.echo(json.dumps(_describe(aligned), indent=2, ensure_ascii=False))
    else:
        console = Console(highlight=False, markup=False, emoji=False)
        with console.capture() as screen:
            print_clocks(aligned, console)
        click.echo("\n".join(line.rstrip() for line in screen.get().splitlines()))
    end_with_skipped(ctx, [*incomplete, *aligned.skipped])


def _describe(aligned: api.AlignResult) -> list[dict[str, Any]]:
    """Put clocks into plain types; the keys are stable."""
    return [
        {**row, "reports": [str(aligned.paths[at]) for at in row["reports"]]}
        for row in aligned.clocks.to_dicts()
    ]
