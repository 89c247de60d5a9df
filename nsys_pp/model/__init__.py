"""Model of a report: raw frames -> frames of `Report`, with names resolved and secrets removed."""

from __future__ import annotations

from copy import deepcopy

from msgspec.structs import replace

from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import OpDetails, Report
from nsys_pp.model.activities import build_activities, build_os_calls, build_thread_runs
from nsys_pp.model.communication import (
    build_mpi_calls,
    build_mpi_messages,
    build_nccl_calls,
    read_nccl_events,
)
from nsys_pp.model.contents import build_diagnostics, build_exported_tables
from nsys_pp.model.damage import (
    check_limits,
    drop_impossible,
    drop_repeated_calls,
    drop_reversed,
    drop_unusable,
    number_events,
)
from nsys_pp.model.gpu_ops import (
    OP_TABLES,
    build_api_calls,
    build_gpu_ops,
    build_memory_events,
    build_op_details,
    build_overheads,
    build_stream_calls,
    list_pageable_copies,
)
from nsys_pp.model.identity import (
    build_devices,
    build_gpus,
    build_processes,
    build_ranks,
    build_session,
    build_streams,
    build_threads,
    compute_fingerprint,
    first_values,
    number_gpus,
    rank_main_process,
)
from nsys_pp.model.metrics import build_counters, build_sampled_metrics
from nsys_pp.model.names import read_structures
from nsys_pp.model.ranges import build_marks, build_ranges, name_events, split_events

__all__ = ["add_activities", "build_report"]


def build_report(raw: RawReport, *, is_last_use: bool = False) -> Report:
    """Build the report of raw frames.

    Args:
        raw: The raw frames. Frames of groups that were not read are empty, as for data that was not recorded;
            `recorded` distinguishes both.
        is_last_use: Free each large raw frame once its part of the report is built; `raw` loses its events.

    Returns:
        The report; its frames contain only strings that events refer to.
    """
    if not is_last_use:
        raw = replace(raw, frames=dict(raw.frames), tally=deepcopy(raw.tally))
    _mend(raw)
    structures = [*read_structures(raw)]
    events = name_events(raw, structures)
    op_details = OpDetails() if raw.groups.isdisjoint({"kernel_names", "details"}) else build_op_details(raw)
    gpu_ops, pageable_copies = build_gpu_ops(raw), list_pageable_copies(raw)
    raw.release(*OP_TABLES)
    api_calls = build_api_calls(raw)
    raw.release("calls")
    nccl_events = read_nccl_events(raw, structures)
    launcher = first_values(raw["launcher"])
    gpus = number_gpus(raw)
    ranks = build_ranks(raw, gpu_ops, nccl_events, launcher)
    devices = build_devices(raw, gpus, gpu_ops, launcher, ranks)
    if ranks.is_empty():
        ranks = rank_main_process(devices, gpu_ops, launcher)
    session = build_session(raw, launcher, ranks)
    raw.release("nvtx")
    of_ranges, of_marks = split_events(events)
    del events
    ranges, marks = build_ranges(of_ranges, session.capture_end_ns), build_marks(of_marks)
    del of_ranges, of_marks
    # without group "host": drawings and identities must not depend on reading it
    threads = build_threads(raw, (ranges, marks, api_calls))
    processes = build_processes(raw, (threads, gpu_ops))
    stream_calls = build_stream_calls(raw)
    activities = build_activities(raw, gpus, api_calls, stream_calls)
    active_processes, active_threads = build_processes(raw, (activities,)), build_threads(raw, (activities,))
    mpi_messages = build_mpi_messages(raw)
    overheads = build_overheads(raw)
    sampled_metrics = build_sampled_metrics(raw, gpus, devices)
    raw.release("activities", "gpu_metrics", "generic_events", "network_metrics")
    report = Report(
        path=raw.path,
        session=session,
        fingerprint=compute_fingerprint(raw),
        recorded=dict(raw.recorded),
        exported_tables=build_exported_tables(raw.tables),
        processes=processes,
        threads=threads,
        gpus=build_gpus(raw, gpus),
        devices=devices,
        streams=build_streams(raw, processes),
        ranges=ranges,
        marks=marks,
        api_calls=api_calls,
        stream_calls=stream_calls,
        gpu_ops=gpu_ops,
        op_details=op_details,
        nccl_calls=build_nccl_calls(nccl_events, ranges if "ranges" in raw.groups else None),
        mpi_calls=build_mpi_calls(raw),
        os_calls=build_os_calls(raw),
        thread_runs=build_thread_runs(raw),
        memory_events=build_memory_events(raw),
        counters=build_counters(raw),
        diagnostics=build_diagnostics(raw),
        row_counts=raw.tally.build(),
        sampled_metrics=sampled_metrics,
        ranks=ranks,
        activities=activities,
        active_processes=active_processes,
        active_threads=active_threads,
        mpi_messages=mpi_messages,
        pageable_copies=pageable_copies,
        overheads=overheads,
    )
    return check_limits(report)


def add_activities(report: Report, raw: RawReport) -> Report:
    """Add the activities of threads, that are read after the other tables.

    Args:
        report: The report.
        raw: Tables on request of the same export, without synchronizations.

    Returns:
        The report with the `activities` and `active_threads` of `raw`.
    """
    _mend(raw)
    activities = build_activities(raw, number_gpus(raw), report.api_calls, report.stream_calls)
    return replace(
        report,
        activities=activities,
        active_threads=build_threads(raw, (activities,)),
    )


def _mend(raw: RawReport) -> None:
    """Drop the rows that no frame can have, each with a reason, and number events without numbers."""
    drop_unusable(raw)
    number_events(raw)
    drop_impossible(raw)
    drop_reversed(raw)
    drop_repeated_calls(raw)
