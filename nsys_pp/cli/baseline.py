"""`nsys-pp baseline`: sums of good runs, kept for comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.inputs import exit_if_skipped
from nsys_pp.cli.log import log, log_notes, log_output
from nsys_pp.cli.options.baselines import baselines_option
from nsys_pp.cli.options.batch import keep_going_option, work_options
from nsys_pp.cli.options.clock import clock_and_rank_options
from nsys_pp.cli.options.inputs import nsys_option
from nsys_pp.cli.options.output import STANDARD_OUTPUT, format_option
from nsys_pp.cli.options.result import result_options
from nsys_pp.cli.options.training import flops_options, training_options
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.sections import OUTPUT, SELECTION, OrderedGroup, SectionArgument, option
from nsys_pp.cli.table_output import output_tables
from nsys_pp.units import format_bytes, format_count


@click.group(cls=OrderedGroup)
def baseline() -> None:
    """Keep the sums of good runs, and list their history.

    A baseline has the sums and distributions that `nsys-pp compare baseline:NAME RUN` needs, some hundred kB
    instead of reports. Runs that are tagged with one name are numbered: `NAME` is the newest one, `NAME@2` the second.

    \b
    Examples:
      nsys-pp baseline tag main runs/7 --baselines ci-cache/
      nsys-pp compare baseline:main runs/8 --baselines ci-cache/ --fail-on 'step>3%'
      nsys-pp baseline list --baselines ci-cache/
    """


@baseline.command()
@click.argument(
    "name", cls=SectionArgument, section=OUTPUT, text="Name: letters, digits, `.`, `_`, `+` and `-`."
)
@click.argument(
    "reports",
    cls=SectionArgument,
    section=OUTPUT,
    nargs=-1,
    required=True,
    text="Reports or parts of the run, folders of them, or quoted patterns.",
)
@baselines_option
@nsys_option
@option(
    "--keep-last",
    section=OUTPUT,
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep only the newest N runs of this name.",
    default_text="all",
)
@flops_options
@training_options
@clock_and_rank_options
@work_options
@keep_going_option
@result_options
@click.pass_context
def tag(ctx: click.Context, /, name: str, reports: tuple[str, ...], **options: Any) -> None:
    """Keep the sums of a run under a name.

    \b
    Example:
      nsys-pp baseline tag main node*/report*.sqlite --baselines baselines.sqlite --keep-last 20
    """
    with show_progress() as progress:
        tagged = nsys_pp.tag_baseline(name, reports, progress=progress, **options)
    log_notes(tagged.notes)
    facts = tagged.sums.facts
    log_output(
        f"Tagged {tagged.name}@{tagged.number} in {tagged.store} ({format_bytes(tagged.size_bytes)}):"
        f" {format_count(len(facts.steps), 'step')} of {format_count(facts.lane_count, 'rank')}.",
        tagged.store,
    )
    if tagged.removed:
        log(f"Removed {format_count(len(tagged.removed), 'older run')} of {name}.", event="removed")
    exit_if_skipped(ctx, tagged.skipped, tagged.row_counts)


@baseline.command("list")
@click.argument(
    "name", cls=SectionArgument, section=OUTPUT, required=False, text="Name of the baselines. Default: all."
)
@baselines_option
@format_option(["table", "json", "csv", "markdown"], default="table", default_text="table")
@result_options
@click.pass_context
def list_(ctx: click.Context, /, name: str | None, baselines: Path | None, format: str) -> None:
    """List the runs, with step time, bubble and utilisation.

    \b
    Example:
      nsys-pp baseline list main --json
    """
    found = nsys_pp.list_baselines(baselines, name=name)
    output_tables([found.fill_table()], output=STANDARD_OUTPUT, format=format)


@baseline.command()
@click.argument(
    "name",
    cls=SectionArgument,
    section=OUTPUT,
    text="`NAME` for all runs of that name, or `NAME@NUMBER` for one.",
)
@baselines_option
@option("--all", "is_all", section=SELECTION, is_flag=True, help="Remove all runs of the name.")
@result_options
@click.pass_context
def remove(ctx: click.Context, /, name: str, baselines: Path | None, is_all: bool) -> None:
    """Remove one run, or all of a name.

    \b
    Example:
      nsys-pp baseline remove main@3
    """
    if "@" not in name and not is_all and len(nsys_pp.list_baselines(baselines, name=name).table) > 1:
        raise click.UsageError(f"`{name}` has several runs; name one as in `{name}@2`, or add `--all`")
    removed = nsys_pp.remove_baseline(name, baselines=baselines)
    log(f"Removed {', '.join(removed)}.", event="removed")
