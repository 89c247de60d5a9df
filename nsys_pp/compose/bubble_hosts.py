"""Activities of the hosts of one report in the bubbles of causes "host" and "data": of launching threads, and of others meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import as_numbers, has_value, index_rows, is_among, keep_rows, numbers, pack
from nsys_pp.arrays.launch_calls import find_launch_calls, gather_calls
from nsys_pp.arrays.order import sort_rows
from nsys_pp.arrays.search import find_first
from nsys_pp.compose.other_threads import sum_other_threads
from nsys_pp.compose.report_memory import read_moved
from nsys_pp.frames.conform import conform
from nsys_pp.frames.groups import Group
from nsys_pp.frames.names import NO_NAME
from nsys_pp.frames.part_host import BUBBLE_HOSTS
from nsys_pp.frames.report import KERNEL_KINDS, NAME, Report
from nsys_pp.model import add_activities
from nsys_pp.projection.launches import match_launches
from nsys_pp.read import read_report
from nsys_pp.training.report.host_activities import find_activities
from nsys_pp.training.run.data_loading import cut_loading

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
    """List the activities of hosts in the bubbles of a report (`BUBBLE_HOSTS`); a report with bubbles is read once more.

    Args:
        path: The report.
        frames: Its training frames.
        nsys: Program that exports `.nsys-rep` files.
        report: The report, read with ranges, operations and communication: only its tables on request are read. None: it is not in memory.
    """
    bubbles = list_host_bubbles(frames)
    if bubbles.is_empty():
        return BUBBLE_HOSTS.to_frame()
    if report is None:
        report = read_moved(path, need=_GROUPS, nsys=nsys)
    else:
        report = add_activities(report, read_report(path, need=_OF_THREADS, nsys=nsys))
    hosts = _bound(sum_host_times(report, bubbles))
    return hosts.sort(*_KEYS, "activity", "name", nulls_last=False)  # the same bytes of a part each time


def list_host_bubbles(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """List the bubbles of causes "host" and "data" of a report: process_key, device_id, step, cause, start_ns, end_ns.

    As in `LANE_STATES`: loading of data by a thread with other jobs is cut out of late launches and of the ends of steps.
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
    outlines = _outline_stacks(calls["stack"])
    return calls.with_columns(name=outlines.cast(NAME))


def _outline_stacks(stacks: pl.Series) -> pl.Series:
    """Shorten stacks: addresses without names differ between processes, and many functions do not fit a table.

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
    """Count the samples of launching threads inside bubbles, by their innermost function, and by their stack."""
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
    ops, calls = report.gpu_ops, report.api_calls
    is_compute = is_among(ops["kind"], KERNEL_KINDS) & ~ops["is_communication"].to_numpy()
    row = np.flatnonzero(is_compute)
    columns = [numbers(ops[name])[row] for name in ("process_key", "device_id")]
    owner = pack(
        *(np.append(own, numbers(bubbles[name])) for own, name in zip(columns, _KEYS[:2], strict=True))
    )
    start = numbers(ops["start_ns"])[row]
    order = sort_rows(owner[: len(row)], start)
    at = find_first(owner[len(row) :], numbers(bubbles["end_ns"]), owner[order], start[order])
    call = np.full(len(bubbles), -1)
    found = np.flatnonzero(at >= 0)
    if len(found):
        op_ids = ops["op_id"].gather(pl.Series(row[order[at[found]]]))
        call[found] = find_launch_calls(op_ids, gpu_ops=ops, api_calls=calls, launches=launches)
    return as_numbers("thread_key", gather_calls(calls["thread_key"], call))
