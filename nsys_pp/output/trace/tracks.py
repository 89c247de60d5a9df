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

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, pairwise

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from nsys_pp.aggregates.times import unite
from nsys_pp.arrays.columns import (
    find_distinct,
    gather,
    index_rows,
    keep_rows,
    numbers,
    pack,
)
from nsys_pp.arrays.intervals import average_windows
from nsys_pp.arrays.search import find_rows, list_groups, sort_rows
from nsys_pp.arrays.types import Int64s
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
from nsys_pp.options import Detail
from nsys_pp.output.trace.drawing import (
    SAMPLES,
    Drawing,
    Path,
    Subtrack,
    draw_all,
    is_flow,
)
from nsys_pp.output.trace.packing import nest_order, pack_flat, pack_nested

SYSTEM = "system"  # name of the outermost row with what belongs to no process


_ARGUMENTS = (
    *("size_bytes", "peer", "tag", "stream_id", "cpu", "address", "count", "detail", "event_id", "stack"),
)


def draw_activities(activities: pl.DataFrame, track: Path) -> Iterator[Subtrack]:
    """Draw the `ACTIVITIES` of a row: instants alone as marks, else slices.

    An activity without an end is a slice of no length.

    Args:
        activities: With `activity_id`, `parent_id` (the innermost activity of the row around each), and
            columns of flow ids.
        track: Path of the row.
    """
    activities = activities.sort("start_ns", maintain_order=True)
    if activities["end_ns"].null_count() == len(activities):
        marks = activities.select("name", *_ARGUMENTS, time_ns="start_ns", color=_NO_COLOR)
        return iter([draw_all(track, "marks", marks)])
    slices = activities.select(
        "start_ns",
        end_ns=pl.coalesce("end_ns", "start_ns"),
        parent=pl.Series(find_rows(numbers(activities["activity_id"]), numbers(activities["parent_id"]))),
        name="name",
        color=_NO_COLOR,
        **{name: pl.col(name) for name in activities.columns if is_flow(name)},
        **{name: pl.col(name) for name in _ARGUMENTS},
    )
    return nested_subtracks(slices, all_of(slices, track))


MOST_ROWS = 10_000  # subtracks of a track, and streams of a GPU

MOST_SUBTRACKS = 20_000  # of a report

_JOB_DEPTH = 3  # levels of ranges drawn with detail "jobs" if no range is a job

MOST_WINDOWS = 2000  # of a counter that is computed or averaged

BUSY = "GPU busy"

GPU_AT = "GPU at "  # begins the row of a GPU that no process of the report uses; the rest is its bus location

_CPU_RANK = 1 << 40  # CPUs are below all GPUs of their machine

# Name, unit and `SAMPLES` of a counter; Perfetto's UI formats the units "ns", "count" and "bytes".
Counter = tuple[str, str, pl.DataFrame]


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


