"""The terminal as the place of printed tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console

from nsys_pp.write.tables import open_console


@contextmanager
def open_screen() -> Iterator[Console]:
    """Open a console whose text goes to stdout by click: names are of any script, which rich cannot write as ASCII."""
    console = open_console()
    with console.capture() as screen:
        yield console
    click.echo("\n".join(line.rstrip() for line in screen.get().splitlines()))
