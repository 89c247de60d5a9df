"""Impossible rows of a damaged report."""

from __future__ import annotations

import warnings

import polars as pl

from nsys_pp.frames.raw import RawReport
from nsys_pp.model.session import find_first, read_time_shift
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


# 146 years: a sum or difference of two such times is below 2^63, and 2^62 is a mark of absent ones
_MOST_NS = (1 << 62) - 1
_FACTS = (
    ("session", "utc_epoch", 0),
    ("session", "system_clock", -_MOST_NS),
    ("capture", "duration", -_MOST_NS),
    ("capture", "session_start", -_MOST_NS),
)
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

    Sums and differences of these times would exceed 64 bits, and one event would do so to the whole trace. The same holds for
    their UTC.
    """
    _drop_impossible_facts(raw)
    to_utc_ns = (find_first(raw["session"]["utc_epoch"]) or 0) - read_time_shift(raw)
    least, most = max(-_MOST_NS, -_MOST_NS - to_utc_ns), min(_MOST_NS, _MOST_NS - to_utc_ns)
    for name, noun in {**_TIMED, **_INSTANTS}.items():
        if raw[name].is_empty():
            continue
        columns = [column for column in ("start", "end", "time") if column in raw[name].columns]
        if all(_is_within(raw[name][column], least, most) for column in columns):
            continue
        beyond = pl.any_horizontal(
            (pl.col(column) > most) | (pl.col(column) < least) for column in columns
        ).fill_null(value=False)
        passes = raw[name].select(~beyond).to_series()
        count = raw.keep(name, passes, "at impossible times")
        warnings.warn(f"`{raw.path}`: left out {count:,} {noun} with impossible times", stacklevel=4)


def _drop_impossible_facts(raw: RawReport) -> None:
    """Make times of the session null that no recording has; UTC is not before 1970."""
    for name, column, least in _FACTS:
        if not _is_within(raw[name][column], least, _MOST_NS):
            warnings.warn(f"`{raw.path}`: impossible {column} ignored", stacklevel=5)
            possible = pl.col(column).is_between(least, _MOST_NS)
            raw.frames[name] = raw[name].with_columns(pl.when(possible).then(column))


def _is_within(times: pl.Series, least: int, most: int) -> bool:
    """Return whether all times are within these limits; nulls are."""
    first, last = times.min(), times.max()
    return not (isinstance(first, int) and isinstance(last, int)) or (first >= least and last <= most)


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
