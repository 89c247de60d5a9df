"""Drawing of one report: the tree of its rows, and their contents.

GPU 0                   a GPU of the report
  GPU busy              counter; an overview of its metrics, or all of them, and counters of the report follow
  ranges                NVTX ranges projected on the GPU, nested
  communication         NCCL kernels
  stream 7 (default)    kernels, copies, sets
CPU: python 4242        a process, with detail "cpu" or data on request; counters of the process come first
  NVTX thread 4242      NVTX ranges on the CPU
  marks thread 4242
  CUDA API thread 4242
  OS calls thread 4242  on request, and likewise states, CPU samples, MPI, ...
GPU at 0000:3b:00.0     metrics of a GPU that no process uses; in a trace its row is in another report, or
"system" system                  on request: metrics of the network, messages of nsys, tables without
processes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import find_distinct, index_rows, keep_rows, numbers, pack
from nsys_pp.arrays.search import find_rows, list_groups
from nsys_pp.errors import ReportError
from nsys_pp.frames.part import Track
from nsys_pp.frames.report import Report, SampledMetric
from nsys_pp.options import Detail
from nsys_pp.output.trace.counters import Counter, busy_percent, list_counters, list_metrics
from nsys_pp.output.trace.drawing import (
    ArrangedSlices,
    CounterSubtrack,
    Drawing,
    MarkSubtrack,
    SliceSubtrack,
    Subtrack,
    is_flow,
)
from nsys_pp.output.trace.slices import (
    api_call_slices,
    cpu_range_slices,
    flat_subtracks,
    mark_points,
    nested_subtracks,
    operation_slices,
    range_slices,
)

SYSTEM = "system"
"""Name of the outermost row with what belongs to no process."""

_ARGUMENTS = (
    *("size_bytes", "peer", "tag", "stream_id", "cpu", "address", "count", "detail", "event_id", "stack"),
)


class ActivityRow(Struct, frozen=True, kw_only=True):
    """A row of a thread, of a process, or of the system.

    Attributes:
        title: Its title: "OS calls", "states".
        thread_key: None: a row of the process, or of the system.
        activities: `ACTIVITIES` with `activity_id`, `parent_id` (the innermost activity of the row around
            each), and columns of flow ids.
    """

    title: str
    thread_key: int | None
    activities: pl.DataFrame


def split_by_process(activities: pl.DataFrame) -> Mapping[int | None, list[ActivityRow]]:
    """Split `ACTIVITIES` into rows, by process; None: of the system."""
    rows: dict[int | None, list[ActivityRow]] = {}
    keys = ["process_key", "thread_key", "row"]
    for (process, thread, title), of_row in activities.partition_by(
        keys, as_dict=True, maintain_order=True
    ).items():
        row = ActivityRow(title=str(title), thread_key=thread, activities=of_row)
        rows.setdefault(process, []).append(row)
    return rows


def draw_activities(row: ActivityRow, track: tuple[str, ...]) -> Iterator[Subtrack]:
    """Draw a row: instants alone as marks, else slices.

    An activity without an end is a slice of no length.
    """
    activities = row.activities.sort("start_ns", maintain_order=True)
    if activities["end_ns"].null_count() == len(activities):
        marks = activities.select("name", *_ARGUMENTS, time_ns="start_ns", color=_no_color())
        yield MarkSubtrack(track=track, marks=marks)
        return
    parent = find_rows(numbers(activities["activity_id"]), numbers(activities["parent_id"]))
    slices = activities.select(
        "start_ns",
        end_ns=pl.coalesce("end_ns", "start_ns"),
        parent=pl.Series(parent),
        name="name",
        color=_no_color(),
        **{name: pl.col(name) for name in activities.columns if is_flow(name)},
        **{name: pl.col(name) for name in _ARGUMENTS},
    )
    for _, number, content in nested_subtracks(slices):
        yield SliceSubtrack(track=track, number=number, content=content)


def _no_color() -> pl.Expr:
    return pl.lit(None, dtype=pl.Categorical())


_NO_FLOW = pl.lit(None, dtype=pl.UInt64).alias("flow_id")
MOST_ROWS = 10_000  # subtracks of a track
MOST_SUBTRACKS = 20_000  # of a report
MOST_STREAMS = 4_096  # of a GPU; each takes some ms
_JOB_DEPTH = 3  # levels of ranges drawn with detail "jobs" if no range is a job
BUSY = "GPU busy"
GPU_AT = "GPU at "
"""Beginning of the row of a GPU that no process of the report uses; the rest is its bus location."""
_CPU_RANK = 1 << 40  # CPUs are below all GPUs of their machine

Path = tuple[str, ...]


class View(Struct, frozen=True, kw_only=True):
    """Frames of a report to draw.

    Attributes:
        report: The report, with the extra columns `parent_id` in `ranges`, and `flow_id` in `gpu_ops` and
            `api_calls`. It contains only the rows to draw.
        projections: `PROJECTIONS` to draw.
        crossing: range_id of the ranges that end on another thread than they began.
        job_ranges: `JOB_RANGES`; rows of jobs are drawn by `nsys_pp.output.trace.training_rows`.
        is_on_request: Whether data was read on request: `activities` of the report have the extra columns
            `activity_id` and `parent_id`, and its counters are drawn at every detail.
    """

    report: Report
    projections: pl.DataFrame
    crossing: pl.Series
    job_ranges: pl.DataFrame
    is_on_request: bool = False


def is_range_track(path: Path) -> bool:
    """Return whether the path of a track in its report is a row of projected ranges of a GPU."""
    return len(path) == 2 and not path[0].startswith("CPU: ") and path[1].split(" ")[0] == "ranges"


def is_busy_track(path: Path) -> bool:
    """Return whether the path of a track in its report is the counter of a GPU's load."""
    return len(path) == 2 and path[1] == BUSY


