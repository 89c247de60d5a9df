"""The command line: a module per command, shared options in `options`."""

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
from nsys_pp.cli.sections import OrderedGroup
from nsys_pp.cli.summary import summary
from nsys_pp.errors import NsysPPError

_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "your disk quota is used up"}


class _MainGroup(OrderedGroup):
    """The group of all commands; reports errors as a sentence with a hint, and warnings as notes."""

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
                if not _report_error(error):
                    raise
                ctx.exit(1)


def _report_error(error: BaseException) -> bool:
    """Report an error that the user can fix; False for any other."""
    if isinstance(error, NsysPPError):
        _print_error(error.message, error.hint)
        return True
    # Errors of files have a file name; click handles a closed pipe (`| head`) itself.
    if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
        _discard_buffer(sys.stdout)
        _print_error(
            f"cannot write to standard output: {_FULL[error.errno]}", "free some space, or write elsewhere"
        )
        return True
    return False


def _print_error(message: str, hint: str | None) -> None:
    click.echo(f"Error: {message}", err=True)
    if hint:
        click.echo(f"\nhint: {hint}", err=True)


def _discard_buffer(stream: TextIO) -> None:
    """Discard unwritten data, so that Python does not write it again at exit."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    click.echo(f"note: {message}", err=True)


@click.group(
    cls=_MainGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="nsys-pp")
def main() -> None:
    """Show when each NVTX range ran on each GPU, across machines.

    REPORT is a SQLite export of Nsight Systems, a .nsys-rep (exported by nsys, if it is found), a
    parquetdir or arrowdir export, a part (`nsys-pp extract`), or a folder of these.
    """


for _command in (merge, pipeline, chart, summary, compare, project, info, align, extract, recipe):
    main.add_command(_command)
