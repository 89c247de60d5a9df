"""Activities of hosts in the bubbles of causes "host" and "data".

Of launching threads, and of others meanwhile.

nsys does not record for whom a call waits: that other threads hold the launching one is a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import (
    as_numbers,
    has_value,
    index_rows,
    keep_rows,
    list_distinct,
    numbers,
)
from nsys_pp.arrays.intervals import Intervals, intersect
from nsys_pp.arrays.launch_calls import find_launch_calls, gather_calls
from nsys_pp.arrays.names import as_texts
from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.names import NAME, NO_NAME
from nsys_pp.frames.part import BUBBLE_HOSTS, HOST_FRAMES
from nsys_pp.frames.raw import Group
from nsys_pp.frames.report import KERNEL_KINDS, Report
from nsys_pp.frames.requested import HOST_TIMES
from nsys_pp.frames.training import Training
from nsys_pp.model import add_activities, build_report
from nsys_pp.projection.launches import match_launches
from nsys_pp.read import is_part, read_part, read_report
from nsys_pp.run.run import Run
from nsys_pp.training.causes import cut_loading
from nsys_pp.training.gaps import find_activities
from nsys_pp.training.numbering import renumber_steps

_DIGITS = r"\d+"
_DEVICE = ["process_key", "device_id"]


def sum_other_threads(
    report: Report, bubbles: pl.DataFrame, keys: Sequence[str], *, launches: pl.DataFrame
) -> pl.DataFrame:
    """Sum the activities of other threads during bubbles.

    Threads of the process of the bubble count, and those of processes without a GPU; none that launches.
    Their calls of the operating system, outermost ranges, and time on a processor are listed by name of the
    thread, with digits replaced.

    Args:
        report: Read with ranges, operations, names of calls, and activities.
        bubbles: `keys`, start_ns and end_ns; those of a device do not overlap.
        keys: Columns to sum by.
        launches: `LAUNCHES` of the report.

    Returns:
        keys, name ("pt_data_worker: read()"), time_ns (mean over the threads of this name with any activity),
        and count (of threads with it).
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
        activities = keep_rows(activities, ~np.isin(numbers(activities["thread_key"]), launching))
        name = pl.col("name").cast(pl.String)
        calls = activities.filter(pl.col("row") == "OS calls")
        running = activities.filter(pl.col("row") == "states", name == "running")
        parts += [
            calls.select(*columns[:-1], name=pl.format("{}()", name.fill_null(NO_NAME))),
            running.select(*columns[:-1], name=name),
        ]
    is_other = ~np.isin(numbers(report.ranges["thread_key"]), launching)
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


MOST_ROWS = 20_000
"""Rows of a report; the names with least time are added up as `OTHERS` beyond it."""
OTHERS = "(other names)"
_OF_THREADS: frozenset[Group] = frozenset({"copy_kinds", "show_os", "show_states", "show_samples"})
_GROUPS: frozenset[Group] = _OF_THREADS | {"ranges", "ops", "cpu"}
_ROWS = {"OS call": "OS calls", "state": "states"}  # activities, and their rows of a trace
_WITH_STACKS = ("OS calls", "CUDA call stacks")
_SAMPLES = "CPU samples"
_CALLER = " < "
_MOST_FUNCTIONS = 8  # of a stack in the table
_KEYS = ["process_key", "device_id", "step", "cause"]


def list_bubble_hosts(
    path: Path, frames: Mapping[str, pl.DataFrame], *, nsys: str | None, report: Report | None = None
) -> pl.DataFrame:
    """List the activities of hosts in the bubbles of a report (`BUBBLE_HOSTS`).

    A report with bubbles is read once more.

    Args:
        path: The report.
        frames: Its training frames.
        nsys: Program that exports `.nsys-rep` files.
        report: The report, read with ranges, operations and communication: only its tables on request are
            read. None: it is not in memory.
    """
    bubbles = list_host_bubbles(frames)
    if bubbles.is_empty():
        return BUBBLE_HOSTS.to_frame()
    if report is None:
        report = build_report(read_report(path, need=_GROUPS, nsys=nsys), is_last_use=True)
    else:
        report = add_activities(report, read_report(path, need=_OF_THREADS, nsys=nsys))
    hosts = _bound(sum_host_times(report, bubbles))
    return hosts.sort(*_KEYS, "activity", "name", nulls_last=False)  # the same bytes of a part each time


