"""`nsys-pp compare`: what changed between two runs, and whether that is too much."""

from __future__ import annotations

import json
from typing import Any

import click

from nsys_pp import commands as api
from nsys_pp.cli.clock_options import clock_options, take_told
from nsys_pp.cli.compare_table import TITLES, arrange, print_comparison
from nsys_pp.cli.identity_options import identity_options
from nsys_pp.cli.options import tell_notes
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.record import say
from nsys_pp.cli.result import result_options
from nsys_pp.cli.training_options import take_training, training_options
from nsys_pp.cli.work_options import take_work, work_options

GATE_FAILED = 4


@click.command()
@click.argument("a")
@click.argument("b")
@click.option(
    "--fail-on",
    "gates",
    multiple=True,
    metavar="GATE",
    help="Exit with 4 if B is worse by so much: `bubble>5%`, `step>20ms`, `stage 2 forward>3%`,"
    " `bubble_b>20%` (of B itself).",
)
@click.option(
    "--format",
    "format",
    type=click.Choice(["table", "json", "markdown"]),
    default="table",
    show_default=True,
    help="How to print.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Most rows of a table to print; json and markdown have all.",
)
@training_options
@clock_options
@identity_options
@work_options
@result_options
@click.option(
    "--nsys", envvar="NSYS_PP_NSYS", help="The nsys that exports .nsys-rep files; else the one on PATH."
)
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    a: str,
    b: str,
    gates: tuple[str, ...],
    format: str,
    limit: int,
    **options: Any,
) -> None:
    """Tell what got slower or faster from run A to run B.

    Each is a report, a part, a folder of them, or a quoted pattern. Steps of a run are held against
    each other: what differs no more than these do is the same. Exits with 4 if a `--fail-on` fails.

    \b
    Example:
      nsys-pp compare before/ after/ --fail-on 'bubble>5%' --fail-on 'step>3%'
    """
    training, overrides, work = take_training(options), take_told(options), take_work(options)
    with show_progress() as progress:
        compared = api.compare(
            a, b, training=training, overrides=overrides, gates=gates, work=work, progress=progress, **options
        )
    if format == "table":
        print_comparison(compared.tables, limit=limit)
    elif format == "markdown":
        frames = {name: arrange(frame) for name, frame in compared.tables.items()}
        click.echo(api.format_tables(frames, format="markdown", titles=TITLES), nl=False)
    else:
        tables = json.loads(api.format_tables(compared.tables, format="json", titles=TITLES))
        whole = {"tables": tables, "failures": compared.failures, "notes": compared.notes}
        click.echo(json.dumps(whole, indent=2, ensure_ascii=False))
    tell_notes(compared.notes)
    for failure in compared.failures:
        say(failure, event="gate failed", level="error", before="failed: ")
    if compared.failures:
        ctx.exit(GATE_FAILED)
