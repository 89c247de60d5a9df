"""The option `--baselines`."""

from __future__ import annotations

from pathlib import Path

import click

from nsys_pp.cli.sections import OUTPUT, option

baselines_option = option(
    "--baselines",
    section=OUTPUT,
    type=click.Path(path_type=Path),
    metavar="FOLDER|FILE.sqlite",
    help="Folder or SQLite file of baselines.",
    default_text="$NSYS_PP_BASELINES, else nsys-pp-baselines",
)