def draw_report(view: View, *, detail: Detail) -> Drawing:
    """Draw one report, independent of other reports.

    Args:
        view: The frames to draw.
        detail: "jobs" draws jobs only (if there are none, the three outermost levels of projected
            ranges), "ranges" all projected ranges and communication kernels, "kernels" also streams,
            "cpu" also CPU threads.

    Returns:
        The drawing; `tracks` may include tracks without subtracks, which are not drawn.
    """
    tracks, subtracks = dict[Path, Track](), list[Subtrack]()
    of_gpus = [view.report.devices]
    if view.report.devices.height != 1:
        number = pl.col("gpu").str.extract(r"(\d+)").cast(pl.Int64)
        devices = view.report.devices.sort(number, "gpu", "process_key", "device_id")
        of_gpus = devices.partition_by("gpu", maintain_order=True)
    for rank, gpu in enumerate(of_gpus):
        path = _add_track(tracks, (gpu["gpu"][0],), rank)
        _draw_gpu(view, gpu, path, detail, tracks, subtracks)
        if len(subtracks) > MOST_SUBTRACKS:
            raise _too_many_error(view, "rows of slices", len(subtracks), MOST_SUBTRACKS)
    if detail == "cpu" or view.is_on_request:
        _draw_cpu(view, tracks, subtracks)
    _draw_system(view, tracks, subtracks)
    return Drawing(report_id=view.report.fingerprint, tracks=list(tracks.values()), subtracks=subtracks)


def _draw_gpu(
    view: View,
    devices: pl.DataFrame,
    path: Path,
    detail: Detail,
    tracks: dict[Path, Track],
    subtracks: list[Subtrack],
) -> None:
    projections, ops, counters = view.projections, view.report.gpu_ops, view.report.counters
    if counters["device_id"].null_count():
        counters = counters.drop_nulls("device_id")
    if len(devices) < len(view.report.devices):
        projections, ops, counters = (
            frame.join(devices, on=["process_key", "device_id"], how="semi", maintain_order="left")
            for frame in (projections, ops, counters)
        )
    if detail == "jobs":
        if view.is_on_request:
            drawn = [*list_counters(counters), *list_metrics(_list_metrics(view, devices))]
            _draw_counters(drawn, path, tracks, subtracks)
        if view.job_ranges.is_empty():
            outermost = projections.filter(pl.col("depth") < _JOB_DEPTH)
            _draw_ranges(view, outermost, path, tracks, subtracks)
        return
    _draw_ranges(view, projections, path, tracks, subtracks)
    _draw_operations(view, devices, ops, counters, path, detail, tracks, subtracks)


def _draw_operations(
    view: View,
    devices: pl.DataFrame,
    ops: pl.DataFrame,
    counters: pl.DataFrame,
    path: Path,
    detail: Detail,
    tracks: dict[Path, Track],
    subtracks: list[Subtrack],
) -> None:
    """Draw the counters of a GPU, its communication and, with their detail, its streams."""
    busy = Counter(name=BUSY, unit="%", samples=busy_percent(ops["start_ns"], ops["end_ns"]))
    metrics = list_metrics(_list_metrics(view, devices))
    _draw_counters([busy, *metrics, *list_counters(counters)], path, tracks, subtracks)
    communication = _add_track(tracks, (*path, "communication"), 20)
    is_communication, details = ops["is_communication"].to_numpy(), view.report.op_details
    slices = operation_slices(ops, details) if detail != "ranges" else ops.clear()
    if detail == "ranges" or ops["flow_id"].null_count() < len(ops):  # arrows are drawn on streams alone
        shared = keep_rows(ops, is_communication).with_columns(_NO_FLOW)
        drawn = flat_subtracks(operation_slices(shared, details))
    else:
        drawn = flat_subtracks(slices, [np.flatnonzero(is_communication)] if is_communication.any() else [])
    subtracks += _subtracks(view, [communication], drawn)
    if detail != "ranges":
        _draw_streams(view, ops, slices, path, tracks, subtracks)


