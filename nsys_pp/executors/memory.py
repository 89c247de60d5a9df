"""Number of processes that fit cores and memory."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from nsys_pp.executors.resources import count_cores, find_memory
from nsys_pp.frames.part import SUFFIX

# Peaks of `extract`, all details, measured from outside on reports with as many NVTX ranges as kernels:
# 1.6 MB of SQLite 0.14 GB, 15 MB 0.22 GB, 47 MB 0.37 GB, 162 MB 0.89 GB, 329 MB 1.57 GB. That is 0.15 GB and
# 4.3 bytes for each byte; the rest is a margin for reports of other shapes and for memory that allocators keep.
BASE_BYTES = 250_000_000
BYTES_PER_BYTE = 6
_LARGE_BYTES = 1_000_000_000  # of an estimate; with less, free memory is not looked at
# Assumed size as SQLite, relative to the compressed form.
_GROWTH = {".sqlite": 1, ".nsys-rep": 10, ".qdrep": 10}
_FOLDER_GROWTH = 6


def estimate_peak(path: Path) -> int:
    """Estimate the peak memory of processing one report, in bytes."""
    if path.suffix.lower() == SUFFIX:
        return BASE_BYTES
    try:
        if path.is_dir():
            size = sum(file.stat().st_size for file in path.iterdir()) * _FOLDER_GROWTH
        else:
            size = path.stat().st_size * _GROWTH.get(path.suffix.lower(), 1)
    except OSError:  # reading it will raise the error
        size = 0
    return BASE_BYTES + BYTES_PER_BYTE * size


def warn_of_large(paths: Sequence[Path]) -> None:
    """Warn where the largest report may need more memory than is free: the system ends a process without a word."""
    sizes = {path: estimate_peak(path) for path in paths}
    largest = max(sizes, key=lambda path: sizes[path], default=None)
    if largest is None or sizes[largest] < _LARGE_BYTES:
        return
    free = find_memory()
    if free is not None and sizes[largest] > free:
        warnings.warn(
            f"`{largest}` may need {sizes[largest] / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free:"
            " `--memory` ends such a report with an error, before the system ends the program",
            stacklevel=5,
        )


def choose_process_count(
    paths: Sequence[Path], *, processes: int | None = None, memory_bytes: int | None = None
) -> int:
    """Choose the number of processes; warns where memory may be too small for the largest report.

    Args:
        paths: The reports.
        processes: Upper limit; None: as many as cores and free memory allow.
        memory_bytes: Memory limit of all processes together.
    """
    if not paths:
        return 1
    most = min(len(paths), processes or count_cores())
    memory = memory_bytes if memory_bytes is not None else find_memory() if processes is None else None
    if memory is None:
        return most
    largest = max(paths, key=estimate_peak)
    peak = estimate_peak(largest)
    if memory_bytes is not None and peak > memory_bytes:
        warnings.warn(
            f"`{largest}` may need {peak / 1e9:.1f} GB of memory, which is more than `--memory`: reports are"
            " processed one by one",
            stacklevel=5,
        )
    return max(1, min(most, memory // peak))
