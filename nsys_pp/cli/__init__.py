"""The command line: click only; one module per command."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import click

from nsys_pp.cli.info import info
from nsys_pp.cli.merge import merge
from nsys_pp.cli.project import project
from nsys_pp.errors import NsysPPError


class _Group(click.Group):
    """Turns what a user can fix into one sentence and a hint, and warnings into notes."""

    def invoke(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            warnings.simplefilter("always", UserWarning)
            try:
                return super().invoke(ctx)
            except NsysPPError as error:
                click.echo(f"Error: {error.message}", err=True)
                if error.hint:
                    click.echo(f"\nhint: {error.hint}", err=True)
                ctx.exit(1)
            except BrokenPipeError:
                # Whoever read our output has enough of it (`| head`).
                sys.stderr.close()
                ctx.exit(1)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    click.echo(f"note: {message}", err=True)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="nsys-pp")
def main() -> None:
    """See when every NVTX range really ran on every GPU, across machines.

    REPORT is a SQLite export of Nsight Systems, a .nsys-rep (exported by the nsys that is
    found), a parquetdir or arrowdir export, or a directory of these.
    """


main.add_command(info)
main.add_command(merge)
main.add_command(project)
