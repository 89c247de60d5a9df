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
from functools import cache
from itertools import pairwise

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from nsys_pp.arrays.columns import (
    add_constants,
    clear_values,
    find_distinct,
    gather,
    index_rows,
    keep_rows,
    numbers,
    pack,
)
from nsys_pp.arrays.intervals import average_windows
from nsys_pp.arrays.search import find_rows, list_groups, sort_rows
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.errors import ReportError
from nsys_pp.frames.conform import NO_NAME, build_frame, build_nulls, conform
from nsys_pp.frames.part import Track
from nsys_pp.frames.report import (
    METRIC_VALUES,
    OP_KIND,
    OpDetails,
    Report,
    SampledMetric,
    drop_unit,
    is_of_overview,
)
from nsys_pp.frames.training import JOB_KINDS
from nsys_pp.options import Detail
from nsys_pp.output.trace.drawing import (
    SAMPLES,
    ArrangedSlices,
    CounterSubtrack,
    Drawing,
    MarkSubtrack,
    SliceSubtrack,
    Subtrack,
    is_flow,
)
from nsys_pp.output.trace.packing import nest_order, pack_flat, pack_nested

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
        job_ranges: `JOB_RANGES`; rows of jobs are drawn by `nsys_pp.output.trace.run_tracks`.
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
        shared = keep_rows(ops, is_communication).with_columns(pl.lit(None, dtype=pl.UInt64).alias("flow_id"))
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


Tracks = Sequence[Int64s] | None


_NO_FLOW = pl.Series("flow_id", [None], dtype=pl.UInt64)


_KIND_COLORS = {"memcpy": "copy", "memset": "memset", "graph": "graph"}