class _Canvas:
    """The tracks and subtracks of a report that is being drawn."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.tracks: dict[Path, Track] = {}
        self.subtracks: list[Subtrack] = []

    def add_track(self, path: Path, rank: int, *, order: int = 0, unit: str | None = None) -> Path:
        """Add a track; siblings are sorted by `rank` (their kind), then by `order`."""
        self.tracks[path] = Track(path=path, name=path[-1], rank=rank * 1000 + order, counter_unit=unit)
        return path

    def draw(self, subtracks: Iterable[Subtrack]) -> None:
        """Add subtracks; a report with too many of one row is refused."""
        for subtrack in subtracks:
            if subtrack.number >= MOST_ROWS:
                raise self.too_many_error(
                    "slices at the same time in one row", subtrack.number + 1, MOST_ROWS
                )
            self.subtracks.append(subtrack)

    def draw_counters(
        self,
        path: Path,
        metrics: Iterable[SampledMetric],
        counters: pl.DataFrame,
        first: Sequence[Counter] = (),
    ) -> None:
        """Draw sampled metrics, and `COUNTERS` by name and unit; many samples are thinned out (`thin`)."""
        drawn = [*first, *((metric.name, metric.unit, metric.samples) for metric in metrics)]
        keys = ["name", "unit"]
        for (name, unit), own in counters.partition_by(keys, as_dict=True, maintain_order=True).items():
            samples = own.sort("time_ns", maintain_order=True).pipe(conform, SAMPLES)
            drawn.append((str(name), str(unit), samples))
        for order, (name, unit, samples) in enumerate(drawn):
            track = self.add_track((*path, name), 0, order=order, unit=unit)
            self.subtracks.append(draw_all(track, "counter", thin(samples, most=MOST_SAMPLES)))

    def too_many_error(self, noun: str, count: int, most: int) -> ReportError:
        """Return the error of damaged times or numbers."""
        return ReportError(
            f"`{self.view.report.path}` has {count:,} or more {noun}; expected at most {most:,}",
            "its times or its numbers of streams are damaged; `nsys-pp check` lists overlapping kernels",
        )


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
    canvas = _Canvas(view)
    number = pl.col("gpu").str.extract(r"(\d+)").cast(pl.Int64)
    devices = view.report.devices.sort(number, "gpu", "process_key", "device_id")
    for rank, gpu in enumerate(devices.partition_by("gpu", maintain_order=True)):
        _draw_gpu(canvas, gpu, canvas.add_track((gpu["gpu"][0],), rank), detail)
        if len(canvas.subtracks) > MOST_SUBTRACKS:
            raise canvas.too_many_error("rows of slices", len(canvas.subtracks), MOST_SUBTRACKS)
    if detail == "cpu" or view.is_on_request:
        _draw_cpu(canvas)
    _draw_system(canvas)
    return Drawing(
        report_id=view.report.fingerprint, tracks=[*canvas.tracks.values()], subtracks=canvas.subtracks
    )


def _draw_gpu(canvas: _Canvas, devices: pl.DataFrame, path: Path, detail: Detail) -> None:
    view = canvas.view
    projections, ops = view.projections, view.report.gpu_ops
    counters = view.report.counters.drop_nulls("device_id")
    if len(devices) < len(view.report.devices):
        projections, ops, counters = (
            frame.join(devices, on=["process_key", "device_id"], how="semi", maintain_order="left")
            for frame in (projections, ops, counters)
        )
    keys = set(devices.select("process_key", "device_id").iter_rows())
    metrics = [one for one in view.report.sampled_metrics if (one.process_key, one.device_id) in keys]
    if detail == "jobs":
        if view.is_on_request:
            canvas.draw_counters(path, metrics, counters)
        if view.job_ranges.is_empty():
            _draw_ranges(canvas, projections.filter(pl.col("depth") < _JOB_DEPTH), path)
        return
    _draw_ranges(canvas, projections, path)
    canvas.draw_counters(path, metrics, counters, [(BUSY, "%", busy_percent(ops["start_ns"], ops["end_ns"]))])
    track = canvas.add_track((*path, "communication"), 20)
    details = canvas.view.report.op_details
    shared = keep_rows(ops, ops["is_communication"].to_numpy()).with_columns(
        flow_id=pl.lit(None, dtype=pl.UInt64)  # arrows are drawn on streams alone
    )
    shared = operation_slices(shared, details)
    canvas.draw(flat_subtracks(shared, all_of(shared, track)))
    if detail != "ranges":
        _draw_streams(canvas, ops, operation_slices(ops, details), path)


def _draw_ranges(canvas: _Canvas, projections: pl.DataFrame, path: Path) -> None:
    """Draw one row of ranges per launching thread, by descending number of ranges.

    Ranges that end on another thread have no children; they have a row of their own, the last one.
    """
    threads = _thread_names(canvas.view)
    crosses = np.isin(numbers(projections["range_id"]), numbers(canvas.view.crossing))
    first, thread = find_distinct(numbers(projections["thread_key"]))
    thread[crosses] = len(first)
    *of_threads, across = list_groups(thread, len(first) + 1)
    of_threads = sorted((rows for rows in of_threads if len(rows)), key=lambda rows: (-len(rows), rows[0]))
    labels = [f"ranges of {threads[projections['thread_key'][int(rows[0])]]}" for rows in of_threads]
    labels = labels if len(labels) > 1 else ["ranges"] * len(labels)
    if len(across):
        labels.append("ranges across threads")
    paths = [canvas.add_track((*path, label), 10, order=order) for order, label in enumerate(labels)]
    slices = range_slices(projections, canvas.view.job_ranges)
    canvas.draw(nested_subtracks(slices, [*zip(paths, [*of_threads, across], strict=False)]))


def _draw_streams(canvas: _Canvas, ops: pl.DataFrame, slices: pl.DataFrame, path: Path) -> None:
    report = canvas.view.report
    keys = ["process_key", "context_id", "stream_id"]
    first, stream = find_distinct(pack(*(numbers(ops[key]) for key in keys)))
    if len(first) > MOST_ROWS:
        raise canvas.too_many_error("streams of a GPU", len(first), MOST_ROWS)
    used = (
        index_rows(ops[keys], first)
        .with_row_index("group")
        .sort(keys)
        .join(report.streams.unique(keys, keep="last"), on=keys, how="left", maintain_order="left")
        .join(
            report.processes.select("process_key", "pid"), on="process_key", how="left", maintain_order="left"
        )
    )
    process_count = used["process_key"].n_unique()
    texts = {
        "": pl.format("stream {}", "stream_id"),
        "name": pl.when(pl.col("name") != "").then(pl.format(" {}", "name")),
        "default": pl.when("is_default").then(pl.lit(" (default)")),
        "context": pl.format(", context {}", "context_id"),
        "pid": pl.format(", pid {}", pl.col("pid").cast(pl.String).fill_null("?")),
    }
    if len(used.unique(["process_key", "context_id"])) == process_count:
        del texts["context"]
    if process_count < 2:
        del texts["pid"]
    labels = used.select(pl.concat_str(*texts.values(), ignore_nulls=True)).to_series()
    rows = list_groups(stream, len(first))
    tracks = [
        (canvas.add_track((*path, label), 30, order=order), rows[group])
        for order, (label, group) in enumerate(zip(labels, used["group"], strict=True))
    ]
    canvas.draw(flat_subtracks(slices, tracks))


def name_process_row(name: str | None, pid: int | None) -> str:
    """Format the name of the row of a process."""
    return f"CPU: {name or 'process'} {pid}"


def _draw_cpu(canvas: _Canvas) -> None:
    report = canvas.view.report
    names = _thread_names(canvas.view)
    ranges = report.ranges.partition_by("thread_key", as_dict=True)
    calls = report.api_calls.partition_by("thread_key", as_dict=True)
    marks = report.marks.sort("time_ns").partition_by("thread_key", as_dict=True)
    for order, process in enumerate(report.processes.iter_rows(named=True)):
        path = canvas.add_track((name_process_row(process["name"], process["pid"]),), _CPU_RANK, order=order)
        own = pl.col("process_key") == process["process_key"]
        canvas.draw_counters(path, [], report.counters.filter(pl.col("device_id").is_null(), own))
        of_thread = {key: 3 * rank for rank, key in enumerate(report.threads.filter(own)["thread_key"])}
        for key, order in of_thread.items():
            if (key,) in ranges:
                track = canvas.add_track((*path, f"NVTX {names[key]}"), 10, order=order)
                slices = cpu_range_slices(ranges[key,], canvas.view.job_ranges)
                canvas.draw(nested_subtracks(slices, all_of(slices, track)))
            if (key,) in marks:
                track = canvas.add_track((*path, f"marks {names[key]}"), 10, order=order + 1)
                canvas.draw([draw_all(track, "marks", mark_points(marks[key,]))])
            if (key,) in calls:
                track = canvas.add_track((*path, f"CUDA API {names[key]}"), 10, order=order + 2)
                slices = api_call_slices(calls[key,])
                canvas.draw(flat_subtracks(slices, all_of(slices, track)))
        active = report.activities.filter(own).partition_by(
            "thread_key", "row", as_dict=True, maintain_order=True
        )
        for (thread, title), activities in active.items():
            if thread is None:
                track = canvas.add_track((*path, str(title)), 5)
            else:  # after the CUDA calls of the thread, by title
                track = canvas.add_track((*path, f"{title} {names[thread]}"), 10, order=of_thread[thread] + 2)
            canvas.draw(draw_activities(activities, track))


def _draw_system(canvas: _Canvas) -> None:
    report = canvas.view.report
    counters = report.counters.filter(pl.col("process_key").is_null() & canvas.view.is_on_request)
    by_row: dict[str, list[SampledMetric]] = {SYSTEM: []} if canvas.view.is_on_request else {}
    for metric in report.sampled_metrics:
        if metric.process_key is None:
            by_row.setdefault(SYSTEM if metric.bus is None else f"{GPU_AT}{metric.bus}", []).append(metric)
    for name, metrics in sorted(by_row.items()):
        path = canvas.add_track((name,), _CPU_RANK, order=len(report.processes))
        canvas.draw_counters(path, metrics, counters if name == SYSTEM else counters.clear())
    of_system = report.activities.filter(pl.col("process_key").is_null())
    for (title,), activities in of_system.partition_by("row", as_dict=True, maintain_order=True).items():
        canvas.draw(draw_activities(activities, canvas.add_track((SYSTEM, str(title)), 10)))


def _thread_names(view: View) -> dict[int, str]:
    """Format the label of each thread: its name and tid, or "thread" and its tid, by thread_key."""
    return {
        key: f"{name} {tid}" if name else f"thread {tid}"
        for key, name, tid in view.report.threads[["thread_key", "name", "tid"]].iter_rows()
    }


_NO_COLOR = pl.lit(None, dtype=pl.Categorical())


def range_slices(projections: pl.DataFrame, job_ranges: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of projected ranges (`PROJECTIONS`), with `parent`.

    Row of the slice around each, or -1.

    Ranges of `job_ranges` (`JOB_RANGES`) have the color of their kind of job.
    """
    length = pl.col("gpu_end_ns") - pl.col("gpu_start_ns")
    return projections.select(
        start_ns="gpu_start_ns",
        end_ns="gpu_end_ns",
        parent=_parent_rows(projections),
        name=_named(projections["name"]),
        color=_color_jobs(projections, job_ranges),
        domain="domain",
        cpu_start_ns="start_ns",
        cpu_duration_ns=pl.col("end_ns") - pl.col("start_ns"),
        calls="call_count",
        operations="op_count",
        busy_ns="busy_ns",
        busy_percent=pl.when(length > 0).then((100 * pl.col("busy_ns") / length).round(1)),
        first_operation="first_op",
        last_operation="last_op",
        scope=pl.col("scope").cast(pl.Categorical()),
        is_open=pl.when("is_open").then(pl.lit(True)),
        range_id="range_id",
        flow_id=pl.lit(None, dtype=pl.UInt64),
    )


