"""Processes, threads and streams with events -> PROCESSES, THREADS, STREAMS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, list_distinct, numbers
from nsys_pp.arrays.search import number_keys
from nsys_pp.arrays.series import build_column
from nsys_pp.frames.columns import build_frame
from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import list_process_keys, pid, process_key, tid
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import PROCESSES, STREAMS, THREADS
from nsys_pp.model.names import resolve

_UINT32 = 1 << 32


def build_threads(raw: RawReport, events: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """List the threads with events; nsys records all threads of the machine, and its own.

    Args:
        raw: The report.
        events: Frames with a `thread_key`.

    Returns:
        `THREADS` by `thread_key`.
    """
    keys = _list_keys(frame["thread_key"] for frame in events)
    if keys.is_empty():
        return THREADS.to_frame()
    named = name_threads(raw)
    name_of = dict(named.iter_rows())  # the last one: a thread may rename itself
    names = pl.Series("name", [*map(name_of.get, keys.to_list())], dtype=pl.String)
    columns = [keys.alias("thread_key"), process_key(keys).alias("process_key"), tid(keys).alias("tid")]
    return conform(build_frame([*columns, names]), THREADS)


def name_threads(raw: RawReport) -> pl.DataFrame:
    """List the names of threads, with their `thread_key`, in the order of the export."""
    threads = raw["thread_names"]
    names = resolve(threads["name_id"], raw["strings"], dtype=pl.String())
    named = build_frame([threads["thread"].alias("thread_key"), names.alias("name")])
    return named.drop_nulls("name") if names.null_count() else named


def build_processes(raw: RawReport, events: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """List the processes with events.

    Args:
        raw: The report.
        events: Frames with a `process_key`.

    Returns:
        `PROCESSES` by `process_key`.
    """
    keys = _list_keys(frame["process_key"] for frame in events)
    if keys.is_empty():
        return PROCESSES.to_frame()
    name_of = dict(
        zip(raw["processes"]["process"].to_list(), raw["processes"]["name"].to_list(), strict=True)
    )
    names = pl.Series("name", [*map(name_of.get, keys.to_list())], dtype=pl.String)
    return conform(
        build_frame([keys.alias("process_key"), build_column("pid", pid(keys.to_numpy())), names]), PROCESSES
    )


def build_streams(raw: RawReport, processes: pl.DataFrame) -> pl.DataFrame:
    """List the known streams of processes with events.

    Returns:
        `STREAMS` by process, context and stream.
    """
    streams = raw["streams"]
    kind_of = dict(
        zip(
            _list_streams(streams),
            zip(streams["priority"].to_list(), streams["kind"].to_list(), strict=True),
            strict=True,
        )
    )
    name_of = dict(
        zip(_list_streams(raw["stream_names"]), raw["stream_names"]["name"].to_list(), strict=True)
    )
    default = {*_list_streams(raw["contexts"], "default_stream")}
    known = {*processes["process_key"].to_list()}
    rows = []
    for key in sorted(key for key in {*kind_of, *name_of, *default} if None not in key and key[0] in known):
        priority, kind = kind_of.get(key, (None, None))
        if priority is not None and priority >= _UINT32 // 2:  # a negative one, as 32 unsigned bits
            priority -= _UINT32
        rows.append((*key, name_of.get(key), priority, kind == "default" or key in default))
    return pl.DataFrame(rows, schema=STREAMS, orient="row") if rows else STREAMS.to_frame()


def _list_keys(columns: Iterable[pl.Series]) -> pl.Series:
    """List the distinct keys in columns, ascending."""
    parts = [numbers(keys) for keys in columns if not keys.is_empty()]
    if not parts:
        return pl.Series(dtype=pl.Int64)
    distinct = list_distinct(np.concatenate([part[number_keys(part)[0]] for part in parts]))
    return build_column("", distinct[distinct != NEVER])


def _list_streams(frame: pl.DataFrame, column: str = "stream") -> Iterator[tuple[int | None, ...]]:
    """List the process key, context and stream of the rows of a raw frame."""
    return zip(
        list_process_keys(frame).to_list(), frame["context"].to_list(), frame[column].to_list(), strict=True
    )
