"""Rows that no recording can hold."""

from __future__ import annotations

import warnings
from dataclasses import replace

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


def drop_reversed(raw: RawReport) -> RawReport:
    """Leave out events that end before they start, and warn of how many there are.

    An interval turned round is damage, and any interval made of it would be wrong.
    """
    frames = dict(raw.frames)
    for name, words in _TIMED.items():
        events = raw[name]
        is_reversed = events["end"] < events["start"]
        if count := is_reversed.sum():
            warnings.warn(
                f"`{raw.path}`: left out {count:,} {words} that end before they start", stacklevel=4
            )
            frames[name] = events.filter(pl.lit(~is_reversed.fill_null(value=False)))
    return replace(raw, frames=frames)
