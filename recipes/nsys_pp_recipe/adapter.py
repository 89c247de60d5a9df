"""The seam to nsys: its classes and options are looked up by name, as they differ between its releases."""

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
from nsys_pp_recipe.command import HERE, find_nsys_pp
from nsys_pp_recipe.options import add_option, add_options

NOTEBOOK = "results.ipynb"


class Adapter(recipe.Recipe):  # type: ignore[misc]
    """A recipe that has nsys-pp do its work; those of nsys differ in what it `does` alone."""

    does: work.Work

    def run(self, context: Any) -> None:
        """Do the work, and write what nsys opens: a notebook and a list of results."""
        super().run(context)
        tell = _find_logger().log
        worker = work.Worker(
            nsys_pp=_translate(find_nsys_pp),
            nsys=_find_nsys(),
            run_all=lambda commands: context.wait(context.map(subprocess.run, commands, **work.CAPTURE)),
            tell=lambda level, line: tell(getattr(logging, level.upper()), line),
        )
        reports = _flatten(getattr(self._parsed_args, "input", None))
        folder = Path(os.path.abspath(self.add_output_file(NOTEBOOK))).parent
        _translate(
            work.do_work,
            self.does,
            reports,
            self._parsed_args,
            folder,
            worker,
            csv=bool(getattr(self._parsed_args, "csv", False)),
            keep_parts=bool(getattr(self._parsed_args, "nsys_pp_keep_parts", False)),
        )
        self.create_notebook(NOTEBOOK, str(HERE), {"NSYS_PP_RECIPE": self.get_metadata("display_name")})
        self._analysis_dict.update(
            EndTime=str(datetime.now()), InputFiles=reports, Outputs=getattr(self, "_output_files", {})
        )
        self.create_analysis_file()

    @classmethod
    def get_argument_parser(cls) -> Any:
        """Add what recipes have in common, and the options of nsys-pp."""
        parser = super().get_argument_parser()
        add = parser.add_recipe_argument
        # the first ones may be there already: later releases add them to all recipes
        for name in ("OUTPUT", "FORCE_OVERWRITE", "INPUT", "CSV"):
            if (option := getattr(Option, name, None)) is not None:
                add_option(add, option, **({"required": True} if name == "INPUT" else {}))
        add_options(add, cls.does.steps[0].command)
        add_option(
            add,
            "--keep-parts",
            dest="nsys_pp_keep_parts",
            action="store_true",
            help="Keep the parts (`extract`)",
        )
        return parser


def _translate(do: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call something, and let nsys say what a user can fix."""
    try:
        return do(*args, **options)
    except (work.WorkError, LookupError) as error:
        raise getattr(exceptions, "ValueError", RuntimeError)(str(error)) from None


def _find_logger() -> Any:
    try:
        from nsys_recipe.log import logger
    except ImportError:
        return logging.getLogger("nsys_recipe")
    return logger


def _find_nsys() -> str | None:
    """Find the nsys that runs this; None: nsys-pp looks for one, where `$NSYS_PP_NSYS` says first."""
    if os.environ.get("NSYS_PP_NSYS"):
        return None
    try:
        from nsys_recipe import nsys_constants
        from nsys_recipe.lib import nsys_path

        return str(nsys_path.find_installed_file(nsys_constants.NSYS_EXE_NAME))
    except Exception:  # each release has its own
        return None


def _flatten(reports: Any) -> list[str]:
    """List the reports as paths, whatever nsys made of them."""
    if isinstance(reports, (list, tuple)):
        return [path for one in reports for path in _flatten(one)]
    return [] if reports is None else [os.fspath(reports)]
