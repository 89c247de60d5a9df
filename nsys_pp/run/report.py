"""One report through all stages: read, project, find the training, draw, aggregate; the result is a part.

`encode_report` makes the part that `merge` writes, `survey_report` one without a trace for tables,
`redraw_report` draws windows of a report.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.aggregates.items import MOST_NAMES
from nsys_pp.aggregates.registry import AGGREGATES, GROUPS, AggregateSources
from nsys_pp.aggregates.times import find_windows
from nsys_pp.alignment.anchors import find_anchors
from nsys_pp.arrays.columns import gather
from nsys_pp.arrays.intervals import find_parents
from nsys_pp.arrays.launch_calls import find_launch_calls
from nsys_pp.errors import MissingDataError, describe_path
from nsys_pp.frames.clock import Clock
from nsys_pp.frames.conform import conform
from nsys_pp.frames.part import Encoded, Part, PartFacts, PartOptions
from nsys_pp.frames.raw import SURVEY_GROUPS, Group, find_show_groups
from nsys_pp.frames.report import OpDetails, Report, SampledMetric
from nsys_pp.frames.roster import Identity
from nsys_pp.frames.training import (
    GAPS,
    JOB_RANGES,
    PART_MPI_MESSAGES,
    REPORT_FRAMES,
)
from nsys_pp.model import build_report
from nsys_pp.model.contents import count_rows, find_data_warnings, name_recorded
from nsys_pp.output.blocks import OpenBlocks, Store
from nsys_pp.output.perfetto.trace import encode_drawing
from nsys_pp.output.trace.drawing import MORE_FLOWS, Drawing, sequence_id
from nsys_pp.output.trace.tracks import View, draw_report, name_process_row, summarise_metrics
from nsys_pp.progress import enter_stage
from nsys_pp.projection.launches import find_launch_devices, match_launches, match_requests
from nsys_pp.projection.ranges import (
    OPS,
    count_projected,
    project_compute,
    project_ranges,
)
from nsys_pp.projection.waited_calls import Waited, find_waited_calls
from nsys_pp.read import read_report
from nsys_pp.roster.identity import identify
from nsys_pp.run.report_sums import list_bubble_hosts, summarise_for_part, summarise_network
from nsys_pp.training.batches import find_batches, widen_batches
from nsys_pp.training.gaps import find_longest_gaps
from nsys_pp.training.jobs import (
    THREADED_KINDS,
    assign_steps,
    build_jobs,
    find_gap_jobs,
    find_job_kinds,
    find_phases,
    list_gaps,
    list_job_ranges,
    list_unmarked_backwards,
    widen_projections,
)
from nsys_pp.training.kernels import build_compute_segments, find_segments, sum_kernels
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.messages import assign_message_steps, find_messages
from nsys_pp.training.names import (
    Rules,
    choose_rules,
    list_range_names,
    name_jobs,
    name_operators,
    name_steps,
    split_names,
)
from nsys_pp.training.steps import find_steps
from nsys_pp.training.waits import build_waits, cut_overheads, sum_overheads
from nsys_pp.units import format_count

FRAME = "mpi_messages"  # in parts


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
    is_wait = pl.col("event_id").is_not_null() & ~pl.col("is_origin").fill_null(value=False)
    wait_count = activities.select(is_wait.sum()).item()
    origins = activities.filter("is_origin").select("link", from_ns="start_ns", origin="activity_id")
    arrows = (
        activities.filter(is_wait)
        .join(origins, on="link", how="inner", maintain_order="left")
        .filter(pl.col("from_ns") < pl.col("start_ns"))  # an arrow has a direction
        .sort("start_ns", maintain_order=True)
        .with_columns(number=pl.int_range(pl.len()).over("link"))
    )
    unknown, beyond = wait_count - len(arrows), len(arrows.filter(pl.col("number") >= MOST_ARROWS))
    reasons = [
        *[f"{unknown:,} without a known record of the event"] * bool(unknown),
        *[f"{beyond:,} of records that have {MOST_ARROWS} arrows"] * bool(beyond),
    ]
    if reasons:
        warnings.warn(
            f"`{report.path}`: no arrow to {unknown + beyond:,} of {format_count(wait_count, 'wait')}"
            f" for CUDA events: {', '.join(reasons)}",
            stacklevel=4,
        )
    arrows = arrows.filter(pl.col("number") < MOST_ARROWS).with_row_index("arrow")
    high = pl.lit((sequence_id(report.fingerprint) << 32) | _FLOW_BIT, pl.UInt64)
    arrows = arrows.with_columns(flow_id=pl.col("arrow").cast(pl.UInt64) + high)
    drawn = activities.join(
        arrows.select("activity_id", "flow_id"), on="activity_id", how="left", maintain_order="left"
    )
    for number, of_number in sorted(arrows.partition_by("number", as_dict=True).items()):
        begins = of_number.select("flow_id", activity_id="origin")
        joined = drawn.join(begins, on="activity_id", how="left", maintain_order="left", suffix="_begin")
        if number == (0,):
            drawn = joined.with_columns(flow_id=pl.coalesce("flow_id", "flow_id_begin")).drop("flow_id_begin")
        else:
            drawn = joined.rename({"flow_id_begin": f"{MORE_FLOWS}{number[0] + 1}"})
    return drawn


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

    def cut(self, frame: pl.DataFrame, start: str = "start_ns", end: str = "end_ns") -> pl.DataFrame:
        """Keep the rows that overlap the window; one without an end is an instant."""
        if self.start_ns is not None:
            frame = frame.filter(pl.coalesce(end, start) >= self.start_ns)
        if self.end_ns is not None:
            frame = frame.filter(pl.col(start) < self.end_ns)
        return frame


def draw(
    report: Report,
    projections: pl.DataFrame,
    options: PartOptions,
    *,
    window: Window | None = None,
    job_ranges: pl.DataFrame | None = None,
) -> Drawing:
    """Draw the events of a report that overlap a window, independent of other reports.

    Args:
        report: Read with the groups that the options need.
        projections: Its `PROJECTIONS`.
        options: Those of its part; `flows` joins each launching call and its first operation by an id.
        window: Omit events outside; None: draw all.
        job_ranges: Its `JOB_RANGES`; None: it has none.
    """
    detail: Any = options.detail
    window = window or Window()
    if "details" not in _DETAIL_GROUPS[detail]:  # they were read for aggregates only
        report = replace(report, op_details=OpDetails())
    no_flow = pl.lit(None, pl.UInt64).alias("flow_id")
    gpu_ops, api_calls = report.gpu_ops.with_columns(no_flow), report.api_calls.with_columns(no_flow)
    ranges, marks = report.ranges, report.marks
    if detail != "cpu":
        ranges, marks, api_calls = ranges.clear(), marks.clear(), api_calls.clear()
    elif options.flows:
        gpu_ops, api_calls = _join_flows(report)
    parent, _ = find_parents(*(ranges[name].to_numpy() for name in ("thread_key", "start_ns", "end_ns")))
    parents = gather(ranges["range_id"], parent).alias("parent_id")  # null at the top
    activities, counters = report.activities.clear(), report.counters
    processes, threads = report.processes, report.threads
    if options.show:
        activities = _join_links(_nest(report.activities), report)
        processes = pl.concat([processes, report.active_processes]).unique("process_key", keep="first")
        threads = pl.concat([threads, report.active_threads]).unique("thread_key", keep="first")
        processes, threads = processes.sort("process_key"), threads.sort("thread_key")
    if "memory" in options.show:
        from nsys_pp.aggregates.items import count_memory_in_use  # a trace rarely needs it

        counters = pl.concat([counters, count_memory_in_use(report.memory_events)])
    view = View(
        report=replace(
            report,
            gpu_ops=window.cut(gpu_ops),
            api_calls=window.cut(api_calls),
            ranges=window.cut(ranges.with_columns(parents)),
            marks=window.cut(marks, "time_ns", "time_ns"),
            activities=window.cut(activities),
            counters=window.cut(counters, "time_ns", "time_ns"),
            sampled_metrics=_choose_metrics(report, detail, options.show, window),
            processes=processes,
            threads=threads,
        ),
        projections=window.cut(projections, "gpu_start_ns", "gpu_end_ns"),
        crossing=report.ranges.filter(pl.col("end_thread_key").is_not_null())["range_id"],
        job_ranges=JOB_RANGES.to_frame() if job_ranges is None else job_ranges,
        is_on_request=bool(options.show),
    )
    return draw_report(view, detail=detail)


def _choose_metrics(
    report: Report, detail: str, show: tuple[str, ...], window: Window
) -> tuple[SampledMetric, ...]:
    """Choose the metrics to draw within a window; GPU metrics that are not requested are summarised."""
    sampled = tuple(
        replace(metric, samples=window.cut(metric.samples, "time_ns", "time_ns"))
        for metric in report.sampled_metrics
        if metric.ends_ns is None or "network" in show  # parts have sums of those of networks
    )
    if "metrics" in show:
        return sampled
    return (
        *(() if detail == "jobs" else summarise_metrics(sampled)),
        *(metric for metric in sampled if metric.ends_ns is not None),
    )


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
    times = [projections["gpu_start_ns"], ops["start_ns"], report.activities["start_ns"]]
    if detail == "cpu":
        times += [report.ranges["start_ns"], report.api_calls["start_ns"]]
    times += [metric.samples["time_ns"] for metric in summarise_metrics(report.sampled_metrics)]
    starts = pl.concat([series.rename("time_ns") for series in times]).drop_nulls()
    time = pl.col("time_ns")
    width = (time.max() - time.min()) // _DENSITY_BINS + 1
    return (
        starts.to_frame()
        .select((time - time.min()) // width * width + time.min())
        .group_by("time_ns")
        .agg(rows=pl.len().cast(pl.UInt32))
        .sort("time_ns")
    )


def _join_flows(report: Report) -> tuple[pl.DataFrame, pl.DataFrame]:
    ops, calls = report.gpu_ops, report.api_calls
    high = pl.lit(sequence_id(report.fingerprint) << 32, pl.UInt64)
    flows = (
        ops.select(
            "op_id",
            "start_ns",
            call_row=find_launch_calls(
                ops["op_id"], gpu_ops=ops, api_calls=calls, launches=match_launches(calls, ops)
            ),
        )
        .filter(pl.col("call_row") >= 0)
        .sort("start_ns", "op_id")
        .unique("call_row", keep="first", maintain_order=True)
        .select(
            "op_id", pl.col("call_row").cast(pl.UInt32), flow_id=pl.col("call_row").cast(pl.UInt64) + high
        )
    )
    return (
        ops.join(flows.drop("call_row"), on="op_id", how="left", maintain_order="left"),
        calls.with_row_index("call_row").join(
            flows.drop("op_id"), on="call_row", how="left", maintain_order="left"
        ),
    )


def project_report(
    report: Report,
    *,
    ops: tuple[str, ...],
    scope: Any,
    per_stream: bool = False,
    launches: pl.DataFrame | None = None,
    waited: Waited | None = None,
) -> pl.DataFrame:
    """Project the ranges of a report (`PROJECTIONS`); warns of ranges that scope "thread" skips.

    Args:
        report: Read with ranges and operations.
        ops: Operations that count.
        scope: Launches that count.
        per_stream: One row per stream, not per device.
        launches: `LAUNCHES` of the report; matched here if None.
        waited: Calls that threads waited for; found here if None.
    """
    crossing = report.ranges["end_thread_key"].count()
    if scope == "thread" and crossing:
        warnings.warn(
            f"`{report.path}`: skipped {crossing:,} ranges that end on another thread than they began"
            " (`--scope process` projects them)",
            stacklevel=3,
        )
    return project_ranges(
        report.ranges,
        report.api_calls,
        report.gpu_ops,
        ops=ops,
        scope=scope,
        per_stream=per_stream,
        launches=launches,
        waited=waited,
    )


class Links(Struct, frozen=True, kw_only=True):
    """Causes of a report's operations."""

    launches: pl.DataFrame  # LAUNCHES, of all operations
    requests: pl.DataFrame  # REQUESTS
    waited: (
        Waited | None
    )  # calls that threads waited for, by all ranges, not only by jobs; None where only own calls count