def range_slices(projections: pl.DataFrame, job_ranges: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of projected ranges (`PROJECTIONS`), with `parent`.

    Row of the slice around each, or -1.

    Ranges of `job_ranges` (`JOB_RANGES`) have the color of their kind of job.
    """
    columns = {
        "start_ns": projections["gpu_start_ns"],
        "end_ns": projections["gpu_end_ns"],
        "parent": _parent_rows(projections),
        "name": _named(projections["name"]),
        "color": _color_jobs(projections, job_ranges),
        "domain": projections["domain"],
        "cpu_start_ns": projections["start_ns"],
        "cpu_duration_ns": projections["end_ns"] - projections["start_ns"],
        "calls": projections["call_count"],
        "operations": projections["op_count"],
        "busy_ns": projections["busy_ns"],
        "busy_percent": _measure_busy(projections),
        "first_operation": projections["first_op"],
        "last_operation": projections["last_op"],
        "scope": projections["scope"].cast(pl.Categorical()),
        "is_open": clear_values(projections["is_open"], ~projections["is_open"].to_numpy()),
        "range_id": projections["range_id"],
    }
    slices = build_frame(column.alias(name) for name, column in columns.items())
    return add_constants(slices, [_NO_FLOW])


def _measure_busy(projections: pl.DataFrame) -> pl.Series:
    """Measure the busy part of each range on the GPU, in percent; null for a range without length."""
    busy, start, end = (projections[name].to_numpy() for name in ("busy_ns", "gpu_start_ns", "gpu_end_ns"))
    has_length = end > start
    percent = pl.Series("", np.round(100 * busy / np.where(has_length, end - start, 1), 1))
    return percent if has_length.all() else clear_values(percent, ~has_length)


@cache
def _list_colors() -> pl.Series:
    """List the color of each kind of operation, and of communication at last."""
    colors = [*map(_KIND_COLORS.get, OP_KIND.categories.to_list()), "communication"]
    return pl.Series("color", colors, dtype=pl.Categorical())


def operation_slices(gpu_ops: pl.DataFrame, op_details: OpDetails) -> pl.DataFrame:
    """Build the slices of GPU operations (`GPU_OPS` with `flow_id`).

    If details were read, they are arguments.
    """
    colors = _list_colors()
    color = numbers(gpu_ops["kind"])
    color[gpu_ops["is_communication"].to_numpy()] = len(colors) - 1
    slices = [
        *(gpu_ops[name] for name in ("start_ns", "end_ns")),
        *(_named(gpu_ops["name"]), gather(colors, color)),
        *(gpu_ops[name] for name in ("flow_id", "correlation_id", "graph_id")),
    ]
    if len(op_details.row):
        details = index_rows(op_details.distinct, op_details.row[gpu_ops["op_id"].to_numpy()])
        slices += details.get_columns()
    return build_frame(slices)


def cpu_range_slices(ranges: pl.DataFrame, job_ranges: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of ranges on the CPU (`RANGES` with `parent_id`).

    With `parent` and colors as `range_slices`.
    """
    return ranges.select(
        "start_ns",
        "end_ns",
        parent=_parent_rows(ranges),
        name=_named(ranges["name"]),
        color=_color_jobs(ranges, job_ranges),
        flow_id=pl.lit(None, dtype=pl.UInt64),
        domain="domain",
        category="category",
        payload=pl.col("payload").cast(pl.Categorical()),
        is_open=pl.when("is_open").then(pl.lit(True)),
        range_id="range_id",
    )


def api_call_slices(api_calls: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of API calls (`API_CALLS` with `flow_id`)."""
    return api_calls.select(
        "start_ns",
        "end_ns",
        name=_named(api_calls["name"]),
        color=_no_color(),
        flow_id="flow_id",
        correlation_id="correlation_id",
    )


def mark_points(marks: pl.DataFrame) -> pl.DataFrame:
    """Build the instants of marks (`MARKS`), as `MARK_POINTS` with arguments."""
    return marks.select(
        "time_ns",
        name=_named(marks["name"]),
        color=_no_color(),
        domain="domain",
        category="category",
        payload=pl.col("payload").cast(pl.Categorical()),
    )


def flat_subtracks(slices: pl.DataFrame, tracks: Tracks = None) -> Iterator[tuple[int, int, ArrangedSlices]]:
    """Split slices into subtracks without overlap.

    Args:
        slices: Slices of all tracks.
        tracks: Rows of the slices of each track, at least one; None: all slices are of one track.

    Yields:
        Index of the track, number of the subtrack, its slices (with arguments).
    """
    start, end = (slices[column].to_numpy() for column in ("start_ns", "end_ns"))
    for track, rows in enumerate(_list_rows(slices, tracks)):
        subtrack = pack_flat(start[rows], end[rows])
        order = sort_rows(subtrack, start[rows], end[rows])
        yield from _cut(slices, track, rows[order], subtrack[order], np.zeros(len(rows), dtype=np.int32))


def nested_subtracks(
    slices: pl.DataFrame, tracks: Tracks = None
) -> Iterator[tuple[int, int, ArrangedSlices]]:
    """Split slices with `parent` into subtracks of nested slices, like `flat_subtracks`.

    A parent on another track is none.
    """
    start, end, parent = (slices[column].to_numpy() for column in ("start_ns", "end_ns", "parent"))
    slices = slices.drop("parent")
    place = np.full(len(slices) + 1, -1)  # of each slice, its row among those of the track
    for track, rows in enumerate(_list_rows(slices, tracks)):
        place[rows] = np.arange(len(rows))
        subtrack, above = pack_nested(start[rows], end[rows], place[parent[rows]])
        place[rows] = -1
        order, depth = nest_order(start[rows], end[rows], subtrack, above)
        yield from _cut(slices, track, rows[order], subtrack[order], depth[order].astype(np.int32))


def _list_rows(slices: pl.DataFrame, tracks: Tracks) -> Sequence[Int64s]:
    if tracks is not None:
        return tracks
    return [np.arange(len(slices))] if len(slices) else []


def _cut(
    slices: pl.DataFrame, track: int, rows: Int64s, subtrack: Int64s, depth: NDArray[np.int32]
) -> Iterator[tuple[int, int, ArrangedSlices]]:
    """Cut the rows of a track, in order of their subtracks, which ascend from 0 without a gap."""
    bounds = np.flatnonzero(np.diff(subtrack, prepend=-1, append=-1)).tolist()
    for number, (first, stop) in enumerate(pairwise(bounds)):
        yield track, number, ArrangedSlices(source=slices, rows=rows[first:stop], depth=depth[first:stop])


def _parent_rows(frame: pl.DataFrame) -> pl.Series:
    """Return the row of each range's parent; -1 if the parent is not in the frame."""
    return pl.Series("", find_rows(numbers(frame["range_id"]), numbers(frame["parent_id"])))


def _named(names: pl.Series) -> pl.Series:
    """Return names, with a word where there is none."""
    return names.fill_null(NO_NAME) if names.null_count() else names


def _color_jobs(ranges: pl.DataFrame, job_ranges: pl.DataFrame) -> pl.Series:
    """Return the kind of the job of each range, as its color; null where it is none."""
    if job_ranges.is_empty() or ranges.is_empty():
        return build_nulls("", pl.Categorical(), len(ranges))
    row = find_rows(numbers(job_ranges["range_id"]), numbers(ranges["range_id"]))
    code = np.where(row < 0, -1, numbers(job_ranges["kind"])[row])
    return gather(_list_job_colors(), code)


@cache
def _list_job_colors() -> pl.Series:
    return pl.Series(JOB_KINDS, dtype=pl.Categorical())


def _no_color() -> pl.Expr:
    return pl.lit(None, dtype=pl.Categorical())


_MAX_SAMPLES = 2000


_MOST_SAMPLES = 20_000  # of a recorded counter; a screen has a few thousand columns


class Counter(Struct, frozen=True, kw_only=True):
    """A counter, drawn as one row.

    Attributes:
        name: Name of the row.
        unit: Unit of the values, such as "%"; Perfetto's UI formats "ns", "count" and "bytes".
        samples: `SAMPLES`.
    """

    name: str
    unit: str
    samples: pl.DataFrame


def list_metrics(metrics: Iterable[SampledMetric]) -> list[Counter]:
    """Build the counters of sampled metrics, in order; many samples are thinned out (`thin`)."""
    return [
        Counter(name=metric.name, unit=metric.unit, samples=thin(metric.samples, most=_MOST_SAMPLES))
        for metric in metrics
    ]


def list_counters(counters: pl.DataFrame) -> list[Counter]:
    """Split `COUNTERS` of one GPU or process into counters by name and unit, in order of their first rows.

    Counters of very many samples are thinned out (`thin`).
    """
    if counters.is_empty():
        return []
    return [
        Counter(
            name=str(name),
            unit=str(unit),
            samples=thin(
                samples.sort("time_ns", maintain_order=True).pipe(conform, SAMPLES), most=_MOST_SAMPLES
            ),
        )
        for (name, unit), samples in counters.partition_by(
            "name", "unit", as_dict=True, maintain_order=True
        ).items()
    ]


def thin(samples: pl.DataFrame, *, most: int) -> pl.DataFrame:
    """Thin out the samples of a counter without losing extremes.

    The time from the first to the last sample is cut into equal windows; the first, the last, the smallest
    and the largest sample of each are kept. So every window has the values at its borders, and its extremes
    at their times.

    Args:
        samples: `SAMPLES`.
        most: Number of samples that are all kept; more are thinned out to about as many, at most.

    Returns:
        `SAMPLES`.
    """
    if len(samples) <= most:
        return samples
    first, last = int(samples["time_ns"][0]), int(samples["time_ns"][-1])
    width = (last - first) // (most // 4) + 1
    times, values = samples["time_ns"].to_numpy(), samples["value"].to_numpy()
    starts = np.searchsorted(
        times, np.arange(first, last + 1, width)
    )  # first rows of windows; some are empty
    starts = starts[np.append(starts[1:] > starts[:-1], True)]
    counts = np.diff(np.append(starts, len(times)))
    is_kept = np.zeros(len(times), dtype=bool)
    is_kept[starts] = True
    is_kept[starts + counts - 1] = True
    for extremes in (np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)):
        found = np.flatnonzero(values == np.repeat(extremes, counts))
        window = np.searchsorted(starts, found, side="right")
        is_kept[found[np.diff(window, prepend=-1) > 0]] = True
    return samples[np.flatnonzero(is_kept)]


def busy_percent(start_ns: pl.Series, end_ns: pl.Series) -> pl.DataFrame:
    """Sample the share of time covered by at least one interval.

    The time from the first start to the last end is cut into windows of equal length: 1, 2 or 5 times a power
    of ten nanoseconds, so that there are about 2,000 at most. A sample has the start of its window as time,
    and the covered share of the window as value.

    Args:
        start_ns: Starts of the intervals, in any order.
        end_ns: Ends of the intervals.

    Returns:
        `SAMPLES` in percent: one sample per change of the value, and a 0 at the end. Empty if there are no
        intervals, or only empty ones.
    """
    start, end = start_ns.to_numpy(), end_ns.to_numpy()
    if not len(start) or int(end.max()) <= int(start.min()):
        return pl.DataFrame(schema=SAMPLES)
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    begins = np.ones(len(start), dtype=bool)
    begins[1:] = start[1:] > reach[:-1]
    first, last = start[begins], reach[np.append(np.flatnonzero(begins)[1:], len(start)) - 1]

    window = round_up(-(-(int(last[-1]) - int(first[0])) // _MAX_SAMPLES))
    edges = np.arange(int(first[0]) // window * window, int(last[-1]) + window, window)
    covered = np.concatenate([[0], np.cumsum(last - first)])
    at = np.searchsorted(first, edges, side="right")
    total = covered[at] - np.maximum(last[np.maximum(at - 1, 0)] - edges, 0) * (at > 0)
    percent = np.append(np.round(100 * np.diff(total) / window, 1), 0.0)
    changes = np.ones(len(edges), dtype=bool)
    changes[1:] = percent[1:] != percent[:-1]
    return build_frame([pl.Series("time_ns", edges[changes]), pl.Series("value", percent[changes])])


def round_up(length_ns: int) -> int:
    """Round up to 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= length_ns:
                return factor * power
        power *= 10


MOST_WINDOWS = 2000


def summarise_metrics(metrics: Iterable[SampledMetric]) -> tuple[SampledMetric, ...]:
    """Summarise the metrics of GPUs that show utilisation: means of about 2,000 windows at most.

    All others are left out.

    Rows are named like "SMs Active (mean)".
    """
    return tuple(
        replace(
            metric,
            name=metric.name.replace(metric.metric, f"{drop_unit(metric.metric)} (mean)"),
            unit="%",
            samples=average(metric.samples),
        )
        for metric in metrics
        if metric.gpu is not None and is_of_overview(metric.metric) and len(metric.samples)
    )


def average(samples: pl.DataFrame) -> pl.DataFrame:
    """Average the samples of a metric over windows of equal length.

    1, 2 or 5 times a power of ten nanoseconds.

    Means are weighted by time: a value is valid until the next sample, and the last one for no time. Windows
    begin at multiples of their length, but the first at the first sample.

    Args:
        samples: `METRIC_VALUES`, at least one row.

    Returns:
        `METRIC_VALUES`: the means, to a tenth, at the starts of their windows, one row per change; and the
            last sample.
        With fewer samples than windows: the samples, one row per change.
    """
    times, values = samples["time_ns"].to_numpy(), samples["value"].to_numpy()
    if len(times) > MOST_WINDOWS and times[-1] > times[0]:
        times, values = _average(times, values)
    changes = np.ones(len(times), dtype=bool)
    changes[1:] = values[1:] != values[:-1]
    return pl.DataFrame({"time_ns": times[changes], "value": values[changes]}, schema=METRIC_VALUES)


def _average(times: Int64s, values: Floats) -> tuple[Int64s, Floats]:
    first, last = int(times[0]), int(times[-1])
    window = round_up(-(-(last - first) // MOST_WINDOWS))
    edges = np.append(np.arange(first // window * window, last, window), last)
    edges[0] = first
    means = np.round(average_windows(times, values, edges), 1)
    return edges, np.append(means, np.round(values[-1], 1))
