"""One report through all stages: read, project, find the training, draw, aggregate; the result is a part."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
from msgspec.structs import replace

from nsys_pp.aggregates.items import MOST_NAMES
from nsys_pp.aggregates.registry import AGGREGATES, GROUPS, AggregateSources
from nsys_pp.aggregates.times import find_windows
from nsys_pp.alignment.anchors import find_anchors
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.ids import describe_path
from nsys_pp.frames.part import Encoded, Part, PartFacts, PartOptions
from nsys_pp.frames.raw import SURVEY_GROUPS, Group, find_show_groups
from nsys_pp.frames.report import OpDetails, Report
from nsys_pp.model import build_report
from nsys_pp.model.contents import count_rows, find_data_warnings, name_recorded
from nsys_pp.output.perfetto.trace import Sink, encode_drawing
from nsys_pp.output.trace.drawing import Drawing
from nsys_pp.output.trace.tracks import draw_report
from nsys_pp.progress import enter_stage
from nsys_pp.projection.ranges import OPS
from nsys_pp.read import read_report
from nsys_pp.roster.identity import identify
from nsys_pp.run.inputs import IDENTITY_FRAMES, count_report_rows
from nsys_pp.run.report_training import Links, ReportTraining, describe_training, find_links, project_report
from nsys_pp.run.requested import list_bubble_hosts, summarise_for_part, summarise_network
from nsys_pp.run.view import FRAME, Window, count_rows_by_time, list_mpi_messages, view_report
from nsys_pp.training.names import name_operators

TRAINING_GROUPS: frozenset[Group] = SURVEY_GROUPS | {"kernel_names", "os_calls"}
_DETAIL_GROUPS: dict[str, frozenset[Group]] = {  # with names of kernels, whose families explain slow ranks
    "jobs": SURVEY_GROUPS | {"kernel_names"},
    "ranges": SURVEY_GROUPS | {"kernel_names", "overview"},
    "kernels": SURVEY_GROUPS | {"details", "overview"},
    "cpu": SURVEY_GROUPS | {"details", "overview", "cpu"},
}
_own_version = cache(partial(version, "nsys-pp"))


def extract_report(
    path: Path, options: PartOptions, sink: Sink, *, nsys: str | None, with_tables: bool = True
) -> Part:
    """Build the part of one report.

    Args:
        path: The report.
        options: Content of the part.
        sink: Receives the blocks of the trace.
        nsys: Program that exports `.nsys-rep` files.
        with_tables: Build a part to be stored: with the frames that tables need and traces do not.

    Raises:
        ReportError: It cannot be read.
    """
    part, drawing = draw_part(path, options, nsys=nsys, with_tables=with_tables)
    enter_stage("encoding", 0.7, 1.0)  # the report's frames are free by now
    return replace(part, encoded=encode_drawing(drawing, sink))


def draw_part(
    path: Path, options: PartOptions, *, nsys: str | None, with_tables: bool = True
) -> tuple[Part, Drawing]:
    """Build the part of a report without its blocks, and the drawing that makes them.

    Arguments as in `extract_report`.
    """
    groups = _drawn_groups(options)
    if with_tables:
        groups |= GROUPS | {"metric_sums", "network_sums"}
    enter_stage("reading", 0.0, 0.3)
    report = build_report(read_report(path, need=groups, nsys=nsys), is_last_use=True)
    enter_stage("projecting", 0.4, 0.5)
    links = find_links(report, options.scope)
    projections = project(report, options, links)
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
        frames |= _aggregate(report, projections, links, training, options)
        frames |= summarise_for_part(report, training.frames["steps"])
        frames |= summarise_network(report, links)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the first reading has warned
            frames["bubble_hosts"] = list_bubble_hosts(path, training.frames, nsys=nsys, report=report)
    part = _build_part(report, options, links, training, frames)
    enter_stage("drawing", 0.6, 0.7)
    return part, draw(report, projections, options, job_ranges=training.job_ranges)


def survey_report(
    path: Path,
    options: PartOptions,
    *,
    nsys: str | None,
    with_training: bool = False,
    with_aggregates: bool = False,
    with_density: bool = False,
) -> Part:
    """Build a part with the identity and the anchors of a report; its trace is empty.

    Args:
        path: The report.
        options: Rules of jobs and steps, and operations that count.
        nsys: Program that exports `.nsys-rep` files.
        with_training: Also find the jobs.
        with_aggregates: Also find the jobs and build the aggregates.
        with_density: With the jobs, also count events by time: frame "density" of `count_rows_by_time`.

    Raises:
        ReportError: It cannot be read.
    """
    groups = TRAINING_GROUPS if with_training else SURVEY_GROUPS
    if with_aggregates:
        groups = GROUPS
    groups |= find_show_groups({*options.show} & {"mpi"})  # messages are drawn when clocks are known
    report = build_report(read_report(path, need=groups, nsys=nsys), is_last_use=True)
    links = find_links(report, options.scope)
    training, projections, frames = None, None, {}
    if with_training or with_aggregates:
        projections = project(report, options, links)
        training = describe_training(report, projections=projections, links=links, options=options)
        if with_aggregates:
            frames = _aggregate(report, projections, links, training, options)
        if with_density:
            frames["density"] = count_rows_by_time(report, projections, detail=options.detail)
    frames["row_counts"] = count_report_rows(report, links.launches, projections, options.scope)
    return _build_part(report, options, links, training, frames)


def redraw_report(
    path: Path,
    windows: Sequence[tuple[PartOptions, Window]],
    *,
    nsys: str | None,
    job_ranges: pl.DataFrame | None,
) -> Iterator[Drawing]:
    """Draw the events of a report that overlap each of several windows; the report is read once.

    Args:
        path: The report.
        windows: Content of each drawing, with the same operations and scope, and its window on the report's
            clock.
        nsys: Program that exports `.nsys-rep` files.
        job_ranges: Its `JOB_RANGES`; None: it has none.

    Raises:
        ReportError: It cannot be read.
    """
    groups = frozenset[Group]().union(*(_drawn_groups(options) for options, _ in windows))
    report = build_report(read_report(path, need=groups, nsys=nsys), is_last_use=True)
    projections = project(report, windows[0][0])
    for options, window in windows:
        yield draw(report, projections, options, job_ranges=job_ranges, window=window)


def project(report: Report, options: PartOptions, links: Links | None = None) -> pl.DataFrame:
    """Project the ranges of a report by the options of its part (`PROJECTIONS`).

    Args:
        report: Read with ranges and operations.
        options: Operations and scope that count.
        links: Causes of its operations; found here if None.
    """
    scope: Any = options.scope
    if links is None:
        return project_report(report, ops=options.ops, scope=scope)
    return project_report(report, ops=options.ops, scope=scope, launches=links.launches, waited=links.waited)


def draw(
    report: Report,
    projections: pl.DataFrame,
    options: PartOptions,
    *,
    job_ranges: pl.DataFrame | None = None,
    window: Window | None = None,
) -> Drawing:
    """Draw a report by the options of its part, or its events that overlap a window."""
    if "details" not in _DETAIL_GROUPS[options.detail]:  # they were read for aggregates only
        report = replace(report, op_details=OpDetails())
    view = view_report(
        report,
        projections,
        detail=options.detail,
        flows=options.flows,
        show=options.show,
        job_ranges=job_ranges,
        window=window,
    )
    return draw_report(view, detail=options.detail)  # type: ignore[arg-type]


def _drawn_groups(options: PartOptions) -> frozenset[Group]:
    """Return the groups of data that a drawing needs."""
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
        "`nsys profile --trace cuda,nvtx` records them; `--detail cpu` also draws CPU ranges,"
        " and `--show all` all else that reports hold",
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
    training: ReportTraining | None,
    frames: Mapping[str, pl.DataFrame],
) -> Part:
    identity = identify(report)
    has_aggregates = "item_aggregates" in frames
    return Part(
        source=shorten_path(report.path),
        made_by=_own_version(),
        options=options,
        facts=PartFacts(
            session=identity.session,
            fingerprint=identity.fingerprint,
            preset=training.preset if training else "",
            unmatched=tuple(training.unmatched) if training else (),
            data_warnings=tuple(find_data_warnings(report, links.launches)),
            recorded=tuple(name_recorded(count_rows(report))) if training or has_aggregates else None,
            is_folded=report.ranges["name"].n_unique() > MOST_NAMES if has_aggregates else None,
        ),
        frames={
            **{name: getattr(identity, name) for name in IDENTITY_FRAMES},
            "anchors": find_anchors(
                requests=links.requests,
                gpu_ops=report.gpu_ops,
                mpi_calls=report.mpi_calls,
            ),
            **(training.frames if training else {}),
            **frames,
            **({FRAME: list_mpi_messages(report)} if "mpi" in options.show else {}),
        },
        encoded=Encoded(report_id=report.fingerprint, base_ns=0, tracks=[], subtracks=[]),
    )
