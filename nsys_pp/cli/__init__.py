"""The command line: click only; one module per command."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from contextlib import suppress
from typing import Any, TextIO

import click

from nsys_pp.cli.align import align
from nsys_pp.cli.chart import chart
from nsys_pp.cli.compare import compare
from nsys_pp.cli.extract import extract
from nsys_pp.cli.info import info
from nsys_pp.cli.interrupts import INTERRUPTED, end_on_interrupt, is_interrupt
from nsys_pp.cli.merge import merge
from nsys_pp.cli.pipeline import pipeline
from nsys_pp.cli.project import project
from nsys_pp.cli.recipe import recipe
from nsys_pp.cli.summary import summary
from nsys_pp.errors import NsysPPError

_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "your disk quota is used up"}


class _Group(click.Group):
    """Turns what a user can fix into one sentence and a hint, and warnings into notes."""

    def invoke(self, ctx: click.Context) -> Any:
        with end_on_interrupt(), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            warnings.simplefilter("always", UserWarning)
            try:
                return super().invoke(ctx)
            except (Exception, KeyboardInterrupt) as error:
                if is_interrupt(error):
                    click.echo("Interrupted", err=True)
                    ctx.exit(INTERRUPTED)
                if not _explain(error):
                    raise
                ctx.exit(1)


def _explain(error: BaseException) -> bool:
    """Say what went wrong, if that is something that a user can fix."""
    if isinstance(error, NsysPPError):
        _refuse(error.message, error.hint)
        return True
    # Files have said their name; click lets a pipe that nobody reads any more (`| head`) end quietly.
    if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
        _abandon(sys.stdout)
        _refuse(
            f"cannot write to standard output: {_FULL[error.errno]}", "free some space, or write elsewhere"
        )
        return True
    return False


def _refuse(message: str, hint: str | None) -> None:
    click.echo(f"Error: {message}", err=True)
    if hint:
        click.echo(f"\nhint: {hint}", err=True)


def _abandon(stream: TextIO) -> None:
    """Let what could not be written go, so that Python does not try again when it ends."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    click.echo(f"note: {message}", err=True)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="nsys-pp")
def main() -> None:
    """See when every NVTX range really ran on every GPU, across machines.

    REPORT is a SQLite export of Nsight Systems, a .nsys-rep (exported by the nsys that is
    found), a parquetdir or arrowdir export, or a directory of these.
    """


main.add_command(extract)
main.add_command(align)
main.add_command(info)
main.add_command(merge)
main.add_command(pipeline)
main.add_command(chart)
main.add_command(compare)
main.add_command(project)
main.add_command(summary)
main.add_command(recipe)
