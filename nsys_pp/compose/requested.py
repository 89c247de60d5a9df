"""Data of tables on request: reports are read once more, with the tables that only these need."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from nsys_pp.arrays.launch_calls import find_launch_calls, gather_calls
from nsys_pp.arrays.search import find_first
from nsys_pp.compose.run import Run
from nsys_pp.frames.clock import Clock
from nsys_pp.frames.conform import conform
from nsys_pp.frames.groups import Group
from nsys_pp.frames.report import KERNEL_KINDS, NAME, Report
from nsys_pp.frames.requested import HOST_TIMES
from nsys_pp.frames.training import Training
from nsys_pp.model import build_report
from nsys_pp.model.recorded_kinds import name_option
from nsys_pp.projection.launches import match_launches
from nsys_pp.read import is_part, read_report
from nsys_pp.training.report.host_activities import find_activities

_HOST: frozenset[Group] = frozenset(
    {"ranges", "ops", "cpu", "copy_kinds", "show_os", "show_states", "show_samples"}
)
_BUBBLES = ("host", "data")
_RECORDED = {  # kind of data, and its noun, by table
    "metrics": ("gpu_metrics", "GPU metrics"),
    "step_metrics": ("gpu_metrics", "GPU metrics"),
    "network": ("nic_metrics", "network metrics"),
}
_ROWS = {"OS call": "OS calls", "state": "states"}  # activities, and their rows of a trace
_WITH_STACKS = ("OS calls", "CUDA call stacks")
_CALLER = " < "
_MOST_FUNCTIONS = 8  # of a stack in the table


def explain_no_rows(run: Run, training: Training, name: str) -> str:
    """Explain why a table that is built only if it is named has no rows.

    An option is spelled as in the version of nsys that recorded the first report.
    """
    reports = [recorded for recorded in run.inputs if not is_part(recorded.path)]
    is_host = name == "host"
    if is_host and not training.lane_states["cause"].is_in(_BUBBLES).any():
        return "there is no bubble of cause host or data"
    kind, noun = _RECORDED.get(name, ("", "activities of the host" if is_host else "rows of overhead"))
    if not reports and kind == "gpu_metrics":
        return (
            "none of the parts has GPU metrics of a GPU with kernels: record them, or extract the parts again"
        )
    if not reports and name == "network":
        return "none of the parts has network metrics in steps: record them, or extract the parts again"
    if not reports:
        return f"all inputs are parts, which have no {noun}: specify reports"
    if name == "overhead":
        return "no overhead was recorded on threads that launch"
    if is_host:
        return "no activity of the host was recorded in bubbles of cause host or data"
    facts = [recorded.part.facts for recorded in reports]
    if any(kind in (fact.recorded or ()) for fact in facts):
        return f"there are no samples of {noun} in the steps of any GPU with kernels"
    option = name_option(kind, nsys_version=facts[0].session.nsys_version)
    what = "the report has" if len(reports) == 1 else f"none of the {len(reports):,} reports has"
    return f"{what} {'no ' if len(reports) == 1 else ''}{noun}: record them with `nsys profile {option}`"


def read_host_times(run: Run, training: Training) -> pl.DataFrame:
    """Read the activities of launching threads in the bubbles of causes "host" and "data" (`HOST_TIMES`); parts have none.

    The launching thread of a bubble is that of the call that launched the next kernel of the GPU. Bubbles without one have
    the row of the bubbles alone.
    """
    bubbles = training.lane_states.filter(pl.col("cause").is_in(_BUBBLES)).join(
        training.lanes.select("lane", "report", "process_key", "device_id"), on="lane"
    )
    wanted = {
        recorded.path: move_to_report(bubbles.filter(pl.col("report") == at), run.clocks.clocks[at])
        for at, recorded in enumerate(run.inputs)
        if not is_part(recorded.path)
    }
    wanted = {path: frame for path, frame in wanted.items() if len(frame)}
    work = partial(_read_host, bubbles=wanted, nsys=run.batch.nsys)
    read = run.batch.map("reading hosts", list(wanted), work)
    parts = [HOST_TIMES.to_frame(), *read.values()]
    return pl.concat(parts).sort("lane", "cause", "activity", "name", nulls_last=False)


def move_to_report(frame: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """Map intervals from the trace's clock to the clock of a report."""
    return frame.with_columns(
        pl.Series(name, clock.to_report_times(frame[name].to_numpy())) for name in ("start_ns", "end_ns")
    )