class ReportTraining(Struct, frozen=True, kw_only=True):
    """Training frames of one report, as a part keeps them."""

    preset: str  # name of the rules; "" where none match
    unmatched: tuple[str, ...]  # patterns of the user that match no range
    frames: Mapping[str, pl.DataFrame]  # by name, of `REPORT_FRAMES`


def find_links(report: Report, scope: str = "auto") -> Links:
    """Find the causes of the operations of a report, read with ranges, operations and communication.

    Args:
        report: The report.
        scope: Launches that count, as for `project_ranges`.
    """
    launches = match_launches(report.api_calls, report.gpu_ops)
    requests = match_requests(
        ranges=report.ranges,
        api_calls=report.api_calls,
        gpu_ops=report.gpu_ops,
        launches=launches,
        nccl_calls=report.nccl_calls,
    )
    return Links(
        launches=launches,
        requests=requests,
        waited=find_waited_calls(
            report.ranges,
            report.api_calls,
            launches["call_row"].to_numpy(),
            device=find_launch_devices(report.gpu_ops, launches),
        )
        if scope == "auto"
        else None,
    )


def describe_training(
    report: Report,
    *,
    projections: pl.DataFrame,
    links: Links,
    options: PartOptions,
    with_tables: bool = True,
    nsys: str | None = None,
) -> ReportTraining:
    """Find the jobs of a report, its steps, compute segments and messages.

    Args:
        report: Read with ranges, operations and communication.
        projections: Its `PROJECTIONS`.
        links: Causes of its operations.
        options: Rules of jobs and steps.
        with_tables: Also find the longest gaps, for tables; else that frame is empty, and so are all frames
            of a report without jobs, steps and messages.
        nsys: Program that exports `.nsys-rep` files; without tables, a serving report is read once more.

    Raises:
        NsysPPError: The rules cannot be read, or are wrong.
    """
    rules, named, step_ranges = _name_ranges(report, options)
    known: dict[str, Any] = {
        "api_calls": report.api_calls,
        "gpu_ops": report.gpu_ops,
        "launches": links.launches,
        "waited": links.waited,
    }
    launched_ops = LaunchedOps(gpu_ops=report.gpu_ops, api_calls=report.api_calls, launches=links.launches)
    compute_of: Callable[..., pl.DataFrame] = partial(project_compute, **known)
    all_of: Callable[..., pl.DataFrame] = partial(project_ranges, **known, ops=options.ops)
    selected = _select_ranges(report, pl.concat([named["range_id"], step_ranges["range_id"]]))
    scope: Any = options.scope
    compute = step_compute = compute_of(selected, scope=scope)
    if step_ranges["batch"].count():  # steps of inference, whose ends `widen_batches` moved
        step_compute = compute_of(step_ranges, scope=scope)
    if scope == "auto":  # jobs of several threads count launches of all threads, where they have no row
        threaded = named.filter(pl.col("kind").is_in(THREADED_KINDS))["range_id"]
        left = threaded.filter(~threaded.is_in(projections["range_id"].implode()))
        projections = widen_projections(projections, all_of(_select_ranges(report, left), scope="process"))
        left = threaded.filter(~threaded.is_in(compute["range_id"].implode()))
        compute = widen_projections(compute, compute_of(_select_ranges(report, left), scope="process"))
    jobs = build_jobs(named, projections=projections, compute=compute, ops=launched_ops)
    halves = split_names(named, rules)
    messages = find_messages(launched_ops, requests=links.requests, jobs=jobs, halves=halves)
    is_marked = not (jobs.is_empty() and step_ranges.is_empty() and messages.is_empty())
    if not is_marked and not with_tables:  # a trace shows nothing of it
        return ReportTraining(
            preset=rules.name,
            unmatched=rules.unmatched,
            frames={name: schema.to_frame() for name, schema in REPORT_FRAMES.items()},
        )
    steps = find_steps(step_ranges, compute=step_compute, jobs=jobs, ops=launched_ops)
    between, of_between = list_unmarked_backwards(named), "process" if scope == "auto" else scope
    if len(gaps := list_gaps(named)):
        between, of_between = find_gap_jobs(named, halves, gaps, compute_of(gaps, scope=scope)), scope
    if len(between):
        inferred = build_jobs(
            between,
            projections=all_of(between, scope=of_between),
            compute=compute_of(between, scope=of_between),
            ops=launched_ops,
        )
        jobs = pl.concat([jobs, inferred.with_columns(range_id=pl.lit(None, pl.Int64))])
    jobs = assign_steps(jobs, steps)
    segments = find_segments(launched_ops, steps)
    waits = build_waits(
        segments,
        launched_ops,
        steps=steps,
        stream_calls=report.stream_calls,
        messages=messages,
        waited=None if links.waited is None else (links.waited.certain.thread, links.waited.certain.call_row),
    )
    waits = cut_overheads(waits, report.overheads, ops=launched_ops, details=report.op_details)
    frames = {
        "jobs": jobs,
        "steps": steps,
        "batches": find_batches(
            step_ranges,
            steps=steps,
            ranges=report.ranges,
            named_jobs=named,
            ops=launched_ops,
            os_calls=report.os_calls if with_tables else _read_os_calls(report, step_ranges, nsys=nsys),
        ),
        "compute_segments": build_compute_segments(segments, launched_ops.devices),
        "waits": waits,
        "gaps": find_longest_gaps(segments, ops=launched_ops, ranges=report.ranges, os_calls=report.os_calls)
        if with_tables
        else GAPS.to_frame(),
        "messages": assign_message_steps(messages, steps),
        "kernels": sum_kernels(
            report.gpu_ops,
            steps,
            details=report.op_details,
            job_kind=find_job_kinds(launched_ops, jobs),
        ),
        "overheads": sum_overheads(report.overheads, steps, waits=waits, ops=launched_ops),
    }
    return ReportTraining(preset=rules.name, unmatched=rules.unmatched, frames=frames)


