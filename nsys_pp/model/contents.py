"""Contents of a report: GPUs, processes, domains of ranges, kinds of data, anomalies."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.names import is_matched
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.data_warnings import REPORT
from nsys_pp.frames.report import Report
from nsys_pp.model import anomalies as anomalies
from nsys_pp.model.data_warnings import find_data_warnings
from nsys_pp.model.recorded_kinds import list_missing, list_recorded

GPUS = build_schema(
    {  # one row per GPU and process that used it, by GPU
        "gpu": pl.String,
        "name": pl.String,
        "uuid": pl.String,
        "bus_location": pl.String,
        "pid": pl.Int64,
        "device_id": pl.Int32,  # CUDA ordinal within the process
        "op_count": pl.Int64,
        "communication_count": pl.Int64,
    },
    name="GPUS",
)

PROCESSES = build_schema(
    {  # one row per process with events
        "process_key": pl.Int64,
        "pid": pl.Int64,
        "name": pl.String,
        "thread_count": pl.Int64,
        "range_count": pl.Int64,
        "call_count": pl.Int64,
        "op_count": pl.Int64,
    },
    name="PROCESSES",
)

THREADS = build_schema(
    {  # one row per thread with events, by process
        "process_key": pl.Int64,
        "tid": pl.Int64,
        "name": pl.String,
        "range_count": pl.Int64,
        "call_count": pl.Int64,
    },
    name="THREADS",
)

DOMAINS = build_schema(
    {  # one row per name of an NVTX domain, the one with most ranges first
        "domain": pl.String,  # null for the default domain
        "range_count": pl.Int64,
        "push_pop_count": pl.Int64,
        "start_end_count": pl.Int64,
        "open_count": pl.Int64,  # still open when the capture ended
        "cross_thread_count": pl.Int64,  # ended on another thread than they began
        "mark_count": pl.Int64,
    },
    name="DOMAINS",
)

_OP_TABLES = {"kernel": "kernels", "memcpy": "copies", "memset": "sets", "graph": "graphs"}
_GRAPH_LAUNCH = r"^(?:cuda|cu)GraphLaunch"


class Contents(Struct, frozen=True, kw_only=True):
    """Contents of a report; times are on its clock."""

    start_ns: int | None  # of the capture if it was recorded, else of the first event
    end_ns: int | None
    has_capture: bool  # the end of the capture was recorded
    gpus: pl.DataFrame  # GPUS
    processes: pl.DataFrame  # PROCESSES
    threads: pl.DataFrame  # THREADS
    domains: pl.DataFrame  # DOMAINS
    recorded: pl.DataFrame  # RECORDED
    missing: pl.DataFrame  # MISSING
    tables: pl.DataFrame  # EXPORTED_TABLES
    op_count: int
    matched_count: int  # operations with a known launch
    communication_count: int
    anomalies: list[str]
    row_counts: pl.DataFrame  # ROW_COUNTS


def describe_contents(report: Report, launches: pl.DataFrame) -> Contents:
    """Count the contents of a report, and find its anomalies.

    Args:
        report: Its frames and facts.
        launches: `LAUNCHES` of its calls and operations.
    """
    session, counts = report.session, count_rows(report)
    ops, calls = report.gpu_ops, report.api_calls
    matched_count = launches["op_id"].n_unique()
    graph_count, lost_count = _count_graph_launches(calls, launches)
    spans = {"NVTX ranges": report.ranges, "CUDA calls": calls, "GPU operations": ops}
    # the exporter shifts events and not the session
    window = (session.time_shift_ns, session.capture_end_ns)
    has_capture = session.capture_end_ns is not None
    start_ns, end_ns = window if has_capture else _find_span(spans)
    return Contents(
        start_ns=start_ns,
        end_ns=end_ns,
        has_capture=has_capture,
        gpus=_count_by_gpu(report),
        processes=_count_by_process(report),
        threads=_count_by_thread(report),
        domains=count_by_domain(report.ranges, report.marks),
        recorded=list_recorded(counts),
        missing=list_missing(counts, nsys_version=session.nsys_version, has_graphs=graph_count > 0),
        tables=report.exported_tables,
        op_count=len(ops),
        matched_count=matched_count,
        communication_count=counts["communication"],
        row_counts=report.row_counts,
        anomalies=[
            *anomalies.find_unplaced(session.utc_epoch_ns, session.machine_source),
            *anomalies.find_unknown_devices(report.devices),
            *anomalies.find_outside(spans, *window),
            *anomalies.find_unmatched(len(ops), matched_count, len(calls)),
            *anomalies.find_lost_graphs(graph_count, lost_count, session.graph_mode),
            *anomalies.find_untimed(counts, _OP_TABLES),
            *(
                text.replace(REPORT, "this report")
                for text in find_data_warnings(report, launches, with_unlaunched=False)
            ),
        ],
    )


def count_by_domain(ranges: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Count the ranges (`RANGES`) and marks (`MARKS`) of each domain; `DOMAINS`."""
    of_ranges = ranges.group_by("domain").agg(
        range_count=pl.len(),
        push_pop_count=(pl.col("kind") == "push_pop").sum(),
        start_end_count=(pl.col("kind") == "start_end").sum(),
        open_count=pl.col("is_open").sum(),
        cross_thread_count=pl.col("end_thread_key").count(),
    )
    of_marks = marks.group_by("domain").agg(mark_count=pl.len())
    parts = [part.with_columns(pl.col("domain").cast(pl.String)) for part in (of_ranges, of_marks)]
    return (
        pl.concat(parts, how="diagonal_relaxed")
        .group_by("domain")
        .agg(pl.all().sum())
        .sort("range_count", "mark_count", "domain", descending=[True, True, False])
        .pipe(conform, DOMAINS)
    )