def _list_metrics(view: View, devices: pl.DataFrame) -> list[SampledMetric]:
    """List the sampled metrics of a GPU, which belong to one of its devices."""
    keys = set(zip(devices["process_key"], devices["device_id"], strict=True))
    return [
        metric for metric in view.report.sampled_metrics if (metric.process_key, metric.device_id) in keys
    ]


def _draw_counters(
    counters: list[Counter], path: Path, tracks: dict[Path, Track], subtracks: list[Subtrack]
) -> None:
    for order, counter in enumerate(counters):
        track = _add_track(tracks, (*path, counter.name), 0, order=order, unit=counter.unit)
        subtracks.append(CounterSubtrack(track=track, samples=counter.samples))


def _draw_ranges(
    view: View, projections: pl.DataFrame, path: Path, tracks: dict[Path, Track], subtracks: list[Subtrack]
) -> None:
    """Draw one row of ranges per launching thread, by descending number of ranges.

    Ranges that end on another thread have no children; they have a row of their own, the last one.
    """
    threads = _thread_names(view)
    crosses = np.isin(numbers(projections["range_id"]), numbers(view.crossing))
    first, thread = find_distinct(numbers(projections["thread_key"]))
    thread[crosses] = len(first)
    *of_threads, across = list_groups(thread, len(first) + 1)
    of_threads = sorted((rows for rows in of_threads if len(rows)), key=lambda rows: (-len(rows), rows[0]))
    paths = []
    for rank, rows in enumerate(of_threads):
        label = (
            "ranges"
            if len(of_threads) == 1
            else f"ranges of {threads[projections['thread_key'][int(rows[0])]]}"
        )
        paths.append(_add_track(tracks, (*path, label), 10, order=rank))
    if len(across):
        paths.append(_add_track(tracks, (*path, "ranges across threads"), 10, order=len(of_threads)))
        of_threads.append(across)
    slices = range_slices(projections, view.job_ranges)
    subtracks += _subtracks(view, paths, nested_subtracks(slices, of_threads))


def _draw_streams(
    view: View,
    ops: pl.DataFrame,
    slices: pl.DataFrame,
    path: Path,
    tracks: dict[Path, Track],
    subtracks: list[Subtrack],
) -> None:
    keys = ["process_key", "context_id", "stream_id"]
    first, stream = find_distinct(pack(*(numbers(ops[key]) for key in keys)))
    if not len(first):
        return
    if len(first) > MOST_STREAMS:
        raise _too_many_error(view, "streams of a GPU", len(first), MOST_STREAMS)
    order_of = np.lexsort([numbers(ops[key])[first] for key in reversed(keys)])
    used = index_rows(ops[keys], first[order_of]).rows()
    named = {
        (process, context, number): (name, is_default)
        for process, context, number, name, is_default in view.report.streams[
            [*keys, "name", "is_default"]
        ].iter_rows()
    }
    contexts = {key[:2] for key in used}
    processes = {process for process, _ in contexts}
    pids = dict(view.report.processes[["process_key", "pid"]].iter_rows())
    paths = []
    for order, key in enumerate(used):
        process, context, number = key
        name, is_default = named.get(key, (None, None))
        label = f"stream {number}"
        if name:
            label += f" {name}"
        if is_default:
            label += " (default)"
        if len(contexts) > len(processes):
            label += f", context {context}"
        if len(processes) > 1:
            label += f", pid {pids.get(process, '?')}"
        paths.append(_add_track(tracks, (*path, label), 30, order=order))
    rows = list_groups(stream, len(first))
    subtracks += _subtracks(view, paths, flat_subtracks(slices, [rows[row] for row in order_of.tolist()]))


def name_process_row(name: str | None, pid: int | None) -> str:
    """Format the name of the row of a process."""
    return f"CPU: {name or 'process'} {pid}"


