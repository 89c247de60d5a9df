"""The command line: commands (`commands.py`) whose options are data (`nsys_pp.options`).

The commands are imported when one is called, and the library when the command's function runs, so that
`--help` and `--version` import click alone.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any, cast

import click

from nsys_pp.cli.command import OrderedGroup
from nsys_pp.cli.result import (
    end_on_interrupt,
    escape_line,
    explain_ending,
    is_interrupt,
    print_error,
)
from nsys_pp.errors import OutputError
from nsys_pp.registry import Registry

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_DESCRIPTIONS = {  # first lines of the commands' docstrings, in the order of `--help`
    "merge": "Merge reports into one Perfetto trace.",
    "open": "Open a trace or a page in the browser, without a network.",
    "report": "Write one page: verdict, charts, heat map, tables.",
    "pipeline": "Show steps, stages, jobs, and the causes of bubbles.",
    "whatif": "Predict the step without slow ranks, or under another schedule.",
    "chart": "Draw a pipeline as an HTML page, SVG or PNG.",
    "summary": "Summarise time by operator, kernel, copy, and idle cause.",
    "compare": "Compare two runs: steps, bubbles, stages, ranks, jobs, kernels.",
    "project": "Project NVTX ranges onto the GPU operations they launch.",
    "info": "Show the contents of reports, and missing tables.",
    "check": "Check reports for damage, impossible values and lost events.",
    "align": "Align the clocks of all machines, with error bounds.",
    "sql": "Query the frames and tables of a run in SQL.",
    "extract": "Write a part of each report, ready for merge and summary.",
    "scrub": "Write a copy of a report that is safe to share.",
    "recipe": "Run nsys-pp as a recipe of nsys.",
}
_COMMANDS = Registry[click.Command]({name: f"nsys_pp.cli.commands:{name}" for name in _DESCRIPTIONS})

# Libraries read these when they are loaded. By default, the allocator of polars never returns the pages that
# it freed to the system while there is memory: up to a fifth of the peak. The threads of numpy's OpenBLAS,
# which few commands use, wait for work in a loop that takes 60 ms of a processor at every start.
_VARIABLES = {
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:500,muzzy_decay_ms:0",
    "OPENBLAS_NUM_THREADS": "1",
}

# Python looks for unreachable cycles after so many new objects (700 by default): modules are tens of
# thousands of objects that stay, and rows of reports are none.
_OBJECTS_BETWEEN_COLLECTIONS = 20_000


class _MainGroup(OrderedGroup):
    """The group of all commands; reports errors as a sentence with a hint, and warnings as notes."""

    def invoke(self, ctx: click.Context) -> Any:
        for name, value in _VARIABLES.items():
            os.environ.setdefault(name, value)
        if not re.fullmatch("0*[1-9][0-9]{0,5}", os.environ.get("POLARS_MAX_THREADS", "1")):
            del os.environ["POLARS_MAX_THREADS"]  # polars would end with a panic
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        atexit.register(gc.freeze)  # the end of the process frees all objects without a search among them
        with end_on_interrupt(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: click.echo(
                f"note: {escape_line(str(message))}", err=True
            )
            warnings.simplefilter("always", UserWarning)
            try:
                return super().invoke(ctx)
            except BaseException as error:  # panics of polars derive from it
                ending = explain_ending(error)
                is_logged = isinstance(error, click.exceptions.Exit) and error.exit_code == ending.status
                if isinstance(error, click.ClickException):
                    error.message = escape_line(error.message)  # type: ignore[misc]  # what it shows
                if not ending.is_ours or is_logged:
                    raise
                if is_interrupt(error):
                    click.echo(ending.message, err=True)
                else:
                    print_error(ending.message or "", ending.hint)
                ctx.exit(ending.status)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Say in a sentence that standard output cannot be written."""
        try:
            return super().main(*args, **extra)
        except OutputError as error:
            print_error(error.message, error.hint)
            sys.exit(1)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Take inputs without a command as those of `start`."""
        if args[0] not in self.commands and (os.path.exists(args[0]) or set(args[0]) & set("*?[./")):
            from nsys_pp.cli.commands import start

            return "REPORT...", start, args
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            message = error.message.replace("No such command", "No such command or file")
            raise click.UsageError(message, error.ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([*_DESCRIPTIONS.items()])


@click.group(
    cls=_MainGroup,
    commands=cast("MutableMapping[str, click.Command]", _COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="nsys-pp")
def main() -> None:
    """Show when each NVTX range ran on each GPU, across machines.

    `nsys-pp REPORT...` without a command shows the verdict, and writes a page and a trace.

    REPORT is a SQLite export of Nsight Systems, a .nsys-rep (exported by nsys, if it is found), a
    parquetdir or arrowdir export, a part (`nsys-pp extract`), or a folder of these.
    """
