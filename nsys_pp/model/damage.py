"""Rows that no frame of a report can use: left out, each with a reason; builders of frames drop no others."""

from __future__ import annotations

import warnings
from itertools import product

import polars as pl

from nsys_pp.arrays.columns import is_among
from nsys_pp.errors import ReportError
from nsys_pp.frames.raw import REQUIRED, TIMES, RawReport
from nsys_pp.frames.report import Report
from nsys_pp.model.identity import find_first, read_time_shift

UNTIMED = "without times, as CUPTI writes what it did not measure"
LOST = "nsys always writes these columns, and results lack what they hold"
UNKNOWN_EVENT = "of an unknown type"
_MEANINGS = {
    "start": "without a start",
    "end": "without an end",
    "time": "without a time",
    "thread": "without a thread",
    "process": "without a process",
    "correlation": "without a correlation id",
    "kind": UNKNOWN_EVENT,
    "action": UNKNOWN_EVENT,
    "is_in": "without a direction",
    "change": UNKNOWN_EVENT,
    "address": "without an address",
    "is_call": "not calls: the start or the end of tracing",
    "rank": "without a rank",
    "text": "without a text",
    "sample": "without a sample",
    "symbol": "without a function",
    "stack_id": "without a number of the stack",
    "type": UNKNOWN_EVENT,
    "metric": "without a metric",
    "value": "without a value",
}
_OPS = ("kernels", "copies", "decompressions", "sets", "graphs")
# Tables whose incomplete rows are a reason to doubt the results, and the nouns of their rows.
NOTED = {
    "nvtx": "NVTX events",
    "calls": "CUDA calls",
    "kernels": "kernels",
    "copies": "copies",
    "sets": "memory sets",
    "graphs": "CUDA graphs",
    "decompressions": "decompressions",
    "mpi_messages": "MPI calls",
    "mpi_collectives": "collective MPI calls",
}
# Of events, operations or calls: up to this, what is off about them is only counted; beyond, a warning.
QUIET_SHARE = 0.01
_WITHOUT_TIMES = [_MEANINGS[column] for column in TIMES]


def drop_unusable(raw: RawReport) -> None:
    """Drop rows of `raw` that lack a required value; each reason is counted.

    What may change results is also a warning: rows without a time or a thread, and many events of unknown
    types.
    """
    for table, columns in REQUIRED.items():
        for column in columns:
            if raw[table][column].null_count():
                _drop(raw, table, raw[table][column].is_not_null(), _MEANINGS[column])
    _drop_notes(raw)
    kept = raw["activities"]["is_kept"].fill_null(value=True)  # null: of tables without kinds
    _drop(raw, "activities", kept, "other events: tracing itself, or times of other clocks")
    for table in _OPS:
        is_timed = (raw[table]["start"] != 0) | (raw[table]["end"] != 0)
        _drop(raw, table, is_timed, UNTIMED)
    _warn_of_absences(raw)
    severe = raw["diagnostics"]["severity"].is_in(("error", "warning")).fill_null(value=False)
    _drop(raw, "diagnostics", severe, "information, not an error or a warning")


def _drop_notes(raw: RawReport) -> None:
    """Drop NVTX events that are neither ranges nor marks and name neither domains nor categories.

    Also those without a start.
    """
    passes = pl.Series("", ~is_among(raw["nvtx"]["kind"], ("note",)))
    raw.keep("nvtx", passes, "notes: names of threads and devices, ends of domains")
    events = raw["nvtx"]
    if events["start"].null_count():
        names_others = events["kind"].is_in(["category", "domain"])  # has no time
        _drop(raw, "nvtx", events["start"].is_not_null() | names_others, _MEANINGS["start"])


def _warn_of_absences(raw: RawReport) -> None:
    """Warn of columns that the export lacks, of operations without a place, and of ids without names."""
    if raw.lost:
        warnings.warn(f"`{raw.path}` has no `{'`, `'.join(raw.lost)}`: {LOST}", stacklevel=4)
    for table, place in product(_OPS, ("device", "stream")):
        if count := raw[table][place].null_count():
            warnings.warn(
                f"`{raw.path}`: {count:,} of {raw[table].height:,} {NOTED[table]} have no {place}: they count"
                f" on {place} 0, of which gaps and overlaps may be wrong",
                stacklevel=4,
            )
    if raw["strings"]["text"].count():
        return
    unnamed = [
        noun
        for table, noun in NOTED.items()
        for column in ("name_id", "text_id")
        if column in raw[table].columns and raw[table][column].null_count() < raw[table].height
    ]
    if unnamed:
        warnings.warn(
            f"`{raw.path}` has no table of names with text: {', '.join(unnamed)} have none", stacklevel=4
        )