def _draw_cpu(view: View, tracks: dict[Path, Track], subtracks: list[Subtrack]) -> None:
    names = _thread_names(view)
    ranges = view.report.ranges.partition_by("thread_key", as_dict=True)
    calls = view.report.api_calls.partition_by("thread_key", as_dict=True)
    marks = view.report.marks.sort("time_ns").partition_by("thread_key", as_dict=True)
    active = split_by_process(view.report.activities)
    for order, process in enumerate(view.report.processes.iter_rows(named=True)):
        path = (name_process_row(process["name"], process["pid"]),)
        _add_track(tracks, path, _CPU_RANK, order=order)
        of_process = view.report.counters.filter(
            pl.col("device_id").is_null(), pl.col("process_key") == process["process_key"]
        )
        _draw_counters(list_counters(of_process), path, tracks, subtracks)
        threads = view.report.threads.filter(pl.col("process_key") == process["process_key"])
        for rank, key in enumerate(threads["thread_key"].to_list()):
            name = names[key]
            if (key,) in ranges:
                track = _add_track(tracks, (*path, f"NVTX {name}"), 10, order=3 * rank)
                subtracks += _subtracks(
                    view, [track], nested_subtracks(cpu_range_slices(ranges[key,], view.job_ranges))
                )
            if (key,) in marks:
                track = _add_track(tracks, (*path, f"marks {name}"), 10, order=3 * rank + 1)
                subtracks.append(MarkSubtrack(track=track, marks=mark_points(marks[key,])))
            if (key,) in calls:
                track = _add_track(tracks, (*path, f"CUDA API {name}"), 10, order=3 * rank + 2)
                subtracks += _subtracks(view, [track], flat_subtracks(api_call_slices(calls[key,])))
        ranks = {key: rank for rank, key in enumerate(threads["thread_key"].to_list())}
        for row in active.get(process["process_key"], []):
            if row.thread_key is None:
                track = _add_track(tracks, (*path, row.title), 5)
            else:  # after the CUDA calls of the thread, by title
                name, order = names[row.thread_key], 3 * ranks[row.thread_key] + 2
                track = _add_track(tracks, (*path, f"{row.title} {name}"), 10, order=order)
            subtracks += draw_activities(row, track)


def _draw_system(view: View, tracks: dict[Path, Track], subtracks: list[Subtrack]) -> None:
    order = len(view.report.processes)
    by_row: dict[str, list[SampledMetric]] = {}
    for metric in view.report.sampled_metrics:
        if metric.process_key is None:
            by_row.setdefault(SYSTEM if metric.bus is None else f"{GPU_AT}{metric.bus}", []).append(metric)
    if view.is_on_request:
        by_row.setdefault(SYSTEM, [])
    for name, metrics in sorted(by_row.items()):
        path = _add_track(tracks, (name,), _CPU_RANK, order=order)
        drawn = list_metrics(metrics)
        if name == SYSTEM and view.is_on_request:  # after the metrics, not among them
            drawn += list_counters(view.report.counters.filter(pl.col("process_key").is_null()))
        _draw_counters(drawn, path, tracks, subtracks)
    if not view.is_on_request:
        return
    path = (SYSTEM,)
    for row in split_by_process(view.report.activities).get(None, []):
        track = _add_track(tracks, (*path, row.title), 10)
        subtracks += draw_activities(row, track)


def _subtracks(
    view: View, paths: Sequence[Path], parts: Iterable[tuple[int, int, ArrangedSlices]]
) -> Iterator[SliceSubtrack]:
    for track, number, part in parts:
        if number >= MOST_ROWS:
            raise _too_many_error(view, "slices at the same time in one row", number + 1, MOST_ROWS)
        yield SliceSubtrack(track=paths[track], number=number, content=part)


def _too_many_error(view: View, noun: str, count: int, most: int) -> ReportError:
    return ReportError(
        f"`{view.report.path}` has {count:,} or more {noun}; expected at most {most:,}",
        "its times or its numbers of streams are damaged; `nsys-pp check` lists overlapping kernels",
    )


def _add_track(
    tracks: dict[Path, Track],
    path: Path,
    rank: int,
    description: str = "",
    *,
    order: int = 0,
    unit: str | None = None,
) -> Path:
    """Add a track; siblings are sorted by `rank` (their kind), then by `order`."""
    tracks[path] = Track(
        path=path, name=path[-1], rank=rank * 1000 + order, description=description, counter_unit=unit
    )
    return path


def _thread_names(view: View) -> dict[int, str]:
    """Format the label of each thread: its name and tid, or "thread" and its tid, by thread_key."""
    return {
        key: f"{name} {tid}" if name else f"thread {tid}"
        for key, name, tid in view.report.threads[["thread_key", "name", "tid"]].iter_rows()
    }