def _read_host(path: Path, bubbles: Mapping[Path, pl.DataFrame], nsys: str | None) -> pl.DataFrame:
    report = build_report(read_report(path, need=_HOST, nsys=nsys), is_last_use=True)
    return sum_host_times(report, bubbles[path])


def sum_host_times(report: Report, bubbles: pl.DataFrame) -> pl.DataFrame:
    """Sum the activities of launching threads in bubbles.

    Args:
        report: Read with ranges, operations, names of calls, and activities.
        bubbles: lane, cause, process_key, device_id, start_ns and end_ns, on the report's clock.

    Returns:
        `HOST_TIMES`, in any order.
    """
    bubbles = bubbles.with_columns(thread_key=_find_threads(report, bubbles))
    length = pl.col("end_ns") - pl.col("start_ns")
    keys = ["lane", "cause"]
    whole = bubbles.group_by(keys).agg(time_ns=length.sum(), count=pl.len())
    parts = [whole.with_columns(activity=pl.lit(None, pl.String), name=pl.lit(None, pl.String))]
    known = bubbles.drop_nulls("thread_key")
    own = pl.col("end_thread_key").is_null()
    items = {"range": report.ranges.filter(own), "call": _mark_pageable(report)}
    for activity, row in _ROWS.items():
        items[activity] = report.activities.filter(pl.col("row") == row).drop_nulls("end_ns")
    for activity, frame in items.items():
        parts.append(_sum_times(known, frame, keys).with_columns(activity=pl.lit(activity)))
    for row in _WITH_STACKS:
        times = _sum_times(known, _name_by_stacks(report, row), keys).drop_nulls("name")
        parts.append(times.with_columns(activity=pl.lit("stack")))
    parts += _count_samples(report, known, keys)
    return pl.concat([part.pipe(_shape) for part in parts])


def _sum_times(bubbles: pl.DataFrame, items: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Sum the times of calls or ranges in bubbles: keys, name, time_ns, count (of bubbles)."""
    found = find_activities(bubbles, items)
    of = bubbles[found["interval"].to_numpy()].select(keys)
    return (
        of.hstack(found.select(pl.col("name").cast(pl.String), "time_ns"))
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


def _name_by_stacks(report: Report, row: str) -> pl.DataFrame:
    """Return the calls of a row of the trace with the outlines of their stacks as names; null without one."""
    calls = report.activities.filter(pl.col("row") == row).drop_nulls("end_ns")
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
        pl.col("activity").cast(HOST_TIMES["activity"]),
        pl.col("time_ns", "count").cast(pl.Int64),
        name=pl.coalesce("name", pl.when(pl.col("activity").is_not_null()).then(pl.lit("(no name)"))),
    ).pipe(conform, HOST_TIMES)


def _count_samples(report: Report, bubbles: pl.DataFrame, keys: list[str]) -> list[pl.DataFrame]:
    """Count the samples of launching threads inside bubbles, by their innermost function, and by their stack."""
    samples = report.activities.filter(pl.col("row") == "CPU samples").sort("start_ns")
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


def _find_threads(report: Report, bubbles: pl.DataFrame) -> pl.Series:
    """Find the thread that launched the next kernel after each bubble; null without one."""
    ops = report.gpu_ops.filter(
        ~pl.col("is_communication"), pl.col("kind").cast(pl.String).is_in(KERNEL_KINDS)
    ).sort("process_key", "device_id", "start_ns")
    owners = pl.concat([frame.select("process_key", "device_id") for frame in (ops, bubbles)])
    owner = owners.select(pl.struct(pl.all()).rank("dense").cast(pl.Int64)).to_series().to_numpy()
    at = find_first(
        owner[len(ops) :], bubbles["end_ns"].to_numpy(), owner[: len(ops)], ops["start_ns"].to_numpy()
    )
    op_ids = ops["op_id"].gather(pl.Series(at.clip(0))) if len(ops) else ops["op_id"]
    call = np.full(len(bubbles), -1)
    found = np.flatnonzero(at >= 0)
    if len(ops) and len(found):
        calls, gpu_ops = report.api_calls, report.gpu_ops
        call[found] = find_launch_calls(
            op_ids.gather(found),
            gpu_ops=gpu_ops,
            api_calls=calls,
            launches=match_launches(calls, gpu_ops),
        )
    thread = pl.Series(gather_calls(report.api_calls["thread_key"], call), dtype=pl.Int64)
    return thread.set(pl.Series(call < 0), None)
