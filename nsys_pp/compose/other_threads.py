"""Activities of the threads that launch nothing during bubbles, such as the workers of a loader of data.

nsys does not record for whom a call waits: that these threads hold the launching one is a guess.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.arrays.columns import has_value, keep_rows, list_distinct, numbers
from nsys_pp.arrays.intervals import Intervals, intersect
from nsys_pp.arrays.members import mark_members
from nsys_pp.arrays.names import as_texts
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.names import NO_NAME
from nsys_pp.frames.report import Report

_DIGITS = r"\d+"
_DEVICE = ["process_key", "device_id"]


def sum_other_threads(
    report: Report, bubbles: pl.DataFrame, keys: Sequence[str], *, launches: pl.DataFrame
) -> pl.DataFrame:
    """Sum the activities of other threads during bubbles.

    Threads of the process of the bubble count, and those of processes without a GPU; none that launches. Their calls of the operating system,
    outermost ranges, and time on a processor are listed by name of the thread, with digits replaced.

    Args:
        report: Read with ranges, operations, names of calls, and activities.
        bubbles: `keys`, start_ns and end_ns; those of a device do not overlap.
        keys: Columns to sum by.
        launches: `LAUNCHES` of the report.

    Returns:
        keys, name ("pt_data_worker: read()"), time_ns (mean over the threads of this name with any activity), and count (of threads with it).
    """
    parts = [
        bubbles.clear().select(
            *keys, name=pl.lit("", pl.String), time_ns=pl.lit(0, pl.Int64), count=pl.lit(0, pl.Int64)
        )
    ]
    items = _list_items(report, launches)
    if items.is_empty():
        return parts[0]
    names = pl.concat([report.active_threads, report.threads]).unique("thread_key", keep="first")
    titles = names.select("thread_key", thread=pl.col("name").str.replace_all(_DIGITS, "*"))
    items = items.join(titles, on="thread_key", how="left").with_columns(
        pl.col("thread").fill_null(NO_NAME), process_key=process_key(pl.col("thread_key"))
    )
    with_gpus = report.devices["process_key"].implode()
    for key, own in bubbles.partition_by(_DEVICE, as_dict=True, maintain_order=True).items():
        others = items.filter((pl.col("process_key") == key[0]) | ~pl.col("process_key").is_in(with_gpus))
        sizes = others.group_by("thread").agg(size=pl.col("thread_key").n_unique())
        own = own.sort("start_ns")
        zero = numbers(own["start_ns"]) * 0
        inside = intersect(
            numbers(others["start_ns"]) * 0,
            numbers(others["start_ns"]),
            numbers(others["end_ns"]),
            Intervals(owner=zero, start=numbers(own["start_ns"]), end=numbers(own["end_ns"])),
        )
        found = pl.concat(
            [others.select("thread_key", "thread", "name")[inside.row], own.select(keys)[inside.other]],
            how="horizontal",
        ).with_columns(time_ns=pl.Series(inside.end - inside.start, dtype=pl.Int64))
        parts.append(
            found.group_by(*keys, "thread", "name")
            .agg(pl.col("time_ns").sum(), count=pl.col("thread_key").n_unique().cast(pl.Int64))
            .join(sizes, on="thread")
            .select(
                *keys,
                name=pl.format("{}: {}", "thread", "name"),
                time_ns=(pl.col("time_ns") // pl.col("size")).cast(pl.Int64),
                count="count",
            )
        )
    return pl.concat(parts)


def _list_items(report: Report, launches: pl.DataFrame) -> pl.DataFrame:
    """List the activities of threads that launch nothing: thread_key, start_ns, end_ns, name."""
    launching = list_distinct(numbers(report.api_calls["thread_key"])[numbers(launches["call_row"])])
    columns = ["thread_key", "start_ns", "end_ns", "name"]
    parts = [report.activities[columns].clear().with_columns(pl.col("name").cast(pl.String))]
    if len(report.activities):
        activities = report.activities.drop_nulls(["thread_key", "end_ns"])
        activities = keep_rows(activities, ~mark_members(numbers(activities["thread_key"]), launching))
        name = pl.col("name").cast(pl.String)
        calls = activities.filter(pl.col("row") == "OS calls")
        running = activities.filter(pl.col("row") == "states", name == "running")
        parts += [
            calls.select(*columns[:-1], name=pl.format("{}()", name.fill_null(NO_NAME))),
            running.select(*columns[:-1], name=name),
        ]
    is_other = ~mark_members(numbers(report.ranges["thread_key"]), launching)
    ranges = keep_rows(report.ranges, is_other & ~has_value(report.ranges["end_thread_key"]))
    if len(ranges):
        outermost = _keep_outermost(ranges)
        texts = as_texts(outermost["name"]).fill_null(NO_NAME)
        parts.append(outermost.select(*columns[:-1], name=pl.format("range {}", texts)))
    return pl.concat(parts)


def _keep_outermost(ranges: pl.DataFrame) -> pl.DataFrame:
    """Keep the ranges of each thread that are inside no other one."""
    ranges = ranges.sort("thread_key", "start_ns", -pl.col("end_ns"))
    reach = pl.col("end_ns").cum_max().shift(1).over("thread_key")
    return ranges.filter((pl.col("start_ns") >= reach).fill_null(value=True))
