"""`nsys-pp recipe`: where the recipes for `nsys recipe` are, and how they get to nsys."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from nsys_pp.errors import NsysNotFoundError, NsysPPError, OutputError
from nsys_pp.output.files import hold_interrupts, make_folders, replace_folder, translate_errors

_PACKAGE = Path(__file__).resolve().parent.parent
_SHARED = "nsys_pp_recipe"  # modules that recipes import, next to them
_NOTE = "installed.json"  # the shared folder's `command.py` reads it
_TABLE = "table.py"  # of options, for the shared folder's `options.py`
# Below the folder of nsys, or of one of its sides; CUDA's toolkit has nsys in a folder of its own.
_INSIDE = "python/packages/nsys_recipe/recipes"
_PATTERNS = (_INSIDE, f"*/{_INSIDE}", f"nsight-systems*/*/{_INSIDE}")


class InstalledRecipes(Struct, frozen=True, kw_only=True):
    """Recipes that nsys can run."""

    folder: Path  # that they lie in
    names: list[str]
    nsys: str | None  # the program whose folder that is; None: it is to be named to nsys


def recipe_folder() -> Path:
    """Return the folder of the recipes, for `$NSYS_RECIPE_PATH`; they run from there.

    Raises:
        NsysPPError: This nsys-pp came without them.
    """
    # next to the package in a checkout, inside an installed package
    for folder in (_PACKAGE.parent / "recipes", _PACKAGE / "recipes"):
        if (folder / _SHARED).is_dir():
            return folder
    raise NsysPPError(f"there are no recipes in `{_PACKAGE}`", "install nsys-pp again")


def install_recipes(
    *, nsys: str | None = None, to: Path | None = None, force: bool = False
) -> InstalledRecipes:
    """Copy the recipes to where nsys finds them, with a note of the Python that has nsys-pp.

    Args:
        nsys: The folder or program of an nsys; None: `$NSYS_PP_NSYS`, or the one on PATH.
        to: A folder instead, made if it is not there.
        force: Replace recipes that are there already.

    Raises:
        NsysNotFoundError: There is no nsys, or it has no folder of recipes.
        OutputError: Recipes are there already, or the folder cannot be written.
    """
    source = recipe_folder()
    names = sorted(path.parent.name for path in source.glob("*/metadata.json"))
    folder = _find_folder(nsys) if to is None else to
    try:
        with hold_interrupts(), make_folders([folder]), translate_errors(folder), ExitStack() as all_or_none:
            for name in (*names, _SHARED):
                new = replace_folder(folder / name, force=force, is_ours=Path.is_dir)
                _copy(source / name, all_or_none.enter_context(new))
    except OutputError as error:
        hint = "as its owner it can be; or `--to` a folder of yours, which `$NSYS_RECIPE_PATH` then names"
        is_refused = isinstance(error.__cause__, PermissionError)
        raise OutputError(error.message, hint if is_refused else error.hint) from None
    program = None
    if to is None:
        beside, on_path = folder.parents[3] / "nsys", shutil.which("nsys")
        is_other = beside.is_file() and not (on_path and beside.samefile(on_path))
        program = str(beside) if is_other else "nsys"
    return InstalledRecipes(folder=folder, names=names, nsys=program)


def _copy(source: Path, folder: Path) -> None:
    """Copy a recipe, or the shared modules; with the permissions of new files."""
    for file in source.iterdir():
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
    if source.name == _SHARED:
        (folder / _NOTE).write_text(json.dumps({"python": sys.executable}), encoding="utf-8")
        shutil.copyfile(_PACKAGE / "options.py", folder / _TABLE)


def _find_folder(nsys: str | None) -> Path:
    named = nsys or os.environ.get("NSYS_PP_NSYS") or "nsys"
    found = named if os.path.isdir(named) else shutil.which(named)
    hint = "give the folder that Nsight Systems is installed in by `--nsys`, or any other by `--to`"
    if found is None:
        raise NsysNotFoundError(f"`{named}` is neither a folder nor a program that can be run", hint)
    real = Path(found).resolve()
    for place in [real] if real.is_dir() else [real.parent, real.parent.parent]:
        folders = sorted({folder for pattern in _PATTERNS for folder in place.glob(pattern)})
        if len(folders) > 1:
            listed = ", ".join(f"`{folder}`" for folder in folders)
            raise NsysNotFoundError(
                f"`{place}` has several folders of recipes: {listed}", "name one with `--to`"
            )
        if folders:
            return folders[0]
    raise NsysNotFoundError(
        f"`{real}` belongs to no nsys that has recipes", f"{hint}; nsys has recipes from 2023 on"
    )