def operation_slices(gpu_ops: pl.DataFrame, op_details: OpDetails) -> pl.DataFrame:
    """Build the slices of GPU operations (`GPU_OPS` with `flow_id`).

    If details were read, they are arguments.
    """
    of_kinds = {"memcpy": "copy", "memset": "memset", "graph": "graph"}
    colors = pl.Series(
        "color", [*map(of_kinds.get, OP_KIND.categories), "communication"], dtype=pl.Categorical()
    )
    color = numbers(gpu_ops["kind"])
    color[gpu_ops["is_communication"].to_numpy()] = len(colors) - 1
    slices = [
        *(gpu_ops[name] for name in ("start_ns", "end_ns")),
        *(_named(gpu_ops["name"]), gather(colors, color)),
        *(gpu_ops[name] for name in ("flow_id", "correlation_id", "graph_id")),
    ]
    if len(op_details.row):
        slices += index_rows(op_details.distinct, op_details.row[gpu_ops["op_id"].to_numpy()]).get_columns()
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
        color=_NO_COLOR,
        flow_id="flow_id",
        correlation_id="correlation_id",
    )


def mark_points(marks: pl.DataFrame) -> pl.DataFrame:
    """Build the instants of marks (`MARKS`), as `MARK_POINTS` with arguments."""
    return marks.select(
        "time_ns",
        name=_named(marks["name"]),
        color=_NO_COLOR,
        domain="domain",
        category="category",
        payload=pl.col("payload").cast(pl.Categorical()),
    )


