"""Processes, threads and streams with events -> PROCESSES, THREADS, STREAMS."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from nsys_pp.arrays.columns import numbers
from nsys_pp.arrays.search import find_first_rows
from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import build_process_key, pid, process_key, tid
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
    # a thread may rename itself
    names = name_threads(raw).unique("thread_key", keep="last", maintain_order=True)
    return (
        keys.to_frame()
        .join(names, on="thread_key", how="left", maintain_order="left")
        .with_columns(process_key=process_key(pl.col("thread_key")), tid=tid(pl.col("thread_key")))
        .pipe(conform, THREADS)
    )


def name_threads(raw: RawReport) -> pl.DataFrame:
    """List the names of threads, with their `thread_key`, in the order of the export."""
    threads = raw["thread_names"]
    names = resolve(threads["name_id"], raw["strings"], dtype=pl.String())
    return pl.DataFrame({"thread_key": threads["thread"], "name": names}).drop_nulls("name")


def build_processes(raw: RawReport, events: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """List the processes with events.

    Args:
        raw: The report.
        events: Frames with a `process_key`.

    Returns:
        `PROCESSES` by `process_key`.
    """
    keys = _list_keys(frame["process_key"] for frame in events)
    names = raw["processes"].rename({"process": "process_key"}).drop("pid")
    names = names.unique("process_key", keep="last", maintain_order=True)
    return (
        keys.to_frame()
        .join(names, on="process_key", how="left", maintain_order="left")
        .with_columns(pid=pid(pl.col("process_key")))
        .pipe(conform, PROCESSES)
    )


def build_streams(raw: RawReport, processes: pl.DataFrame) -> pl.DataFrame:
    """List the known streams of processes with events.

    Returns:
        `STREAMS` by process, context and stream.
    """
    keys = ["process_key", "context_id", "stream_id"]
    names = _keyed(raw["stream_names"], "name").unique(keys, keep="last", maintain_order=True)
    streams = _keyed(raw["streams"], "priority", "kind")
    contexts = raw["contexts"].rename({"default_stream": "stream"})
    default = _keyed(contexts, is_null_stream=pl.lit(value=True)).unique(keys)
    listed = pl.concat([frame[keys] for frame in (streams, names, default)]).drop_nulls().unique()
    return (
        listed.filter(pl.col("process_key").is_in(processes["process_key"].implode()))
        .join(streams.unique(keys), on=keys, how="left")
        .join(names, on=keys, how="left")
        .join(default, on=keys, how="left")
        .with_columns(
            # a negative priority is recorded as 32 unsigned bits
            priority=pl.when(pl.col("priority") >= _UINT32 // 2)
            .then(pl.col("priority") - _UINT32)
            .otherwise(pl.col("priority")),
            is_default=(pl.col("kind") == "default").fill_null(value=False)
            | pl.col("is_null_stream").fill_null(value=False),
        )
        .sort(keys)
        .pipe(conform, STREAMS)
    )


def _list_keys(columns: Iterable[pl.Series]) -> pl.Series:
    """List the distinct keys in columns of one name, ascending."""
    distinct = [keys[find_first_rows(numbers(keys))] for keys in columns]
    return pl.concat(distinct).unique().drop_nulls().sort()


def _keyed(frame: pl.DataFrame, *columns: str, **more: pl.Expr) -> pl.DataFrame:
    """Add the process key to some columns; the default host is 0, the default virtual machine 1."""
    return frame.select(
        *columns,
        process_key=build_process_key(pl.col("host").fill_null(0), pl.col("vm").fill_null(1), pl.col("pid")),
        context_id="context",
        stream_id="stream",
        **more,
    )
