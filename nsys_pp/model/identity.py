"""Who did it: processes, threads and streams that have events."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from nsys_pp.model.ids import join_process_key, pid, process_key, tid
from nsys_pp.model.names import look_up
from nsys_pp.raw import RawReport
from nsys_pp.schema import PROCESSES, STREAMS, THREADS, conform

_UINT32 = 1 << 32


def build_threads(raw: RawReport, events: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """List the threads with events; nsys lists all of the machine, and its own.

    Args:
        raw: The report.
        events: Frames with a `thread_key`.

    Returns:
        `THREADS` by `thread_key`.
    """
    keys = pl.concat([frame["thread_key"].unique() for frame in events]).unique().drop_nulls().sort()
    strings = look_up(raw["thread_names"]["name_id"], raw["strings"])
    names = (
        raw["thread_names"]
        .join(strings, left_on="name_id", right_on="id", how="inner")
        .filter(pl.col("thread").is_in(keys.implode()))
        .unique("thread", keep="last", maintain_order=True)  # a thread may rename itself
        .select(thread_key="thread", name="text")
    )
    return (
        keys.to_frame()
        .join(names, on="thread_key", how="left", maintain_order="left")
        .with_columns(process_key=process_key(pl.col("thread_key")), tid=tid(pl.col("thread_key")))
        .pipe(conform, THREADS)
    )


def build_processes(raw: RawReport, events: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """List the processes with events.

    Args:
        raw: The report.
        events: Frames with a `process_key`.

    Returns:
        `PROCESSES` by `process_key`.
    """
    keys = pl.concat([frame["process_key"].unique() for frame in events]).unique().drop_nulls().sort()
    names = (
        raw["processes"]
        .drop_nulls("process")
        .unique("process", keep="last", maintain_order=True)
        .select(process_key="process", name="name")
    )
    return (
        keys.to_frame()
        .join(names, on="process_key", how="left", maintain_order="left")
        .with_columns(pid=pid(pl.col("process_key")))
        .pipe(conform, PROCESSES)
    )


def build_streams(raw: RawReport, processes: pl.DataFrame) -> pl.DataFrame:
    """Gather what is known of the streams of processes with events.

    Returns:
        `STREAMS` by process, context and stream.
    """
    keys = ["process_key", "context_id", "stream_id"]
    names = _keyed(raw["stream_names"]).select(*keys, "name").unique(keys, keep="last", maintain_order=True)
    streams = _keyed(raw["streams"]).select(*keys, "priority", "kind")
    default = (
        _keyed(raw["contexts"].rename({"default_stream": "stream"}))
        .select(*keys, is_null_stream=pl.lit(value=True))
        .unique(keys)
    )
    known = pl.concat([frame.select(keys) for frame in (streams, names, default)]).drop_nulls().unique()
    return (
        known.filter(pl.col("process_key").is_in(processes["process_key"].implode()))
        .join(streams.unique(keys), on=keys, how="left")
        .join(names, on=keys, how="left")
        .join(default, on=keys, how="left")
        .with_columns(
            # a negative priority comes as 32 bits without a sign
            priority=pl.when(pl.col("priority") >= _UINT32 // 2)
            .then(pl.col("priority") - _UINT32)
            .otherwise(pl.col("priority")),
            is_default=(pl.col("kind") == "default").fill_null(value=False)
            | pl.col("is_null_stream").fill_null(value=False),
        )
        .sort(keys)
        .pipe(conform, STREAMS)
    )


def _keyed(frame: pl.DataFrame) -> pl.DataFrame:
    """Put the parts of a process's key together; without them there is host 0 and machine 1."""
    return frame.with_columns(
        process_key=join_process_key(pl.col("host").fill_null(0), pl.col("vm").fill_null(1), pl.col("pid")),
        context_id="context",
        stream_id="stream",
    )
