"""Search for the installed nsys-pp from any interpreter."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
INSTALLED = "installed.json"  # written by `nsys-pp recipe install`, next to this file
VARIABLE = "NSYS_PP_COMMAND"
# -E: otherwise another interpreter would import modules from nsys' PYTHONPATH.
_OTHER_PYTHON = ("-E", "-m", "nsys_pp")
_SHEBANG = re.compile(rb"#!\s*(\S*python[\d.]*)\s*\n")


def find_nsys_pp(folder: Path = PACKAGE) -> list[str]:
    """Return the command line prefix of a working nsys-pp.

    Args:
        folder: The folder of this package, inside a Python package or a folder of recipes.

    Raises:
        LookupError: There is none; the message lists the attempts and solutions.
    """
    tried: dict[tuple[str, ...], str] = {}
    for command in _list_candidates(folder):
        if tuple(command) in tried:
            continue
        try:
            done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
        except OSError as error:
            tried[tuple(command)] = str(error.strerror)
            continue
        if done.returncode == 0 and "nsys-pp" in done.stdout:
            return command
        tried[tuple(command)] = (done.stderr.strip().splitlines() or ["nothing"])[-1]
    attempts = "".join(f"\n`{' '.join(command)}`: {error}" for command, error in tried.items())
    raise LookupError(
        f"no nsys-pp was found from {sys.executable}: install it there or put `nsys-pp` on PATH,"
        f" run `nsys-pp recipe install`, or name the program in ${VARIABLE}{attempts}"
    )


def _list_candidates(folder: Path) -> Iterator[list[str]]:
    """List candidate command lines, most explicit first."""
    if named := os.environ.get(VARIABLE):
        yield [named]
        return
    if (installed := folder / INSTALLED).is_file():
        yield [json.loads(installed.read_text(encoding="utf-8"))["python"], *_OTHER_PYTHON]
    if folder.parents[1].name == "nsys_pp":  # inside the package: search its environment
        for parent in folder.parents:
            for scripts in ("bin", "Scripts"):
                if program := shutil.which("nsys-pp", path=str(parent / scripts)):
                    yield _command_of(program)
    if importlib.util.find_spec("nsys_pp") is not None:
        yield [sys.executable, "-m", "nsys_pp"]
    if program := shutil.which("nsys-pp"):
        yield _command_of(program)


def _command_of(program: str) -> list[str]:
    """Return the command line of a program: its interpreter, if it is a Python script."""
    try:
        with open(program, "rb") as file:
            named = _SHEBANG.match(file.readline())
    except OSError:
        named = None
    return [program] if named is None else [os.fsdecode(named[1]), *_OTHER_PYTHON]