def _name_ranges(report: Report, options: PartOptions) -> tuple[Rules, pl.DataFrame, pl.DataFrame]:
    """Choose the rules of a report; find its jobs (`NAMED_JOBS`) and ranges of steps (`NAMED_STEPS`)."""
    names = list_range_names(report.ranges)
    rules = choose_rules(
        report.ranges,
        preset=options.preset,
        job_patterns=options.job_patterns,
        step_patterns=options.step_patterns,
        names=names,
    )
    named = name_jobs(report.ranges, rules, names=names)
    step_ranges = widen_batches(name_steps(report.ranges, rules, names=names))
    if len(phases := find_phases(report.ranges, step_ranges, named)):
        named = pl.concat([named, phases]).sort("range_id")
    return rules, named, step_ranges


def _read_os_calls(report: Report, step_ranges: pl.DataFrame, *, nsys: str | None) -> pl.DataFrame:
    """Read the calls of the operating system (`OS_CALLS`) of a serving report.

    A host that waits in one may wait for requests.

    Traces of other reports need none of these, which are as many as calls of CUDA.
    """
    if not step_ranges["batch"].count():
        return report.os_calls
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first reading has warned
        return build_report(read_report(report.path, need=frozenset({"os_calls"}), nsys=nsys)).os_calls


