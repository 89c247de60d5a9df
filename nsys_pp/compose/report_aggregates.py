"""What one report adds to the tables of a summary: sums, by step, that need none of its events any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from nsys_pp.aggregates.calls import sum_calls
from nsys_pp.aggregates.collectives import sum_collectives
from nsys_pp.aggregates.gpu_times import measure_gpu
from nsys_pp.aggregates.host_times import find_communication, measure_host
from nsys_pp.aggregates.idle_times import find_idle
from nsys_pp.aggregates.items import sum_items
from nsys_pp.aggregates.launches import sum_launches
from nsys_pp.aggregates.memory import find_peaks, sum_memory
from nsys_pp.aggregates.ops import sum_copy_sizes, sum_ops
from nsys_pp.aggregates.windows import find_windows
from nsys_pp.compose.report_training import Links
from nsys_pp.frames.report import Report
from nsys_pp.project.ranges import OPS
from nsys_pp.training.report.operators import name_operators


def aggregate_report(
    report: Report,
    *,
    projections: pl.DataFrame,
    links: Links,
    training: Mapping[str, pl.DataFrame],
    counted: Sequence[str],
) -> dict[str, pl.DataFrame]:
    """Sum up a report.

    Args:
        report: Read with all groups but "cpu".
        projections: Its `PROJECTIONS`.
        links: What caused its operations.
        training: Its `REPORT_FRAMES`.
        counted: Which operations its projections count: keys of `nsys_pp.project.ranges.OPS`.

    Returns:
        `AGGREGATE_FRAMES`, by name.
    """
    ops, calls, steps, jobs = report.gpu_ops, report.api_calls, training["steps"], training["jobs"]
    windows = find_windows(
        steps, gpu_ops=ops, api_calls=calls, os_calls=report.os_calls, ranges=report.ranges
    )
    operators = name_operators(report.ranges)
    launched = {"api_calls": calls, "launches": links.launches}
    return {
        "op_aggregates": sum_ops(ops, report.op_details, steps),
        "copy_sizes": sum_copy_sizes(ops, report.op_details, steps),
        "call_aggregates": sum_calls(calls, report.os_calls, steps),
        "item_aggregates": sum_items(
            ranges=report.ranges,
            projections=projections,
            operators=operators,
            jobs=jobs,
            steps=steps,
            kinds=[kind for name in counted for kind in OPS[name]],
            gpu_ops=ops,
            api_calls=calls,
            launches=links.launches,
        ),
        "collective_aggregates": sum_collectives(ops, links.requests, report.nccl_calls, steps),
        "gpu_times": measure_gpu(
            ops,
            host_communication=find_communication(report.ranges, operators),
            windows=windows.device,
        ),
        "host_times": measure_host(
            windows=windows.host,
            ranges=report.ranges,
            operators=operators,
            jobs=jobs,
            api_calls=calls,
            os_calls=report.os_calls,
            thread_runs=report.thread_runs,
        ),
        "idle_times": find_idle(ops, windows=windows.device, **launched),
        "launch_aggregates": sum_launches(ops, steps=steps, **launched),
        "memory_aggregates": sum_memory(
            report.memory_events, ranges=report.ranges, jobs=jobs, api_calls=calls, steps=steps
        ),
        "memory_peaks": find_peaks(report.memory_events, windows=windows.host),
    }