def _drop(raw: RawReport, table: str, passes: pl.Series, reason: str) -> None:
    total = len(passes)
    count = raw.keep(table, passes, reason)
    is_noted = table in NOTED or (table in _NOUNS and reason in _WITHOUT_TIMES)
    if count and is_noted and not (reason == UNKNOWN_EVENT and count <= total * QUIET_SHARE):
        noun = NOTED.get(table) or _NOUNS[table]
        warnings.warn(f"`{raw.path}`: left out {count:,} of {total:,} {noun} {reason}", stacklevel=5)


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
_FACTS = (  # times of the session, and the least of each
    ("session", "utc_epoch", 0),  # not before 1970
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
_NOUNS = {**_TIMED, **_INSTANTS}


def drop_impossible(raw: RawReport) -> None:
    """Drop events of `raw` at times that no recording has, with a warning of their number.

    Such a time of a session is null.

    Sums and differences of these times would exceed 64 bits, and one event would do so to the whole trace.
    The same holds for their UTC.
    """
    for name, column, least in _FACTS:
        if not _is_within(raw[name][column], least, _MOST_NS):
            warnings.warn(f"`{raw.path}`: impossible {column} ignored", stacklevel=4)
            possible = pl.col(column).is_between(least, _MOST_NS)
            raw.frames[name] = raw[name].with_columns(pl.when(possible).then(column))
    to_utc_ns = (find_first(raw["session"]["utc_epoch"]) or 0) - read_time_shift(raw)
    least, most = max(-_MOST_NS, -_MOST_NS - to_utc_ns), min(_MOST_NS, _MOST_NS - to_utc_ns)
    for name, noun in _NOUNS.items():
        columns = [column for column in TIMES if column in raw[name].columns]
        if all(_is_within(raw[name][column], least, most) for column in columns):
            continue
        beyond = pl.any_horizontal(
            (pl.col(column) > most) | (pl.col(column) < least) for column in columns
        ).fill_null(value=False)
        count = raw.keep(name, raw[name].select(~beyond).to_series(), "at impossible times")
        warnings.warn(f"`{raw.path}`: left out {count:,} {noun} with impossible times", stacklevel=4)


def _is_within(times: pl.Series, least: int, most: int) -> bool:
    """Return whether all times are within these limits; nulls are."""
    first, last = times.min(), times.max()
    return not (isinstance(first, int) and isinstance(last, int)) or (first >= least and last <= most)


def number_events(raw: RawReport) -> None:
    """Renumber NVTX events of `raw` where several share a number, or one has none.

    A warning has their number.

    Their numbers are ids of ranges: outer ranges are found by them, and equal ones would be around each
    other. Payloads refer to the numbers, so they are dropped.
    """
    events = raw["nvtx"]
    row = events["row"]
    numbers = row.to_numpy()
    is_ascending = not row.has_nulls() and bool((numbers[1:] > numbers[:-1]).all())
    if is_ascending or (wrong := len(row) - row.drop_nulls().n_unique()) == 0:
        return
    warnings.warn(
        f"`{raw.path}`: {wrong:,} NVTX events have no number of their own; all are renumbered, without "
        "payloads",
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
        passes = (events["end"] >= events["start"]).fill_null(value=True)
        if count := raw.keep(name, passes, "end before they start"):
            warnings.warn(f"`{raw.path}`: left out {count:,} {noun} that end before they start", stacklevel=4)


def drop_repeated_calls(raw: RawReport) -> None:
    """Drop calls of `raw` around another one of the same thread and correlation id: they are one.

    nsys 2023 stored a call whose stack it recorded twice, once around itself (`eventClass` 67).
    """
    calls, keys = raw["calls"], ["thread", "correlation"]
    if calls["correlation"].n_unique() == len(calls) or not calls.select(keys).is_duplicated().any():
        return
    inner_start = pl.col("start").max().over(keys)
    is_kept = (pl.col("start") == inner_start) | (pl.col("end") <= inner_start)
    raw.keep(
        "calls",
        calls.select(is_kept | pl.col("correlation").is_null()).to_series(),
        "stored twice: around itself, with a stack",
    )


MOST_DEVICES = 512  # pairs of process and GPU; a machine has 16 GPUs or fewer, and a process for each
MOST_THREADS = 50_000  # with events


def check_limits(report: Report) -> Report:
    """Return the report.

    Raises:
        ReportError: It has more GPUs or threads than a recording can have.
    """
    counts = {
        "GPUs (of all processes)": (len(report.devices), MOST_DEVICES),
        "threads with events": (len(report.threads), MOST_THREADS),
    }
    for noun, (count, most) in counts.items():
        if count > most:
            raise ReportError(
                f"`{report.path}` has {count:,} {noun}; expected at most {most:,}",
                "its numbers of devices or threads are damaged: export it again",
            )
    return report