def count_rows(report: Report) -> dict[str, int]:
    """Count the rows by table; for tables that were read, without rows of names and rows without times."""
    ops = report.gpu_ops
    in_graph = 0
    if ops["graph_id"].count():
        in_graph = len(ops.filter(pl.col("kind") == "kernel", pl.col("graph_id").is_not_null()))
    return {
        **report.recorded,
        "ranges": len(report.ranges),
        "marks": len(report.marks),
        "calls": len(report.api_calls),
        **dict(ops["kind"].value_counts().iter_rows()),
        "kernel_in_graph": in_graph,
        "communication": int(ops["is_communication"].sum()),
        "nccl_calls": _count_nccl_calls(report.ranges),
    }


def _count_nccl_calls(ranges: pl.DataFrame) -> int:
    """Count NCCL's own ranges; their domain has no name if it was created before the capture."""
    is_nccl = is_matched(ranges["domain"], "^NCCL$") | is_matched(ranges["name"], "^nccl")
    return int(np.count_nonzero(is_nccl))


def _count_graph_launches(calls: pl.DataFrame, launches: pl.DataFrame) -> tuple[int, int]:
    """Count the calls that launch a CUDA graph, and the ones without an operation."""
    names = calls["name"].unique().drop_nulls()
    names = names.filter(names.cast(pl.String).str.contains(_GRAPH_LAUNCH))
    rows = calls.with_row_index("call_row").filter(pl.col("name").is_in(names.implode())).select("call_row")
    lost = rows.join(launches, on="call_row", how="anti")
    return len(rows), len(lost)


def _find_span(spans: Mapping[str, pl.DataFrame]) -> tuple[int | None, int | None]:
    """Find the first start and the last end of all events; None without events."""
    ends = pl.concat(
        [
            frame.select(first=pl.col("start_ns").min(), last=pl.col("end_ns").max())
            for frame in spans.values()
        ]
    )
    first, last = ends.select(pl.col("first").min(), pl.col("last").max()).row(0)
    return first, last


def _count_by_gpu(report: Report) -> pl.DataFrame:
    keys = ["process_key", "device_id"]
    used = report.gpu_ops.group_by(keys).agg(
        op_count=pl.len(), communication_count=pl.col("is_communication").sum()
    )
    return (
        report.devices.join(used, on=keys, how="left", maintain_order="left")
        .join(report.processes.select("process_key", "pid"), on="process_key", how="left")
        .sort(pl.col("gpu").str.extract(r"(\d+)").cast(pl.Int64), "gpu", "pid", "device_id")
        .pipe(conform, GPUS)
    )


def _count_by_process(report: Report) -> pl.DataFrame:
    counted = report.processes
    for name, frame in _named_frames(report).items():
        per_process = frame.group_by("process_key").agg(pl.len().cast(pl.Int64).alias(f"{name}_count"))
        counted = counted.join(per_process, on="process_key", how="left", maintain_order="left")
    return counted.with_columns(pl.selectors.ends_with("_count").fill_null(0)).pipe(conform, PROCESSES)


def _count_by_thread(report: Report) -> pl.DataFrame:
    counted = report.threads
    for name in ("range", "call"):
        per_thread = _named_frames(report)[name].group_by("thread_key")
        per_thread_count = per_thread.agg(pl.len().cast(pl.Int64).alias(f"{name}_count"))
        counted = counted.join(per_thread_count, on="thread_key", how="left", maintain_order="left")
    return counted.with_columns(pl.selectors.ends_with("_count").fill_null(0)).pipe(conform, THREADS)


def _named_frames(report: Report) -> dict[str, pl.DataFrame]:
    return {
        "thread": report.threads,
        "range": report.ranges,
        "call": report.api_calls,
        "op": report.gpu_ops,
    }
