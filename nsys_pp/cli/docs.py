"""`nsys-pp docs`: prints a page of the documentation."""

from __future__ import annotations

import click

from nsys_pp.cli.sections import OUTPUT, SectionArgument, SectionCommand


@click.command(cls=SectionCommand)
@click.argument(
    "page",
    cls=SectionArgument,
    section=OUTPUT,
    text="Name of a page or script, as in presets, docs/presets.md, or batch/ssh.sh. Without it, all names are listed.",
    required=False,
)
def docs(page: str | None) -> None:
    """Print a page of the documentation that hints name.

    Pages are Markdown, and are installed with nsys-pp, as are the scripts for clusters.

    \b
    Examples:
      nsys-pp docs presets
      nsys-pp docs batch/extract.sbatch > extract.sbatch
    """
    from nsys_pp.commands.docs import list_pages, read_page

    if page is None:
        for name in list_pages():
            click.echo(name)
    else:
        click.echo(read_page(page), nl=False)