def list_host_bubbles(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """List the bubbles of causes "host" and "data" of a report.

    Process_key, device_id, step, cause, start_ns, end_ns.

    As in `LANE_STATES`: loading of data by a thread with other jobs is cut out of late launches and of the
    ends of steps.
    """
    waits = (
        frames["waits"].filter(pl.col("cause").is_in(["host", "idle"])).select(*_KEYS, "start_ns", "end_ns")
    )
    jobs = frames["jobs"].filter(pl.col("range_id").is_not_null())
    thread = ["process_key", "thread_key"]
    working = jobs.filter(pl.col("kind") != "data").select(thread).unique()
    loading = jobs.filter(pl.col("kind") == "data").join(working, on=thread, how="semi")
    bubbles = cut_loading(waits, loading, owner="process_key").filter(pl.col("cause") != "idle")
    return bubbles.sort("process_key", "device_id", "start_ns")


def _bound(hosts: pl.DataFrame) -> pl.DataFrame:
    """Add up the names with least time, of each step, so that at most about `MOST_ROWS` are left."""
    if len(hosts) <= MOST_ROWS:
        return hosts
    names = (
        hosts.drop_nulls("name")
        .group_by("activity", "name")
        .agg(rows=pl.len(), weight=pl.coalesce(pl.col("time_ns").sum(), pl.lit(0)) + pl.col("count").sum())
        .sort("weight", "activity", "name", descending=[True, False, False])
        .with_columns(is_kept=pl.col("rows").cum_sum() <= MOST_ROWS)
    )
    keys = [*_KEYS, "activity", "name"]
    return (
        hosts.join(names.select("activity", "name", "is_kept"), on=["activity", "name"], how="left")
        .with_columns(
            name=pl.when(pl.col("is_kept").fill_null(value=True)).then("name").otherwise(pl.lit(OTHERS))
        )
        .group_by(keys)
        .agg(
            time_ns=pl.when(pl.col("time_ns").is_not_null().any()).then(pl.col("time_ns").sum()),
            count=pl.col("count").sum(),
        )
        .pipe(conform, BUBBLE_HOSTS)
    )


def sum_host_times(report: Report, bubbles: pl.DataFrame) -> pl.DataFrame:
    """Sum the activities of launching threads in bubbles.

    Args:
        report: Read with ranges, operations, names of calls, and activities.
        bubbles: `list_host_bubbles`.

    Returns:
        `BUBBLE_HOSTS`, in any order.
    """
    launches = match_launches(report.api_calls, report.gpu_ops)
    bubbles = bubbles.with_columns(thread_key=_find_threads(report, launches, bubbles))
    length = pl.col("end_ns") - pl.col("start_ns")
    whole = bubbles.group_by(_KEYS).agg(time_ns=length.sum(), count=pl.len())
    parts = [whole.with_columns(activity=pl.lit(None, pl.String), name=pl.lit(None, pl.String))]
    known = bubbles.drop_nulls("thread_key")
    own = keep_rows(report.ranges, ~has_value(report.ranges["end_thread_key"]))
    items = {"range": own, "call": _mark_pageable(report)}
    activities = report.activities
    if len(activities):
        rows = activities.partition_by("row", as_dict=True)
        calls = {str(row): frame.drop_nulls("end_ns") for (row,), frame in rows.items()}
        items |= {activity: calls[row] for activity, row in _ROWS.items() if row in calls}
        for row in filter(calls.__contains__, _WITH_STACKS):
            times = _sum_times(known, _name_by_stacks(calls[row]), _KEYS).drop_nulls("name")
            parts.append(times.with_columns(activity=pl.lit("stack")))
        if (_SAMPLES,) in rows:
            parts += _count_samples(rows[_SAMPLES,], known, _KEYS)
    for activity, frame in items.items():
        parts.append(_sum_times(known, frame, _KEYS).with_columns(activity=pl.lit(activity)))
    others = sum_other_threads(report, bubbles, _KEYS, launches=launches)
    if len(others):
        parts.append(others.with_columns(activity=pl.lit("other thread")))
    return pl.concat([part.pipe(_shape) for part in parts])


def _sum_times(bubbles: pl.DataFrame, items: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Sum the times of calls or ranges in bubbles: keys, name, time_ns, count (of bubbles)."""
    found = find_activities(bubbles, items)
    of = index_rows(bubbles[keys], numbers(found["interval"]))
    return (
        of.hstack([found["name"].cast(pl.String), found["time_ns"]])
        .group_by(*keys, "name")
        .agg(time_ns=pl.col("time_ns").sum(), count=pl.len())
    )


def _mark_pageable(report: Report) -> pl.DataFrame:
    """Return the CUDA calls; the names of copies from or to pageable memory end with this word."""
    if report.pageable_copies.is_empty():
        return report.api_calls
    keys = ["process_key", "correlation_id"]
    pageable = report.pageable_copies.with_columns(is_pageable=pl.lit(value=True))
    calls = report.api_calls.join(pageable, on=keys, how="left", maintain_order="left")
    name = pl.col("name").cast(pl.String)
    marked = pl.when("is_pageable").then(pl.format("{} pageable", name)).otherwise(name)
    return calls.with_columns(name=marked.cast(NAME))


def _name_by_stacks(calls: pl.DataFrame) -> pl.DataFrame:
    """Return calls with the outlines of their stacks as names; null without one."""
    return calls.with_columns(name=_outline_stacks(calls["stack"]).cast(NAME))


def _outline_stacks(stacks: pl.Series) -> pl.Series:
    """Shorten stacks.

    Addresses without names differ between processes, and many functions do not fit a table.

    >>> _outline_stacks(pl.Series(["read < 0x7f1 [libc.so] < 0x7f2 [libc.so] < main(int)"])).to_list()
    ['read < [libc.so] < main']
    """
    texts = stacks.cast(pl.String).alias("stack")
    functions = pl.col("stack").str.replace_all(r"0x[0-9a-fA-F]+ \[", "[").str.split(_CALLER)
    plain = functions.list.eval(pl.element().str.replace(r"^([^(]+)\(.*$", "$1"))  # without parameters
    distinct = plain.list.eval(pl.element().filter(pl.element().ne_missing(pl.element().shift(1))))
    outline = distinct.list.head(_MOST_FUNCTIONS).list.join(_CALLER)
    is_cut = distinct.list.len() > _MOST_FUNCTIONS
    unique = texts.drop_nulls().unique(maintain_order=True).to_frame()
    shortened = unique.with_columns(
        outline=pl.when(is_cut).then(outline + f"{_CALLER}...").otherwise(outline)
    )
    return texts.to_frame().join(shortened, on="stack", how="left", maintain_order="left")["outline"]


def _shape(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(
        pl.col("activity").cast(BUBBLE_HOSTS["activity"]),
        pl.col("time_ns", "count").cast(pl.Int64),
        name=pl.coalesce("name", pl.when(pl.col("activity").is_not_null()).then(pl.lit(NO_NAME))),
    ).pipe(conform, BUBBLE_HOSTS)


def _count_samples(samples: pl.DataFrame, bubbles: pl.DataFrame, keys: list[str]) -> list[pl.DataFrame]:
    """Count the samples of launching threads inside bubbles, by innermost function and by stack."""
    samples = samples.sort("start_ns")
    innermost = pl.col("outline").str.split(_CALLER).list.first()
    samples = samples.with_columns(_outline_stacks(samples["stack"])).with_columns(
        name=pl.coalesce(innermost, pl.col("name").cast(pl.String))
    )
    inside = samples.join_asof(
        bubbles.select(*keys, "thread_key", "end_ns", start="start_ns").sort("start"),
        left_on="start_ns",
        right_on="start",
        by="thread_key",
        check_sortedness=False,
        suffix="_of_bubble",
    ).filter(pl.col("start_ns") < pl.col("end_ns_of_bubble"))
    none = pl.lit(None, pl.Int64)
    return [
        inside.drop_nulls(name)
        .group_by(*keys, pl.col(name).cast(pl.String).alias("name"))
        .agg(count=pl.len())
        .with_columns(activity=pl.lit(activity), time_ns=none)
        for activity, name in (("sample", "name"), ("sample stack", "outline"))
    ]


def _find_threads(report: Report, launches: pl.DataFrame, bubbles: pl.DataFrame) -> pl.Series:
    """Find the thread that launched the next kernel after each bubble; null without one."""
    compute = report.gpu_ops.filter(
        pl.col("kind").cast(pl.String).is_in(KERNEL_KINDS) & ~pl.col("is_communication")
    )
    following = compute.select(*_DEVICE, "op_id", next_ns="start_ns").sort("next_ns")
    rows = bubbles.select(*_DEVICE, "end_ns").with_row_index("row")
    next_ops = rows.sort("end_ns").join_asof(
        following,
        left_on="end_ns",
        right_on="next_ns",
        by=_DEVICE,
        strategy="forward",
        check_sortedness=False,
    )
    found = next_ops.drop_nulls("op_id")
    if found.is_empty():
        return pl.Series("thread_key", [None] * len(bubbles), pl.Int64)
    call = find_launch_calls(
        found["op_id"], gpu_ops=report.gpu_ops, api_calls=report.api_calls, launches=launches
    )
    threads = as_numbers("thread_key", gather_calls(report.api_calls["thread_key"], call))
    launched = found.select("row").with_columns(threads)
    return rows.join(launched, on="row", how="left", maintain_order="left")["thread_key"]


def read_host_times(run: Run, training: Training, reports: Collection[int] | None = None) -> pl.DataFrame:
    """Read the activities of hosts in bubbles of causes "host" and "data" (`HOST_TIMES`).

    Parts keep them; reports are read once more. The launching thread of a bubble is that of the call that
    launched the next kernel of the GPU. Bubbles without one have
    the row of the bubbles alone.

    Args:
        run: The run.
        training: Its training.
        reports: Numbers of the inputs to read; None: all.
    """
    wanted = {at: one for at, one in enumerate(run.inputs) if reports is None or at in reports}
    own = {one.path: {} if is_part(one.path) else one.part.frames for one in wanted.values()}
    work = partial(_read_bubble_hosts, nsys=run.batch.nsys)
    read = run.batch.map("reading hosts", list(own), work, own)
    parts = [HOST_TIMES.to_frame()]
    lanes = run.numbered_steps.lanes.select("lane", "report", *_DEVICE)
    kept = training.steps.select("lane", "step")
    for at, recorded in wanted.items():
        hosts = read.get(recorded.path, parts[0])
        if len(hosts):
            located = run.captures.join(hosts.with_columns(report=pl.lit(at, pl.UInt32)))
            placed = located.join(lanes, on=["report", *_DEVICE]).drop("report")
            numbered = renumber_steps(placed, run.numbered_steps.numbers)
            parts.append(numbered.join(kept, on=["lane", "step"], how="semi").pipe(conform, HOST_TIMES))
    return pl.concat(parts).sort("lane", "step", "cause", "activity", "name", nulls_last=False)


def _read_bubble_hosts(path: Path, frames: Mapping[str, pl.DataFrame], *, nsys: str | None) -> pl.DataFrame:
    """Read `BUBBLE_HOSTS` of a part, or list them for a report with these training frames."""
    if not is_part(path):
        return list_bubble_hosts(path, frames, nsys=nsys)
    kept = read_part(path, (), version=version("nsys-pp"), optional=HOST_FRAMES).frames
    return kept.get("bubble_hosts", BUBBLE_HOSTS.to_frame())
