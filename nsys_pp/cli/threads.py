"""Threads of the libraries for arrays and frames: one, where all inputs are small.

Their frames then take microseconds, and to hand each to another thread costs a tenth of the processor time of a command.
The libraries read these variables when they are imported, which is after the command line is parsed.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterable, Iterator, Sequence

from nsys_pp.units import BYTES_PER_MIB

_VARIABLES = ("POLARS_MAX_THREADS", "OPENBLAS_NUM_THREADS")
_LARGE_BYTES = 32 * BYTES_PER_MIB  # of one file
_MOST_BYTES, _MOST_FILES = 512 * BYTES_PER_MIB, 4_096  # of all; beyond, nothing is limited
_LIBRARIES = ("polars", "numpy")


def limit_threads(inputs: Sequence[str]) -> None:
    """Have the libraries use one thread if all inputs are small; a variable that the user has set stays.

    Args:
        inputs: Files, folders, or glob patterns, as named by the user.
    """
    if any(library in sys.modules for library in _LIBRARIES):
        return
    total = 0
    for count, size in enumerate(_list_sizes(inputs)):
        total += size
        if size > _LARGE_BYTES or total > _MOST_BYTES or count >= _MOST_FILES:
            return
    for variable in _VARIABLES:
        os.environ.setdefault(variable, "1")


def _list_sizes(inputs: Iterable[str]) -> Iterator[int]:
    """List the sizes of all files below inputs, in bytes; unreadable ones are left to the command."""
    for named in inputs:
        paths = [named] if os.path.lexists(named) else glob.iglob(named, recursive=True)
        for path in paths:
            below = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
            for file in below if os.path.isdir(path) else (path,):
                try:
                    yield os.stat(file).st_size
                except OSError:
                    continue
