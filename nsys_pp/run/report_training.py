"""Training frames of one report, on its own clock.

Projections, jobs, steps, compute segments and messages.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.columns import mark_categories, numbers
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.part import PartOptions
from nsys_pp.frames.report import Report
from nsys_pp.frames.training import GAPS, JOB_KIND, REPORT_FRAMES, SCHEDULED_KINDS
from nsys_pp.model import build_report
from nsys_pp.projection.launches import find_launch_devices, match_launches, match_requests
from nsys_pp.projection.ranges import Scope, count_cross_thread, project_compute, project_ranges
from nsys_pp.projection.waited_calls import Waited, find_waited_calls
from nsys_pp.read import read_report
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
    widen_projections,
)
from nsys_pp.training.kernels import build_compute_segments, find_segments, sum_kernels
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.messages import assign_message_steps, find_messages
from nsys_pp.training.names import Rules, choose_rules, list_range_names, name_jobs, name_steps, split_names
from nsys_pp.training.steps import find_steps
from nsys_pp.training.waits import build_waits, cut_overheads, sum_overheads


def project_report(
    report: Report,
    *,
    ops: tuple[str, ...],
    scope: Scope,
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
    crossing = count_cross_thread(report.ranges)
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


_IS_SCHEDULED = mark_categories(JOB_KIND, SCHEDULED_KINDS)
_IS_THREADED = mark_categories(JOB_KIND, THREADED_KINDS)


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

    @property
    def job_ranges(self) -> pl.DataFrame:
        """Ranges of the report that are jobs and ran on a GPU: `JOB_RANGES`."""
        return list_job_ranges(self.frames["jobs"])


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
    waited = None
    if scope == "auto":
        waited = find_waited_calls(
            report.ranges,
            report.api_calls,
            launches["call_row"].to_numpy(),
            device=find_launch_devices(report.gpu_ops, launches),
        )
    return Links(launches=launches, requests=requests, waited=waited)


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
    kinds = numbers(named["kind"])
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
        threaded = named["range_id"].filter(pl.Series(_IS_THREADED[kinds]))
        for_process = partial(_select_ranges, report)
        left = threaded.filter(~threaded.is_in(projections["range_id"].implode()))
        if len(left):
            projections = widen_projections(projections, all_of(for_process(left), scope="process"))
        left = threaded.filter(~threaded.is_in(compute["range_id"].implode()))
        if len(left):
            compute = widen_projections(compute, compute_of(for_process(left), scope="process"))
    jobs = build_jobs(named, projections=projections, compute=compute, ops=launched_ops)
    halves = split_names(named, rules)
    messages = find_messages(launched_ops, requests=links.requests, jobs=jobs, halves=halves)
    is_marked = not (jobs.is_empty() and step_ranges.is_empty() and messages.is_empty())
    if not is_marked and not with_tables:  # a trace shows nothing of it
        empty = {name: schema.to_frame() for name, schema in REPORT_FRAMES.items()}
        return ReportTraining(preset=rules.name, unmatched=rules.unmatched, frames=empty)
    steps = find_steps(step_ranges, compute=step_compute, jobs=jobs, ops=launched_ops)
    if not _IS_SCHEDULED[kinds].any() and len(gaps := list_gaps(named)):
        between = find_gap_jobs(named, halves, gaps, compute_of(gaps, scope=scope))
        inferred = build_jobs(
            between,
            projections=all_of(between, scope=scope),
            compute=compute_of(between, scope=scope),
            ops=launched_ops,
        )
        jobs = pl.concat([jobs, inferred.with_columns(range_id=pl.lit(None, pl.Int64))])
    jobs = assign_steps(jobs, steps)
    segments = find_segments(launched_ops, steps)
    certain = None if links.waited is None else links.waited.certain
    waits = build_waits(
        segments,
        launched_ops,
        steps=steps,
        stream_calls=report.stream_calls,
        messages=messages,
        waited=None if certain is None else (certain.thread, certain.call_row),
    )
    waits = cut_overheads(waits, report.overheads, ops=launched_ops)
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
    """Return the ranges with these ids (`RANGES`)."""
    return report.ranges.filter(pl.col("range_id").is_in(range_ids.implode()))


class PresetHint(Struct, frozen=True, kw_only=True):
    """Preset that would read the ranges with the most GPU time.

    Attributes:
        preset: Its name.
        range_count: Number of ranges that it would read as outermost jobs (as steps, for inference).
        gpu_ns: Time of the kernels in them, with concurrent ones once per device.
    """

    preset: str
    range_count: int
    gpu_ns: int


def find_preset_hint(report: Report, readings: Mapping[str, Int64s]) -> PresetHint | None:
    """Find the preset that would read the most GPU time, if the user asked for it.

    Args:
        report: Read with ranges and operations.
        readings: Ranges that each preset would read, from `find_preset_readings`.

    Returns:
        Of presets with equal times, the one with the most ranges, then the first. None if no preset reads GPU
        work.
    """
    if not readings:
        return None
    is_read = np.isin(report.ranges["range_id"].to_numpy(), np.concatenate(list(readings.values())))
    projections = project_report(
        replace(report, ranges=report.ranges[np.flatnonzero(is_read)]), ops=("kernel",), scope="auto"
    )
    busy = projections.group_by("range_id").agg(pl.col("busy_ns").sum())
    hints = [
        PresetHint(
            preset=name,
            range_count=len(ids),
            gpu_ns=int(busy.filter(pl.col("range_id").is_in(ids.tolist()))["busy_ns"].sum()),
        )
        for name, ids in readings.items()
    ]
    best = max(hints, key=lambda hint: (hint.gpu_ns, hint.range_count))  # the first of equal ones
    return best if best.gpu_ns else None
