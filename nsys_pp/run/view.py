"""View of one report: the frames that are drawn, within a window, with data on request."""

from __future__ import annotations

import warnings

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.columns import gather
from nsys_pp.arrays.intervals import find_parents
from nsys_pp.arrays.launch_calls import find_launch_calls
from nsys_pp.frames.clock import Clock
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import Report, SampledMetric
from nsys_pp.frames.training import JOB_RANGES, PART_MPI_MESSAGES
from nsys_pp.output.trace.drawing import MORE_FLOWS, sequence_id
from nsys_pp.output.trace.tracks import View, name_process_row, summarise_metrics
from nsys_pp.projection.launches import match_launches
from nsys_pp.projection.ranges import count_cross_thread
from nsys_pp.units import format_count

FRAME = "mpi_messages"
"""Name of the frame in parts."""


def list_mpi_messages(report: Report) -> pl.DataFrame:
    """List the messages of a report for its part (`PART_MPI_MESSAGES`)."""
    names = [
        (key, name_process_row(name, pid))
        for key, pid, name in report.active_processes.select("process_key", "pid", "name").iter_rows()
    ]
    rows = pl.DataFrame(names, schema={"process_key": pl.Int64, "process_row": pl.String}, orient="row")
    return report.mpi_messages.join(rows, on="process_key", how="left", maintain_order="left").pipe(
        conform, PART_MPI_MESSAGES
    )


MOST_ARROWS = 8  # that begin at one call
_FLOW_BIT = 1 << 31  # of flow ids of calls on request; others of a report are smaller


def _nest(activities: pl.DataFrame) -> pl.DataFrame:
    """Add `activity_id`, and `parent_id` of the innermost activity around each in its row."""
    rows = activities.with_row_index("activity_id").with_columns(pl.col("activity_id").cast(pl.Int64))
    if rows.is_empty():
        return rows.with_columns(parent_id=pl.lit(None, dtype=pl.Int64))
    owner = rows.select(
        pl.struct("row", "process_key", "thread_key").rank("dense").cast(pl.Int64)
    ).to_series()
    ends = rows.select(pl.coalesce("end_ns", "start_ns")).to_series()
    parent, _ = find_parents(owner.to_numpy(), rows["start_ns"].to_numpy(), ends.to_numpy())
    parents = pl.Series("parent_id", parent, dtype=pl.Int64)
    return rows.with_columns(parents.set(parents < 0, None))


def _join_links(activities: pl.DataFrame, report: Report) -> pl.DataFrame:
    """Add the flow ids of arrows from calls that record a CUDA event to calls that wait for it.

    Returns:
        The activities with `flow_id`, and further columns of them where several arrows begin at one call.
    """
    no_flow = activities.with_columns(flow_id=pl.lit(None, dtype=pl.UInt64))
    is_wait = pl.col("event_id").is_not_null() & ~pl.col("is_origin").fill_null(value=False)
    wait_count = activities.select(is_wait.sum()).item()
    if not wait_count:
        return no_flow
    origins = activities.filter("is_origin").select("link", from_ns="start_ns", origin="activity_id")
    arrows = (
        activities.filter(is_wait)
        .join(origins, on="link", how="inner", maintain_order="left")
        .filter(pl.col("from_ns") < pl.col("start_ns"))  # an arrow has a direction
        .sort("start_ns", maintain_order=True)
        .with_columns(number=pl.int_range(pl.len()).over("link"))
    )
    _warn_of_waits(
        report, wait_count, wait_count - len(arrows), len(arrows.filter(pl.col("number") >= MOST_ARROWS))
    )
    arrows = arrows.filter(pl.col("number") < MOST_ARROWS).with_row_index("arrow")
    high = pl.lit((sequence_id(report.fingerprint) << 32) | _FLOW_BIT, pl.UInt64)
    arrows = arrows.with_columns(flow_id=pl.col("arrow").cast(pl.UInt64) + high)
    ends = arrows.select("activity_id", "flow_id")
    drawn = activities.join(ends, on="activity_id", how="left", maintain_order="left")
    for number, of_number in sorted(arrows.partition_by("number", as_dict=True).items()):
        begins = of_number.select("flow_id", activity_id="origin")
        joined = drawn.join(begins, on="activity_id", how="left", maintain_order="left", suffix="_begin")
        if number == (0,):
            drawn = joined.with_columns(flow_id=pl.coalesce("flow_id", "flow_id_begin")).drop("flow_id_begin")
        else:
            drawn = joined.rename({"flow_id_begin": f"{MORE_FLOWS}{number[0] + 1}"})
    return drawn