Tracks = Sequence[tuple[Path, Int64s]]


def all_of(slices: pl.DataFrame, track: Path) -> Tracks:
    """Return all rows of slices as those of one track."""
    return [(track, np.arange(len(slices)))]


def flat_subtracks(slices: pl.DataFrame, tracks: Tracks) -> Iterator[Subtrack]:
    """Split slices into subtracks without overlap.

    Args:
        slices: Slices of all tracks, with arguments.
        tracks: Path of each track, and the rows of its slices.
    """
    start, end = (slices[column].to_numpy() for column in ("start_ns", "end_ns"))
    for track, rows in tracks:
        number = pack_flat(start[rows], end[rows])
        order = sort_rows(number, start[rows], end[rows])
        yield from _cut(slices, track, rows[order], number[order], np.zeros(len(rows), dtype=np.int32))


def nested_subtracks(slices: pl.DataFrame, tracks: Tracks) -> Iterator[Subtrack]:
    """Split slices with `parent` into subtracks of nested slices, like `flat_subtracks`.

    A parent on another track is none.
    """
    start, end, parent = (slices[column].to_numpy() for column in ("start_ns", "end_ns", "parent"))
    slices = slices.drop("parent")
    place = np.full(len(slices) + 1, -1)  # of each slice, its row among those of the track
    for track, rows in tracks:
        place[rows] = np.arange(len(rows))
        number, above = pack_nested(start[rows], end[rows], place[parent[rows]])
        place[rows] = -1
        order, depth = nest_order(start[rows], end[rows], number, above)
        yield from _cut(slices, track, rows[order], number[order], depth[order].astype(np.int32))


