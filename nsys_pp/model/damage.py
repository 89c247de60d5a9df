"""Impossible rows of a damaged report."""

from __future__ import annotations

import warnings

import polars as pl

from nsys_pp.frames.raw import RawReport

_TIMED = {
    "nvtx": "NVTX ranges",
    "calls": "CUDA calls",
    "kernels": "kernels",
    "copies": "copies",
    "sets": "memory sets",
    "graphs": "CUDA graphs",
    "decompressions": "decompressions",
    "mpi_messages": "MPI calls",
    "mpi_collectives": "collective MPI calls",
    "os_calls": "calls of the operating system",
}


def drop_reversed(raw: RawReport) -> None:
    """Drop events of `raw` that end before they start, with a warning of their number.

    A reversed interval is damage, and all intervals derived from it would be wrong.
    """
    for name, noun in _TIMED.items():
        events = raw[name]
        is_reversed = events["end"] < events["start"]
        if count := is_reversed.sum():
            warnings.warn(f"`{raw.path}`: left out {count:,} {noun} that end before they start", stacklevel=4)
            raw.frames[name] = events.filter(pl.lit(~is_reversed.fill_null(value=False)))
