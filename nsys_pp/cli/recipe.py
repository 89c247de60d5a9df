"""`nsys-pp recipe`: the same work as recipes of nsys."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from nsys_pp import commands as api
from nsys_pp.cli.options import force_option


@click.group()
def recipe() -> None:
    """Let `nsys recipe` do the work of nsys-pp: nsys_pp_merge, nsys_pp_pipeline, nsys_pp_summary.

    \b
    Examples:
      NSYS_RECIPE_PATH=$(nsys-pp recipe path) nsys recipe nsys_pp_merge --input DIR
      nsys-pp recipe install && nsys recipe nsys_pp_merge --input DIR
    """


@recipe.command()
def path() -> None:
    """Print the folder of the recipes, for NSYS_RECIPE_PATH."""
    click.echo(api.recipe_folder())


@recipe.command()
@click.option(
    "--nsys",
    envvar="NSYS_PP_NSYS",
    help="The nsys that gets the recipes: its program, or the folder it is installed in; else the one on PATH.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder instead, for NSYS_RECIPE_PATH; made if it is not there.",
)
@force_option
@click.pass_context
def install(ctx: click.Context, /, nsys: str | None, to: Path | None, force: bool) -> None:
    """Copy the recipes into the folder of recipes of nsys.

    Recipes that were installed find this nsys-pp again, whichever Python nsys runs them with.
    """
    if to is not None and ctx.get_parameter_source("nsys") is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("`--nsys` and `--to` both say where: leave out one")
    installed = api.install_recipes(nsys=nsys, to=to, force=force)
    line = f"{shlex.quote(installed.nsys or 'nsys')} recipe {installed.names[0]} --input DIR"
    if installed.nsys is None:
        line = f"NSYS_RECIPE_PATH={shlex.quote(str(installed.folder.absolute()))} {line}"
    click.echo(f"Wrote {', '.join(installed.names)} into {installed.folder}. Run one:\n  {line}", err=True)
