"""How many processes cores and memory are enough for."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from nsys_pp.executors.resources import count_cores, find_memory
from nsys_pp.frames.part import SUFFIX

# Peaks of `extract`, all details, measured from outside on reports with as many NVTX ranges as kernels:
# 1.6 MB of SQLite 0.14 GB, 15 MB 0.22 GB, 47 MB 0.37 GB, 162 MB 0.89 GB, 329 MB 1.57 GB. That is 0.15 GB and
# 4.3 bytes for each byte; reports of other shapes, and what allocators keep, have the rest.
BASE_BYTES = 250_000_000
BYTES_PER_BYTE = 6
# What compressed forms are taken to be larger as SQLite.
_GROWTH = {".sqlite": 1, ".nsys-rep": 10, ".qdrep": 10}
_FOLDER_GROWTH = 6


def estimate_peak(path: Path) -> int:
    """Estimate how many bytes of memory work on one report takes at most."""
    if path.suffix == SUFFIX:
        return BASE_BYTES
    try:
        if path.is_dir():
            size = sum(file.stat().st_size for file in path.iterdir()) * _FOLDER_GROWTH
        else:
            size = path.stat().st_size * _GROWTH.get(path.suffix, 1)
    except OSError:  # whoever reads it says what is wrong
        size = 0
    return BASE_BYTES + BYTES_PER_BYTE * size


def choose_jobs(paths: Sequence[Path], *, jobs: int | None = None, memory_bytes: int | None = None) -> int:
    """Choose how many processes work on reports; warns where memory may not be enough for the largest.

    Args:
        paths: The reports.
        jobs: At most so many; None: as many as there are cores, and as free memory is enough for.
        memory_bytes: At most so many that they, together, need no more than this.
    """
    if not paths:
        return 1
    most = min(len(paths), jobs or count_cores())
    memory = memory_bytes if memory_bytes is not None else find_memory() if jobs is None else None
    if memory is None:
        return most
    largest = max(paths, key=estimate_peak)
    peak = estimate_peak(largest)
    if memory_bytes is not None and peak > memory_bytes:
        warnings.warn(
            f"`{largest}` may need {peak / 1e9:.1f} GB of memory, which is more than `--memory`: reports are worked on"
            " one by one",
            stacklevel=4,
        )
    return max(1, min(most, memory // peak))
