"""Threads of the libraries for arrays and frames: one, where all inputs are small.

Their frames then take microseconds, and to hand each to another thread costs a tenth of the processor time of
a command. Parts are small, but their frames are joined: those of many take milliseconds, and two stages may
work on them at once. The libraries read these variables when they are imported, which is after the command
line is parsed.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterable, Iterator, Sequence

from nsys_pp.units import BYTES_PER_MIB

_VARIABLES = ("POLARS_MAX_THREADS", "OPENBLAS_NUM_THREADS")
_PART = ".nspart"
_PARTS_BYTES = 4 * BYTES_PER_MIB  # of all parts, from which on frames have two threads
_LARGE_BYTES = 32 * BYTES_PER_MIB  # of one file
_MOST_BYTES, _MOST_FILES = 512 * BYTES_PER_MIB, 4_096  # of all; beyond, nothing is limited
_LIBRARIES = ("polars", "numpy")


def limit_threads(inputs: Sequence[str]) -> None:
    """Have the libraries use one thread if all inputs are small, for frames of many parts two.

    A variable that the user has set stays.

    Args:
        inputs: Files, folders, or glob patterns, as named by the user.
    """
    if any(library in sys.modules for library in _LIBRARIES):
        return
    total = of_parts = 0
    for number, (name, size) in enumerate(_list_sizes(inputs)):
        total += size
        of_parts += size if name.endswith(_PART) else 0
        if size > _LARGE_BYTES or total > _MOST_BYTES or number >= _MOST_FILES:
            return
    of_frames = "2" if of_parts >= _PARTS_BYTES else "1"
    for variable, count in zip(_VARIABLES, (of_frames, "1"), strict=True):
        os.environ.setdefault(variable, count)


def _list_sizes(inputs: Iterable[str]) -> Iterator[tuple[str, int]]:
    """List the names and sizes of all files below inputs, in bytes.

    Unreadable ones are left to the command.
    """
    for named in inputs:
        paths = [named] if os.path.lexists(named) else glob.iglob(named, recursive=True)
        for path in paths:
            below = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
            for file in below if os.path.isdir(path) else (path,):
                try:
                    yield file, os.stat(file).st_size
                except OSError:
                    continue