def _warn_of_waits(report: Report, count: int, unknown: int, beyond: int) -> None:
    """Warn of waits for events without an arrow."""
    reasons = [f"{unknown:,} without a known record of the event"] * bool(unknown)
    reasons += [f"{beyond:,} of records that have {MOST_ARROWS} arrows"] * bool(beyond)
    if reasons:
        warnings.warn(
            f"`{report.path}`: no arrow to {unknown + beyond:,} of {format_count(count, 'wait')} for CUDA "
            "events:"
            f" {', '.join(reasons)}",
            stacklevel=5,
        )


def _join_keys(frame: pl.DataFrame, more: pl.DataFrame, key: str) -> pl.DataFrame:
    return pl.concat([frame, more]).unique(key, keep="first", maintain_order=True).sort(key)


_DENSITY_BINS = 1000


class Window(Struct, frozen=True, kw_only=True):
    """Interval of a report's time, on its own clock; events that overlap it are drawn."""

    start_ns: int | None = None
    end_ns: int | None = None

    def move(self, clock: Clock) -> Window:
        """Map the window from the trace's clock to that of a report."""
        ends = (self.start_ns, self.end_ns)
        start_ns, end_ns = (None if end is None else clock.to_report(end) for end in ends)
        return Window(start_ns=start_ns, end_ns=end_ns)

    def cut(
        self, frame: pl.DataFrame, start: str = "start_ns", end: str | pl.Expr = "end_ns"
    ) -> pl.DataFrame:
        """Keep the rows that overlap the window, by their columns of starts and ends."""
        last = pl.col(end) if isinstance(end, str) else end
        if self.start_ns is not None:
            frame = frame.filter(last >= self.start_ns)
        if self.end_ns is not None:
            frame = frame.filter(pl.col(start) < self.end_ns)
        return frame


def view_report(
    report: Report,
    projections: pl.DataFrame,
    *,
    detail: str,
    flows: bool,
    show: tuple[str, ...] = (),
    job_ranges: pl.DataFrame | None = None,
    window: Window | None = None,
) -> View:
    """Build the view of one report, independent of other reports.

    Args:
        report: Read with the groups that `detail` needs.
        projections: Its `PROJECTIONS`.
        detail: Level of detail.
        flows: Join each launching call and its first operation by an id.
        show: Kinds of data that were read on request.
        job_ranges: Its `JOB_RANGES`; None: it has none.
        window: Omit events outside.
    """
    window = window or Window()
    no_flow = pl.lit(None, pl.UInt64).alias("flow_id")
    gpu_ops, api_calls = report.gpu_ops.with_columns(no_flow), report.api_calls.with_columns(no_flow)
    ranges, marks = report.ranges, report.marks
    if detail != "cpu":
        ranges, marks, api_calls = ranges.clear(), marks.clear(), api_calls.clear()
    elif flows:
        gpu_ops, api_calls = _join_flows(report)
    parent, _ = find_parents(*(ranges[name].to_numpy() for name in ("thread_key", "start_ns", "end_ns")))
    parents = gather(ranges["range_id"], parent).alias("parent_id")  # null at the top
    activities, counters = report.activities.clear(), report.counters
    processes, threads = report.processes, report.threads
    if show:
        activities = _join_links(_nest(report.activities), report)
        processes = _join_keys(processes, report.active_processes, "process_key")
        threads = _join_keys(threads, report.active_threads, "thread_key")
    if "memory" in show:
        from nsys_pp.aggregates.items import count_memory_in_use  # a trace rarely needs it

        counters = pl.concat([counters, count_memory_in_use(report.memory_events)])
    last = pl.coalesce("end_ns", "start_ns")  # of an activity, which may be an instant
    drawn = replace(
        report,
        gpu_ops=window.cut(gpu_ops),
        api_calls=window.cut(api_calls),
        ranges=window.cut(ranges.with_columns(parents)),
        marks=window.cut(marks, "time_ns", "time_ns"),
        activities=window.cut(activities, "start_ns", last),
        counters=window.cut(counters, "time_ns", "time_ns"),
        sampled_metrics=_choose_metrics(report, detail, show, window),
        processes=processes,
        threads=threads,
    )
    crossing = report.ranges["range_id"].clear()
    if count_cross_thread(report.ranges):
        crossing = report.ranges.filter(pl.col("end_thread_key").is_not_null())["range_id"]
    return View(
        report=drawn,
        projections=window.cut(projections, "gpu_start_ns", "gpu_end_ns"),
        crossing=crossing,
        job_ranges=JOB_RANGES.to_frame() if job_ranges is None else job_ranges,
        is_on_request=bool(show),
    )


