"""`nsys-pp recipe`: nsys-pp as recipes of nsys."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from nsys_pp.cli.command import OrderedGroup, SectionCommand, command


@click.group(cls=OrderedGroup)
def recipe() -> None:
    """Run nsys-pp as a recipe of nsys.

    The recipes are nsys_pp_merge, nsys_pp_pipeline and nsys_pp_summary.

    \b
    Examples:
      NSYS_RECIPE_PATH=$(nsys-pp recipe path) nsys recipe nsys_pp_merge --input DIR
      nsys-pp recipe install && nsys recipe nsys_pp_merge --input DIR
    """


@recipe.command(cls=SectionCommand)
def path() -> None:
    """Print the folder of the recipes, for NSYS_RECIPE_PATH."""
    from nsys_pp.commands.recipe import recipe_folder

    click.echo(recipe_folder())


@recipe.add_command
@command()
def install(nsys: str | None, to: Path | None, force: bool) -> None:
    """Copy the recipes to nsys, or to a folder.

    Installed recipes use this installation of nsys-pp, whichever Python nsys runs them with. `--nsys`
    accepts nsys or the folder of its installation.
    """
    from nsys_pp.commands.recipe import install_recipes

    named = click.get_current_context().get_parameter_source("nsys")
    if to is not None and named is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("`--nsys` and `--to` exclude each other; omit one of them")
    installed = install_recipes(nsys=nsys, to=to, force=force)
    line = f"{shlex.quote(installed.nsys or 'nsys')} recipe {installed.names[0]} --input DIR"
    if installed.nsys is None:
        line = f"NSYS_RECIPE_PATH={shlex.quote(str(installed.folder.absolute()))} {line}"
    click.echo(f"Wrote {', '.join(installed.names)} to {installed.folder}. Run one:\n  {line}", err=True)
