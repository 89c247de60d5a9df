"""Input options: the reports to read and the nsys that exports them."""

from __future__ import annotations

import click

from nsys_pp.cli.sections import OUTPUT, Command, SectionArgument, option
from nsys_pp.cli.threads import limit_threads

nsys_option = option(
    "--nsys",
    section=OUTPUT,
    envvar="NSYS_PP_NSYS",
    metavar="PATH",
    help="Path of the nsys that exports .nsys-rep files or receives recipes.",
    default_text="$NSYS_PP_NSYS, else the one on PATH",
)


def input_options(command: Command) -> Command:
    """Add the argument `REPORT...` and `--nsys`."""
    add = click.argument(
        "reports",
        cls=SectionArgument,
        section=OUTPUT,
        text="Exported reports, .nsys-rep files, parts, folders of these, or quoted patterns.",
        metavar="REPORT...",
        nargs=-1,
        required=True,
        callback=_limit_threads,
    )
    return add(nsys_option(command))


def _limit_threads(ctx: click.Context, param: click.Parameter, reports: tuple[str, ...]) -> tuple[str, ...]:
    if not ctx.resilient_parsing:  # completion
        limit_threads(reports)
    return reports
