"""Adapter to nsys: its classes and options are looked up by name, since they differ between its releases."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from nsys_recipe.lib import exceptions, recipe
from nsys_recipe.lib.args import Option

from nsys_pp_recipe import work
from nsys_pp_recipe.command import PACKAGE, find_nsys_pp
from nsys_pp_recipe.options import add_option, add_options

NOTEBOOK = "results.ipynb"


class Adapter(recipe.Recipe):  # type: ignore[misc]
    """Base of the recipes of nsys-pp.

    Attributes:
        plan: The steps of the recipe.
    """

    plan: work.Plan

    def run(self, context: Any) -> None:
        """Run the recipe; write a notebook and the list of results that nsys opens."""
        super().run(context)
        logger = _find_logger()
        worker = work.Worker(
            nsys_pp=_translate(find_nsys_pp),
            nsys=_find_nsys(),
            run_all=lambda commands: context.wait(context.map(subprocess.run, commands, **work.CAPTURE)),
            log=lambda level, line: logger.log(getattr(logging, level.upper()), line),
        )
        reports = _flatten(getattr(self._parsed_args, "input", None))
        folder = Path(os.path.abspath(self.add_output_file(NOTEBOOK))).parent
        _translate(
            work.run_plan,
            self.plan,
            reports,
            self._parsed_args,
            folder,
            worker,
            csv=bool(getattr(self._parsed_args, "csv", False)),
            keep_parts=bool(getattr(self._parsed_args, "nsys_pp_keep_parts", False)),
        )
        self.create_notebook(NOTEBOOK, str(PACKAGE), {"NSYS_PP_RECIPE": self.get_metadata("display_name")})
        # The notebook is first: the window of nsys opens it, and lists the others.
        outputs = {**getattr(self, "_output_files", {}), **work.list_outputs(folder, without=NOTEBOOK)}
        self._analysis_dict.update(EndTime=str(datetime.now()), InputFiles=reports, Outputs=outputs)
        self.create_analysis_file()

    @classmethod
    def get_argument_parser(cls) -> Any:
        """Return the parser with the options of nsys' recipes and of nsys-pp."""
        parser = super().get_argument_parser()
        add = parser.add_recipe_argument
        # Later releases of nsys add these to all recipes.
        for name in ("OUTPUT", "FORCE_OVERWRITE", "INPUT", "CSV"):
            if (option := getattr(Option, name, None)) is not None:
                add_option(add, option, **({"required": True} if name == "INPUT" else {}))
        add_options(add, cls.plan.steps[0].command)
        add_option(
            add,
            "--keep-parts",
            dest="nsys_pp_keep_parts",
            action="store_true",
            help="Keep the parts in a folder `parts`",
        )
        return parser


def _translate(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a function; raise errors that the user can fix as errors of nsys."""
    try:
        return function(*args, **options)
    except (work.WorkError, LookupError) as error:
        raise getattr(exceptions, "ValueError", RuntimeError)(str(error)) from None


def _find_logger() -> Any:
    try:
        from nsys_recipe.log import logger
    except ImportError:
        return logging.getLogger("nsys_recipe")
    return logger


def _find_nsys() -> str | None:
    """Return the nsys that runs the recipe; None if nsys-pp searches for one, first in `$NSYS_PP_NSYS`."""
    if os.environ.get("NSYS_PP_NSYS"):
        return None
    try:
        from nsys_recipe import nsys_constants
        from nsys_recipe.lib import nsys_path

        return str(nsys_path.find_installed_file(nsys_constants.NSYS_EXE_NAME))
    except Exception:  # of a type that depends on the release
        return None


def _flatten(reports: Any) -> list[str]:
    """Return the paths of nested lists of reports; their nesting depends on the release of nsys."""
    if isinstance(reports, (list, tuple)):
        return [path for report in reports for path in _flatten(report)]
    return [] if reports is None else [os.fspath(reports)]
