"""Console for printed tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console

from nsys_pp.cli.escapes import escape_screen
from nsys_pp.output.tables.terminal import open_console


@contextmanager
def open_screen() -> Iterator[Console]:
    """Open a console that prints through click: rich cannot write names in other scripts to an ASCII terminal."""
    console = open_console()
    with console.capture() as screen:
        yield console
    # only line feeds are the screen's own line breaks
    click.echo(escape_screen("\n".join(line.rstrip() for line in screen.get().rstrip("\n").split("\n"))))