def _choose_metrics(
    report: Report, detail: str, show: tuple[str, ...], window: Window
) -> tuple[SampledMetric, ...]:
    """Choose the metrics to draw within a window; GPU metrics that are not requested are summarised."""
    sampled = tuple(
        replace(metric, samples=window.cut(metric.samples, "time_ns", "time_ns"))
        for metric in report.sampled_metrics
    )
    of_network = tuple(metric for metric in sampled if metric.ends_ns is not None)
    if "network" not in show:  # parts have sums of them
        sampled = tuple(metric for metric in sampled if metric.ends_ns is None)
        of_network = ()
    if "metrics" in show:
        return sampled
    return (*(() if detail == "jobs" else summarise_metrics(sampled)), *of_network)


def count_rows_by_time(report: Report, projections: pl.DataFrame, *, detail: str) -> pl.DataFrame:
    """Estimate the number of events that a report draws, by time.

    Args:
        report: Read with ranges and operations.
        projections: Its `PROJECTIONS`.
        detail: Level of detail; "jobs" counts as "ranges".

    Returns:
        `time_ns` (start of an interval of at most a thousandth of the report, on its clock) and `rows`, in
        order of time; intervals without rows are left out.
    """
    ops = report.gpu_ops.filter("is_communication") if detail in ("jobs", "ranges") else report.gpu_ops
    times = [projections["gpu_start_ns"], ops["start_ns"]]
    if detail == "cpu":
        times += [report.ranges["start_ns"], report.api_calls["start_ns"]]
    times += [report.activities["start_ns"]]
    times += [metric.samples["time_ns"] for metric in summarise_metrics(report.sampled_metrics)]
    starts = pl.concat([series.rename("time_ns") for series in times]).drop_nulls()
    if starts.is_empty():
        return pl.DataFrame(schema={"time_ns": pl.Int64, "rows": pl.UInt32})
    first, last = int(starts.min()), int(starts.max())  # type: ignore[arg-type]
    width = (last - first) // _DENSITY_BINS + 1
    bins = (starts - first) // width * width + first
    return bins.to_frame().group_by("time_ns").agg(rows=pl.len().cast(pl.UInt32)).sort("time_ns")


def _join_flows(report: Report) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add a unique id that each launching call shares with its first operation."""
    ops, calls = report.gpu_ops, report.api_calls
    call_row = find_launch_calls(
        ops["op_id"], gpu_ops=ops, api_calls=calls, launches=match_launches(calls, ops)
    )
    high = pl.lit(sequence_id(report.fingerprint) << 32, pl.UInt64)
    first = (
        ops.select("op_id", "start_ns", call_row=call_row)
        .filter(pl.col("call_row") >= 0)
        .sort("start_ns", "op_id")
        .unique("call_row", keep="first", maintain_order=True)
        .with_columns(flow_id=pl.col("call_row").cast(pl.UInt64) + high)
    )
    flows = first.select("op_id", pl.col("call_row").cast(pl.UInt32), "flow_id")
    ops = ops.join(flows.drop("call_row"), on="op_id", how="left", maintain_order="left")
    calls = calls.with_row_index("call_row").join(
        flows.drop("op_id"), on="call_row", how="left", maintain_order="left"
    )
    return ops, calls