def _cut(
    slices: pl.DataFrame, track: Path, rows: Int64s, number: Int64s, depth: NDArray[np.int32]
) -> Iterator[Subtrack]:
    """Cut the rows of a track, in order of their subtracks, which ascend from 0 without a gap."""
    bounds = np.flatnonzero(np.diff(number, prepend=-1, append=-1)).tolist()
    for at, (first, stop) in enumerate(pairwise(bounds)):
        cut = slice(first, stop)
        yield Subtrack(track=track, kind="slices", source=slices, rows=rows[cut], depth=depth[cut], number=at)


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
    return gather(job_ranges["kind"].cast(pl.String).cast(pl.Categorical()), row)


MOST_SAMPLES = 20_000  # of a recorded counter; a screen has a few thousand columns


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
    row, value = pl.col("row"), pl.col("value").fill_nan(None)  # NaN is no extreme
    kept = (
        samples.with_row_index("row")
        .group_by((pl.col("time_ns") - first) // width)
        .agg(row.first(), last=row.last(), low=row.get(value.arg_min()), high=row.get(value.arg_max()))
        .unpivot(["row", "last", "low", "high"])
    )
    return samples[kept["value"].drop_nulls().unique().sort()]


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
    if not len(start) or end.max() <= start.min():
        return pl.DataFrame(schema=SAMPLES)
    first, last = int(start.min()), int(end.max())
    window = round_up(-(-(last - first) // MOST_WINDOWS))
    edges = np.arange(first // window * window, last + window, window)
    percent = np.append(np.round(100 * unite(start, end).within(edges[:-1], edges[1:]) / window, 1), 0.0)
    changes = np.append(True, percent[1:] != percent[:-1])
    return build_frame([pl.Series("time_ns", edges[changes]), pl.Series("value", percent[changes])])


def round_up(length_ns: int) -> int:
    """Round up to 1, 2 or 5 times a power of ten."""
    lengths: Iterator[int] = (factor * 10**power for power in count() for factor in (1, 2, 5))
    return next(length for length in lengths if length >= length_ns)


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
        first, last = int(times[0]), int(times[-1])
        window = round_up(-(-(last - first) // MOST_WINDOWS))
        edges = np.append(np.arange(first // window * window, last, window), last)
        edges[0] = first
        times, values = edges, np.round(np.append(average_windows(times, values, edges), values[-1]), 1)
    changes = np.append(True, values[1:] != values[:-1])
    return pl.DataFrame({"time_ns": times[changes], "value": values[changes]}, schema=METRIC_VALUES)
