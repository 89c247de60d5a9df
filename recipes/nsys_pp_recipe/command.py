"""Find the installed nsys-pp, whichever interpreter runs this."""

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

HERE = Path(__file__).resolve().parent
INSTALLED = "installed.json"  # `nsys-pp recipe install` writes it, beside this file
VARIABLE = "NSYS_PP_COMMAND"
# Left to itself, another interpreter would take the modules that nsys names for its own.
_OTHER = ("-E", "-m", "nsys_pp")
_SHEBANG = re.compile(rb"#!\s*(\S*python[\d.]*)\s*\n")


def find_nsys_pp(folder: Path = HERE) -> list[str]:
    """Give the start of the command line of an nsys-pp that answers.

    Args:
        folder: The folder of this package, as it lies in a package of Python or in a folder of recipes.

    Raises:
        LookupError: There is none; the message says what helps.
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
    said = "".join(f"\n`{' '.join(command)}` says: {words}" for command, words in tried.items())
    raise LookupError(
        f"no nsys-pp was found from {sys.executable}: install it there or put `nsys-pp` on PATH,"
        f" run `nsys-pp recipe install`, or name the program in ${VARIABLE}{said}"
    )


def _list_candidates(folder: Path) -> Iterator[list[str]]:
    """List where it may be, most explicit first."""
    if named := os.environ.get(VARIABLE):
        yield [named]
        return
    if (noted := folder / INSTALLED).is_file():
        yield [json.loads(noted.read_text(encoding="utf-8"))["python"], *_OTHER]
    if folder.parents[1].name == "nsys_pp":  # in the package itself: that of the environment around it
        for place in folder.parents:
            for scripts in ("bin", "Scripts"):
                if program := shutil.which("nsys-pp", path=str(place / scripts)):
                    yield _command_of(program)
    if importlib.util.find_spec("nsys_pp") is not None:
        yield [sys.executable, "-m", "nsys_pp"]
    if program := shutil.which("nsys-pp"):
        yield _command_of(program)


def _command_of(program: str) -> list[str]:
    """Call a program by its interpreter, where it names it."""
    try:
        with open(program, "rb") as file:
            named = _SHEBANG.match(file.readline())
    except OSError:
        named = None
    return [program] if named is None else [os.fsdecode(named[1]), *_OTHER]
