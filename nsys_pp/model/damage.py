"""Impossible rows of a damaged report."""

from __future__ import annotations

import warnings

import polars as pl

from nsys_pp.frames.raw import RawReport
from nsys_pp.model.usable_rows import NOTED

_TIMED = {
    **NOTED,
    "nvtx": "NVTX ranges",
    "os_calls": "calls of the operating system",
    "activities": "rows shown on request",
    "network_metrics": "samples of the network",
    "processor_counts": "counters of processors",
    "mpi_requests": "requests of MPI",
    "overheads": "overheads of nsys",
    "cuda_overheads": "overheads of CUDA",
    "call_stacks": "CUDA calls with stacks",
}


_MOST_NS = 1 << 62  # 146 years; with a UTC of up to as much, and in differences, times stay below 2^63
_FACTS = {"session": ("utc_epoch", "system_clock"), "capture": ("duration",)}
_INSTANTS = {
    "thread_switches": "switches of threads",
    "switches": "switches of threads",
    "samples": "CPU samples",
    "gpu_metrics": "samples of GPU metrics",
    "soc_metrics": "samples of the system",
    "generic_events": "samples of the system",
    "gpu_contexts": "switches of contexts",
    "memory_pools": "operations on memory pools",
    "cuda_memory": "allocations of GPU memory",
    "mpi_communicators": "MPI communicators",
}


def drop_impossible(raw: RawReport) -> None:
    """Drop events of `raw` at times that no recording has, with a warning of their number; such a time of a session is null.

    Sums and differences of these times would exceed 64 bits, and one event would do so to the whole trace.
    """
    for name, noun in {**_TIMED, **_INSTANTS}.items():
        if raw[name].is_empty():
            continue
        columns = [column for column in ("start", "end", "time") if column in raw[name].columns]
        if all(_is_possible(raw[name][column]) for column in columns):
            continue
        beyond = pl.any_horizontal(
            (pl.col(column) > _MOST_NS) | (pl.col(column) < -_MOST_NS) for column in columns
        ).fill_null(value=False)
        passes = raw[name].select(~beyond).to_series()
        count = raw.keep(name, passes, "at impossible times")
        warnings.warn(f"`{raw.path}`: left out {count:,} {noun} with impossible times", stacklevel=4)
    for name, columns_of_facts in _FACTS.items():
        facts = raw[name]
        wrong = [column for column in columns_of_facts if not _is_possible(facts[column])]
        if wrong:
            warnings.warn(f"`{raw.path}`: impossible {' and '.join(wrong)} ignored", stacklevel=4)
            possible = (pl.col(wrong) <= _MOST_NS) & (pl.col(wrong) >= -_MOST_NS)
            raw.frames[name] = facts.with_columns(pl.when(possible).then(pl.col(wrong)))


def _is_possible(times: pl.Series) -> bool:
    """Return whether no time is beyond `_MOST_NS`; nulls are possible."""
    first, last = times.min(), times.max()
    return not (isinstance(first, int) and isinstance(last, int)) or (first >= -_MOST_NS and last <= _MOST_NS)


def number_events(raw: RawReport) -> None:
    """Renumber NVTX events of `raw` where several share a number, or one has none; a warning has their number.

    Their numbers are ids of ranges: outer ranges are found by them, and equal ones would be around each other. Payloads
    refer to the numbers, so they are dropped.
    """
    events = raw["nvtx"]
    row = events["row"]
    numbers = row.to_numpy()
    is_ascending = not row.has_nulls() and bool((numbers[1:] > numbers[:-1]).all())
    if is_ascending or not len(row) or (not row.has_nulls() and row.n_unique() == len(row)):
        return
    wrong = len(row) - row.drop_nulls().n_unique()
    warnings.warn(
        f"`{raw.path}`: {wrong:,} NVTX events have no number of their own; all are renumbered, without payloads",
        stacklevel=4,
    )
    raw.frames["nvtx"] = events.with_columns(row=pl.int_range(1, pl.len() + 1, dtype=pl.Int64))
    raw.frames["payloads"] = raw["payloads"].clear()


def drop_reversed(raw: RawReport) -> None:
    """Drop events of `raw` that end before they start, with a warning of their number.

    A reversed interval is damage, and all intervals derived from it would be wrong.
    """
    for name, noun in _TIMED.items():
        events = raw[name]
        if (
            events.is_empty() or not (events["end"] < events["start"]).any()
        ):  # of no row, and null where a time is
            continue
        passes = (events["end"] >= events["start"]).fill_null(value=True)
        if count := raw.keep(name, passes, "end before they start"):
            warnings.warn(f"`{raw.path}`: left out {count:,} {noun} that end before they start", stacklevel=4)