def _select_ranges(report: Report, range_ids: pl.Series) -> pl.DataFrame:
    return report.ranges.filter(pl.col("range_id").is_in(range_ids.implode()))


TRAINING_GROUPS: frozenset[Group] = SURVEY_GROUPS | {"kernel_names", "os_calls"}
_DETAIL_GROUPS: dict[str, frozenset[Group]] = {  # with names of kernels, whose families explain slow ranks
    "jobs": SURVEY_GROUPS | {"kernel_names"},
    "ranges": SURVEY_GROUPS | {"kernel_names", "overview"},
    "kernels": SURVEY_GROUPS | {"details", "overview"},
    "cpu": SURVEY_GROUPS | {"details", "overview", "cpu"},
}


class Input(Struct, frozen=True, kw_only=True):
    """One input of a run: a part, read from a file or made of a report."""

    path: Path  # as named by the user
    part: Part
    identity: Identity
    open_blocks: OpenBlocks

    def __repr__(self) -> str:
        """Return the path; frames are many."""
        return f"Input({str(self.path)!r})"


# Frames of a part that its identity has.
IDENTITY_FRAMES = tuple(name for name, kind in Identity.__annotations__.items() if "DataFrame" in str(kind))


def build_input(path: Path, part: Part, open_blocks: OpenBlocks) -> Input:
    """Build the input of a part, with the identity of its report.

    Raises:
        KeyError: A frame is missing.
    """
    frames = {name: part.frames[name] for name in IDENTITY_FRAMES}
    facts = part.facts
    return Input(
        path=path,
        part=part,
        identity=Identity(path=part.source, session=facts.session, fingerprint=facts.fingerprint, **frames),
        open_blocks=open_blocks,
    )


def encode_report(path: Path, options: PartOptions, *, nsys: str | None, store: Store) -> Input:
    """Read a report and encode its trace: a part without the frames that tables need.

    Args:
        path: The report.
        options: Content of the part.
        nsys: Program that exports `.nsys-rep` files.
        store: Keeps the blocks of the trace.

    Raises:
        ReportError: It cannot be read.
    """
    with store.add() as (sink, open_blocks):
        part, drawing = draw_part(path, options, nsys=nsys, with_tables=False)
        enter_stage("encoding", 0.7, 1.0)  # the report's frames are free by now
        part = replace(part, encoded=encode_drawing(drawing, sink))
    return build_input(path, part, open_blocks)


def draw_part(
    path: Path, options: PartOptions, *, nsys: str | None, with_tables: bool = True
) -> tuple[Part, Drawing]:
    """Build the part of a report without its blocks, and the drawing that makes them.

    Arguments as in `encode_report`; `with_tables` adds the frames that tables need and traces do not.
    """
    groups = _drawn_groups(options)
    if with_tables:
        groups |= GROUPS | {"metric_sums", "network_sums"}
    enter_stage("reading", 0.0, 0.3)
    report = build_report(read_report(path, need=groups, nsys=nsys), is_last_use=True)
    enter_stage("projecting", 0.4, 0.5)
    links = find_links(report, options.scope)
    projections = project_report(
        report, ops=options.ops, scope=options.scope, launches=links.launches, waited=links.waited
    )
    enter_stage("finding jobs", 0.5, 0.6)
    training = describe_training(
        report,
        projections=projections,
        links=links,
        options=options,
        with_tables=with_tables,
        nsys=nsys,
    )
    frames = {"row_counts": count_report_rows(report, links.launches, projections, options.scope)}
    if with_tables:
        frames |= {
            **_aggregate(report, projections, links, training, options),
            **summarise_for_part(report, training.frames["steps"]),
            **summarise_network(report, links.requests),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the first reading has warned
            frames["bubble_hosts"] = list_bubble_hosts(path, training.frames, nsys=nsys, report=report)
    part = _build_part(report, options, links, training, frames)
    enter_stage("drawing", 0.6, 0.7)
    job_ranges = list_job_ranges(training.frames["jobs"])
    return part, draw(report, projections, options, job_ranges=job_ranges)


def survey_report(
    path: Path,
    options: PartOptions,
    *,
    nsys: str | None,
    with_training: bool = False,
    with_aggregates: bool = False,
    with_density: bool = False,
) -> Input:
    """Read a report as a part with its identity and anchors; its trace is empty.

    Args:
        path: The report.
        options: Rules of jobs and steps, and operations that count.
        nsys: Program that exports `.nsys-rep` files.
        with_training: Also find the jobs.
        with_aggregates: With the jobs, also build the aggregates.
        with_density: With the jobs, also count events by time: frame "density" of `count_rows_by_time`.

    Raises:
        ReportError: It cannot be read.
    """
    groups = GROUPS if with_aggregates else TRAINING_GROUPS if with_training else SURVEY_GROUPS
    groups |= find_show_groups({*options.show} & {"mpi"})  # messages are drawn when clocks are known
    report = build_report(read_report(path, need=groups, nsys=nsys), is_last_use=True)
    links = find_links(report, options.scope)
    training, projections, frames = ReportTraining(preset="", unmatched=(), frames={}), None, {}
    if with_training:
        projections = project_report(
            report, ops=options.ops, scope=options.scope, launches=links.launches, waited=links.waited
        )
        training = describe_training(report, projections=projections, links=links, options=options)
        if with_aggregates:
            frames = _aggregate(report, projections, links, training, options)
        if with_density:
            frames["density"] = count_rows_by_time(report, projections, detail=options.detail)
    frames["row_counts"] = count_report_rows(report, links.launches, projections, options.scope)
    return build_input(path, _build_part(report, options, links, training, frames), BytesIO)


def redraw_report(
    path: Path,
    windows: Sequence[tuple[PartOptions, Window]],
    *,
    nsys: str | None,
    job_ranges: pl.DataFrame,
) -> Iterator[Drawing]:
    """Draw the events of a report that overlap each of several windows; the report is read once.

    Args:
        path: The report.
        windows: Content of each drawing, with the same operations and scope, and its window on the report's
            clock.
        nsys: Program that exports `.nsys-rep` files.
        job_ranges: Its `JOB_RANGES`.

    Raises:
        ReportError: It cannot be read.
    """
    groups = frozenset[Group]().union(*(_drawn_groups(options) for options, _ in windows))
    report = build_report(read_report(path, need=groups, nsys=nsys), is_last_use=True)
    projections = project_report(report, ops=windows[0][0].ops, scope=windows[0][0].scope)
    for options, window in windows:
        yield draw(report, projections, options, job_ranges=job_ranges, window=window)


def _drawn_groups(options: PartOptions) -> frozenset[Group]:
    return _DETAIL_GROUPS[options.detail] | find_show_groups(options.show)


def shorten_path(path: Path) -> Path:
    """Return the path as named, or from its `machine*` folder on: the folder names the machine.

    As text (`describe_path`).
    """
    path = Path(describe_path(path))
    names = path.absolute().parts
    at = [index for index, name in enumerate(names[:-1]) if name.lower().startswith("machine")]
    if not at or len(path.parts) >= len(names) - at[-1]:
        return path
    return Path(*names[at[-1] :])


def nothing_to_draw_error(subject: str) -> MissingDataError:
    """Return the error of reports without events to draw, with the option that records them."""
    return MissingDataError(
        f"{subject}: no GPU operations",
        "`nsys profile --trace cuda,nvtx` records them; `--detail cpu --show all` draws all else that it has",
    )


def count_report_rows(
    report: Report, launches: pl.DataFrame, projections: pl.DataFrame | None, scope: str
) -> pl.DataFrame:
    """Count the rows of a report up to its projections (`ROW_COUNTS`).

    Args:
        report: Read with ranges and operations.
        launches: `LAUNCHES` of all its operations.
        projections: Its `PROJECTIONS`; None: not computed.
        scope: Launches that counted.
    """
    return report.row_counts.vstack(
        count_projected(report.ranges, report.gpu_ops, launches, projections, scope)  # type: ignore[arg-type]
    )


def _aggregate(
    report: Report, projections: pl.DataFrame, links: Links, training: ReportTraining, options: PartOptions
) -> dict[str, pl.DataFrame]:
    """Build the aggregates of a report for the tables of a summary, by step (`AGGREGATE_FRAMES`)."""
    steps, jobs = training.frames["steps"], training.frames["jobs"]
    sources = AggregateSources(
        report=report,
        projections=projections,
        launches=links.launches,
        requests=links.requests,
        operators=name_operators(report.ranges),
        steps=steps,
        jobs=jobs.filter(pl.col("range_id").is_not_null()),  # inferred ones are uncertain
        windows=find_windows(
            steps,
            gpu_ops=report.gpu_ops,
            api_calls=report.api_calls,
            os_calls=report.os_calls,
            ranges=report.ranges,
        ),
        op_kinds=tuple(kind for name in options.ops for kind in OPS[name]),
    )
    return {name: build(sources) for name, build in AGGREGATES.items()}


def _build_part(
    report: Report,
    options: PartOptions,
    links: Links,
    training: ReportTraining,
    frames: Mapping[str, pl.DataFrame],
) -> Part:
    identity = identify(report)
    return Part(
        source=shorten_path(report.path),
        made_by=version("nsys-pp"),
        options=options,
        facts=PartFacts(
            session=identity.session,
            fingerprint=identity.fingerprint,
            preset=training.preset,
            unmatched=training.unmatched,
            data_warnings=tuple(find_data_warnings(report, links.launches)),
            recorded=tuple(name_recorded(count_rows(report))),
            is_folded=report.ranges["name"].n_unique() > MOST_NAMES,
        ),
        frames={
            **{name: getattr(identity, name) for name in IDENTITY_FRAMES},
            "anchors": find_anchors(
                requests=links.requests,
                gpu_ops=report.gpu_ops,
                mpi_calls=report.mpi_calls,
            ),
            **training.frames,
            **frames,
            **({FRAME: list_mpi_messages(report)} if "mpi" in options.show else {}),
        },
        encoded=Encoded(report_id=report.fingerprint, base_ns=0, tracks=[], subtracks=[]),
    )
