"""Contents of a report: what it has and lacks, findings of `check`, and reasons to doubt it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import is_among
from nsys_pp.arrays.launch_calls import find_launch_calls
from nsys_pp.arrays.names import is_named
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.part import LOSS, NO_KERNEL, REPORT
from nsys_pp.frames.raw import ExportedTable, RawReport
from nsys_pp.frames.report import (
    DIAGNOSTICS,
    EXPORTED_TABLES,
    GRAPH_LAUNCH,
    KERNEL_KINDS,
    KERNEL_LAUNCH,
    MOST_EARLY_NS,
    Finding,
    Report,
)
from nsys_pp.frames.table import Absence
from nsys_pp.model.damage import QUIET_SHARE
from nsys_pp.units import format_count, format_duration

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
    has_graphs = bool(is_named(calls["name"], GRAPH_LAUNCH).any())
    of_threads = {"range": report.ranges, "call": calls}
    of_processes = {"thread": report.threads, **of_threads, "op": ops}
    # the exporter shifts events and not the session
    start_ns, end_ns = session.time_shift_ns, session.capture_end_ns
    if session.capture_end_ns is None:
        start_ns, end_ns = (
            pl.concat([frame.select("start_ns", "end_ns") for frame in (report.ranges, calls, ops)])
            .select(pl.col("start_ns").min(), pl.col("end_ns").max())
            .row(0)
        )
    return Contents(
        start_ns=start_ns,
        end_ns=end_ns,
        has_capture=session.capture_end_ns is not None,
        gpus=_count_by_gpu(report),
        processes=_count_events(report.processes, "process_key", of_processes).pipe(conform, PROCESSES),
        threads=_count_events(report.threads, "thread_key", of_threads).pipe(conform, THREADS),
        domains=count_by_domain(report.ranges, report.marks),
        recorded=list_recorded(counts),
        missing=list_missing(counts, nsys_version=session.nsys_version, has_graphs=has_graphs),
        tables=report.exported_tables,
        op_count=len(ops),
        matched_count=launches["op_id"].n_unique(),
        communication_count=counts["communication"],
        row_counts=report.row_counts,
        anomalies=[*_find_anomalies(report, launches)],
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
    # NCCL's own ranges; their domain has no name if it was created before the capture
    is_nccl = is_named(report.ranges["domain"], "^NCCL$") | is_named(report.ranges["name"], "^nccl")
    return {
        **report.recorded,
        "ranges": len(report.ranges),
        "marks": len(report.marks),
        "calls": len(report.api_calls),
        **dict(ops["kind"].value_counts().iter_rows()),
        "kernel_in_graph": ops.filter(pl.col("kind") == "kernel")["graph_id"].count(),
        "communication": int(ops["is_communication"].sum()),
        "nccl_calls": int(np.count_nonzero(is_nccl)),
        # before there were tables of MPI, nsys recorded its calls as ranges
        "mpi_ranges": int(np.count_nonzero(is_named(report.ranges["domain"], "^MPI$"))),
    }


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


def _count_events(owners: pl.DataFrame, key: str, events: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    for noun, frame in events.items():
        counts = frame.group_by(key).agg(pl.len().cast(pl.Int64).alias(f"{noun}_count"))
        owners = owners.join(counts, on=key, how="left", maintain_order="left")
    return owners.with_columns(pl.selectors.ends_with("_count").fill_null(0))


RECORDED = build_schema(
    {  # one row per kind of data with rows
        "kind": pl.String,  # stable name
        "title": pl.String,
        "row_count": pl.Int64,
    },
    name="RECORDED",
)

MISSING = build_schema(
    {  # one row per kind of data without rows
        "kind": pl.String,
        "title": pl.String,
        "option": pl.String,  # of `nsys profile`
    },
    name="MISSING",
)

_WITH_CUDA = ("copies", "sets", "graphs", "synchronizations", "cuda_events")
_PLURAL_DEVICES_SINCE = (2024, 5)  # before, the option of the GPU metrics was in the singular
_NCCL_TRACE_SINCE = (2025, 6)


class _DataKind(Struct, frozen=True, kw_only=True):
    kind: str
    title: str
    tables: tuple[str, ...]  # names in the counts
    option: str | None = None  # None: never reported as missing


_KINDS = tuple(
    _DataKind(kind=kind, title=title, tables=tuple(tables.split()), option=option)
    for kind, title, tables, option in (
        ("ranges", "NVTX ranges", "ranges", "--trace=nvtx"),
        ("marks", "NVTX marks", "marks", None),
        ("api_calls", "CUDA calls", "calls", "--trace=cuda"),
        ("kernels", "kernels", "kernel", "--trace=cuda"),
        ("copies", "copies", "memcpy", None),
        ("sets", "memory sets", "memset", None),
        ("graphs", "whole CUDA graphs", "graph", None),
        ("graph_nodes", "CUDA graph nodes", "graph_nodes", "--cuda-graph-trace=node"),
        ("synchronizations", "synchronizations", "synchronizations", None),
        ("cuda_events", "CUDA events", "cuda_events", None),
        ("nccl_calls", "NCCL calls", "nccl_calls", "--trace=nccl"),
        ("mpi_calls", "MPI calls", "mpi_messages mpi_collectives mpi_other mpi_ranges", "--trace=mpi"),
        ("ucx_calls", "UCX calls", "ucx_calls", "--trace=ucx"),
        ("cublas_calls", "cuBLAS calls", "cublas_calls", "--trace=cublas"),
        ("cudnn_calls", "cuDNN calls", "cudnn_calls", "--trace=cudnn"),
        ("os_calls", "OS calls", "os_calls", "--trace=osrt"),
        ("cpu_samples", "CPU samples", "cpu_samples", "--sample=process-tree"),
        ("thread_switches", "thread switches", "thread_switches", "--cpuctxsw=process-tree"),
        ("gpu_memory", "GPU memory use", "cuda_memory", "--cuda-memory-usage=true"),
        ("gpu_metrics", "GPU metrics", "gpu_metrics", "--gpu-metrics-devices=all"),
        ("gpu_context_switches", "GPU context switches", "gpu_context_switches", "--gpuctxsw=true"),
        ("nic_metrics", "network metrics", "nic_metrics", "--nic-metrics=true"),
    )
)


def list_recorded(counts: Mapping[str, int]) -> pl.DataFrame:
    """List the kinds of data with rows.

    Args:
        counts: Rows of each table, and of ranges, marks, calls and each kind of GPU operation.

    Returns:
        `RECORDED`, the most important kind first.
    """
    rows = [(kind.kind, kind.title, _count(kind, counts)) for kind in _KINDS]
    return pl.DataFrame([row for row in rows if row[2]], schema=RECORDED, orient="row")


def name_titles(recorded: Collection[str]) -> list[str]:
    """Return the titles of kinds of data, the most important first, from their names (`name_recorded`).

    >>> name_titles({"kernels", "ranges"})
    ['NVTX ranges', 'kernels']
    """
    return [kind.title for kind in _KINDS if kind.kind in recorded]


def list_missing(counts: Mapping[str, int], *, nsys_version: str | None, has_graphs: bool) -> pl.DataFrame:
    """List the kinds of data without rows, with the options that record them.

    nsys writes no table without rows, so tracing may have been enabled without any event. Nodes of CUDA
    graphs are missing only if graphs were launched, calls of NCCL only if its kernels were recorded.

    Args:
        counts: As for `list_recorded`.
        nsys_version: Of the nsys whose options are named; the newest if None.
        has_graphs: Whether CUDA graphs were launched.

    Returns:
        `MISSING`, the most important kind first.
    """
    version = _parse_version(nsys_version)
    is_missing = {
        "graph_nodes": (has_graphs or "graph" in counts) and not counts.get("kernel_in_graph", 0),
        "nccl_calls": counts.get("communication", 0) > 0 and version >= _NCCL_TRACE_SINCE,
    }
    return pl.DataFrame(
        [
            (kind.kind, kind.title, _spell_option(kind.option, version))
            for kind in _KINDS
            if kind.option is not None and not _count(kind, counts) and is_missing.get(kind.kind, True)
        ],
        schema=MISSING,
        orient="row",
    )


def name_option(kind: str, *, nsys_version: str | None) -> str:
    """Return the option of `nsys profile` that records a kind of data, as a version of nsys spells it.

    >>> name_option("gpu_metrics", nsys_version="2024.2.3.38"), name_option("gpu_metrics", nsys_version=None)
    ('--gpu-metrics-device=all', '--gpu-metrics-devices=all')
    """
    option = next(data.option for data in _KINDS if data.kind == kind)
    return _spell_option(option or "", _parse_version(nsys_version))


def list_missing_of(
    recorded: Collection[str], *, nsys_version: str | None, has_communication: bool
) -> pl.DataFrame:
    """List the kinds of data without rows, from the names of those with rows (`name_recorded`).

    Nodes of CUDA graphs are missing if graphs were traced as a whole.

    Args:
        recorded: Names of the kinds with rows.
        nsys_version: As for `list_missing`.
        has_communication: Whether there are kernels of NCCL.

    Returns:
        `MISSING`, the most important kind first.
    """
    counts = {table: 1 for kind in _KINDS if kind.kind in recorded for table in kind.tables}
    counts["communication"] = int(has_communication)
    return list_missing(counts, nsys_version=nsys_version, has_graphs=False)


def name_recorded(counts: Mapping[str, int]) -> list[str]:
    """List the names of the kinds of data with rows; counts as for `list_recorded`."""
    return [kind.kind for kind in _KINDS if _count(kind, counts)]


def explain_absence(needs: Collection[str], recorded: Collection[str]) -> Absence:
    """Explain why a report has no data of several kinds: tracing was not enabled, or there was no event.

    Args:
        needs: Names of the kinds without rows.
        recorded: Names of the kinds with rows; kinds with the same option were traced, too.

    >>> print(explain_absence(["os_calls"], ["kernels"]))
    not recorded: profile with `--trace=osrt`
    >>> print(explain_absence(["copies", "sets"], ["kernels"]))
    none: there are no copies and no memory sets
    """
    kinds = [kind for kind in _KINDS if kind.kind in needs]
    traced = {_traced_by(kind) for kind in _KINDS if kind.kind in recorded} - {None}
    missed = dict.fromkeys(option for kind in kinds if (option := _traced_by(kind)) and option not in traced)
    if missed:
        return Absence("not recorded", (*missed,))
    return Absence("none: there are " + " and ".join(f"no {kind.title}" for kind in kinds))


def _traced_by(kind: _DataKind) -> str | None:
    """Return the option that records a kind, also for kinds that are never missing but come with CUDA."""
    return "--trace=cuda" if kind.kind in _WITH_CUDA else kind.option


def _count(kind: _DataKind, counts: Mapping[str, int]) -> int:
    return sum(counts.get(table, 0) for table in kind.tables)


def _spell_option(option: str, version: tuple[int, ...]) -> str:
    if version < _PLURAL_DEVICES_SINCE:
        return option.replace("--gpu-metrics-devices", "--gpu-metrics-device")
    return option


def _parse_version(text: str | None) -> tuple[int, ...]:
    """Parse the year and the number of a version; an unknown version counts as new.

    >>> _parse_version("2023.4.4.54"), _parse_version(None)
    ((2023, 4), (9999,))
    """
    match = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(match[1]), int(match[2])) if match else (9999,)


_DRAWN = {"nvtx", "calls", "kernels", "copies", "sets", "graphs", "decompressions"}
_NAMES = {  # read with what they name; no row of them is drawn
    *("gpu_metric_names", "soc_metric_names", "network_metric_names", "network_cards", "network_card_names"),
    *("generic_event_types", "generic_fields", "processor_counter_names", "processor_components"),
    "mpi_communicators",
}
_SUMS: Mapping[str, str] = {  # results that have sums of a table, by raw frame
    "os_calls": "summary --table os",
    "thread_switches": "summary --table overview",
    "cuda_memory": "summary --table memory",
    "samples": "pipeline --table host",
    "overheads": "pipeline --table overhead",
    "gpu_metrics": "pipeline --table metrics",
    "network_metrics": "pipeline --table network",
}


def build_exported_tables(tables: Iterable[ExportedTable]) -> pl.DataFrame:
    """Find the use of each table of an export.

    Returns:
        `EXPORTED_TABLES` by use, kind of `--show` and name; empty if tables were not listed.
    """
    rows = [
        (table.name, _find_use(table), _find_show(table), _find_sums(table), table.row_count)
        for table in sorted(tables, key=lambda table: table.name)
    ]
    return (
        pl.DataFrame(rows, schema=EXPORTED_TABLES, orient="row")
        .sort("use", "show", maintain_order=True)
        .pipe(conform, EXPORTED_TABLES)
    )


def _find_use(table: ExportedTable) -> str:
    if _DRAWN & {*table.frames}:
        return "drawn"
    if _find_show(table) is not None:
        return "on request"
    if _find_sums(table) is not None:
        return "summed"
    return "facts" if table.frames else "counted" if table.is_known else "unknown"


def _find_show(table: ExportedTable) -> str | None:
    if (_DRAWN & {*table.frames}) or {*table.frames} <= _NAMES:
        return None
    shown = [group.removeprefix("show_") for group in table.groups if group.startswith("show_")]
    return ",".join(shown) or None


def _find_sums(table: ExportedTable) -> str | None:
    return ", ".join(_SUMS[frame] for frame in table.frames if frame in _SUMS) or None


def _find_anomalies(report: Report, launches: pl.DataFrame) -> Iterator[str]:
    session = report.session
    if session.utc_epoch_ns is None:
        yield "its UTC is unknown: it cannot be aligned with other reports"
    if session.machine_source == "file name":
        yield "its machine is unknown: the name of the file is used"
    is_unknown = pl.all_horizontal(pl.col("name", "uuid", "bus_location").is_null())
    if gpus := report.devices.filter(is_unknown)["gpu"].unique(maintain_order=True).to_list():
        yield (
            f"{', '.join(gpus)}: distinguished by CUDA's numbers alone, as the report does not describe the"
            " GPUs"
        )
    lost_count, launch_count = _count_launches(report.api_calls, launches, GRAPH_LAUNCH)
    if lost_count:
        mode = f" (its CUDA graph mode is {session.graph_mode})" if session.graph_mode else ""
        yield (
            f"{lost_count:,} of {launch_count:,} launches of CUDA graphs left no GPU operation in the report"
            f"{mode}; `--cuda-graph-trace=node` records their kernels"
        )
    for finding in find_row_findings(report, launches, {}):
        if finding.severity == "warning":
            yield f"{finding.text.removesuffix('.')}; {finding.meaning}"
    yield from (text.replace(REPORT, "this report") for text in _find_overhead(report, launches))


_LOSS = (
    r"(?i)^not all "
    r"(cuda|nvtx|nccl|mpi|ucx)\b.*collected|\b(dropped|lost|discarded|overflow|overflowed|out of "
    r"memory)\b"
)


def build_diagnostics(raw: RawReport) -> pl.DataFrame:
    """Count the errors and warnings of nsys by text.

    Returns:
        `DIAGNOSTICS`. Empty where nsys recorded none.
    """
    return (
        raw["diagnostics"]
        .with_columns(pl.col("text").str.replace_all(r"\s+", " ").str.strip_chars())
        .group_by("severity", "text")
        .agg(count=pl.len())
        .pipe(conform, DIAGNOSTICS)
        .sort("severity", "text")
    )


def list_losses(diagnostics: pl.DataFrame) -> list[str]:
    """List the messages about lost events.

    Args:
        diagnostics: `DIAGNOSTICS`.

    Returns:
        Texts of nsys about events of CUDA, NVTX, NCCL, MPI or UCX, or about events of any kind.
    """
    return diagnostics.filter(pl.col("text").str.contains(_LOSS))["text"].to_list()


_POSSIBLE = r"(?i)\bmight\b|\bmay\b|\bpossibl"  # nsys does not know it
_LEAST_HELD = 0.02  # of the time of launching threads


def find_data_warnings(report: Report, launches: pl.DataFrame) -> list[str]:
    """Find the reasons to doubt the events of a report.

    Args:
        report: Read with operations.
        launches: `LAUNCHES` of its calls and operations.

    Returns:
        Sentences with `REPORT` in place of the name of the report. Empty without a reason.
    """
    shown = list_losses(report.diagnostics)
    harmless = _list_harmless(shown, report, launches)
    losses = [
        f"nsys says of {REPORT} that events may be missing (`{text}`), but {_explain_harmless(text)}"
        if text in harmless
        else f"{LOSS}{text}"
        for text in shown
    ]
    finders = (_find_unlaunched, _find_early_devices, _find_overhead)
    return [*losses, *(text for find in finders for text in find(report, launches))]


def _list_harmless(texts: Sequence[str], report: Report, launches: pl.DataFrame) -> set[str]:
    """List the messages on losses that are possible, where no event of CUDA is missing."""
    possible = {text for text in texts if re.search(_POSSIBLE, text)}
    if (
        not possible
        or _count_unlaunched(report, launches)
        or _count_launches(report.api_calls, launches, KERNEL_LAUNCH)[0]
    ):
        return set()
    return possible


def _explain_harmless(text: str) -> str:
    """Explain what is known not to be missing: of CUDA's events, that each launch has its kernel."""
    complete = "every recorded launch has its kernel, and every kernel its launch"
    return complete if "CUDA" in text else f"{complete}; whether other events are complete cannot be checked"


def _count_unlaunched(report: Report, launches: pl.DataFrame) -> int:
    op = launches["op_id"].to_numpy()  # ascends
    return len(report.gpu_ops) - len(op) + int(np.count_nonzero(op[1:] == op[:-1]))


def _count_launches(calls: pl.DataFrame, launches: pl.DataFrame, pattern: str) -> tuple[int, int]:
    rows = np.flatnonzero(is_named(calls["name"], pattern))
    return len(np.setdiff1d(rows, launches["call_row"].to_numpy())), len(rows)


def _find_unlaunched(report: Report, launches: pl.DataFrame) -> Iterator[str]:
    ops = report.gpu_ops
    if ops.is_empty() or report.ranges.is_empty():
        return
    if not is_among(ops["kind"], KERNEL_KINDS).any():
        yield f"{REPORT} has copies and memory sets, but no kernels"
    lost = _count_unlaunched(report, launches)
    if report.api_calls.is_empty():
        yield f"{REPORT} has no CUDA calls, so no range is projected onto its GPU operations"
    elif lost > QUIET_SHARE * len(ops):
        yield (
            f"{lost:,} of {len(ops):,} GPU operations in {REPORT} lack the CUDA call that launched them: no "
            "range is projected onto them"
        )
    without, launching = _count_launches(report.api_calls, launches, KERNEL_LAUNCH)
    # kernels of graphs are launched by no call of their own
    if without > QUIET_SHARE * launching and not is_named(report.api_calls["name"], GRAPH_LAUNCH).any():
        yield f"{NO_KERNEL}{without:,} of {launching:,} CUDA calls that launch kernels have no kernel"


def _find_overhead(report: Report, launches: pl.DataFrame) -> list[str]:
    """Describe the time in which nsys held threads between their first and last launch.

    Where it is a large share.
    """
    if report.overheads.is_empty() or launches.is_empty():
        return []
    spans = (
        report.api_calls[launches["call_row"].to_numpy()]
        .group_by("thread_key")
        .agg(first_ns=pl.col("start_ns").min(), last_ns=pl.col("end_ns").max())
    )
    inside = (
        report.overheads.filter("is_of_profiler")
        .join(spans, on="thread_key", how="inner")
        .with_columns(
            start_ns=pl.max_horizontal("start_ns", "first_ns"), end_ns=pl.min_horizontal("end_ns", "last_ns")
        )
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .sort("thread_key", "start_ns")
    )
    # of intervals inside others, the part after those that began before
    reach = pl.col("end_ns").cum_max().shift(1).over("thread_key").fill_null(pl.col("start_ns"))
    held = inside.with_columns(
        own_ns=pl.col("end_ns") - pl.max_horizontal("start_ns", pl.min_horizontal("end_ns", reach))
    )
    whole_ns = int((spans["last_ns"] - spans["first_ns"]).sum())
    held_ns = int(held["own_ns"].sum())
    if held_ns <= _LEAST_HELD * whole_ns:
        return []
    names = held.group_by("name").agg(pl.col("own_ns").sum()).sort("own_ns", "name", descending=True)
    return [
        f"nsys held the threads that launch in {REPORT} for {100 * held_ns / whole_ns:.1f} % of the time "
        "from their first to"
        f" their last launch, most in {names['name'][0] or 'overhead without a name'}: `pipeline --table "
        "overhead` lists it by step"
    ]


def _measure_early(report: Report, launches: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Return the rows of operations with a known launch, and by how much each starts before its call."""
    ops, calls = report.gpu_ops, report.api_calls
    call = find_launch_calls(ops["op_id"], gpu_ops=ops, api_calls=calls, launches=launches)
    known = np.flatnonzero(call >= 0)
    return known, calls["start_ns"].to_numpy()[call[known]] - ops["start_ns"].to_numpy()[known]


def _find_early_devices(report: Report, launches: pl.DataFrame) -> list[str]:
    """Describe the GPUs whose operations start before the calls that launched them.

    By more than clocks differ.
    """
    known, early = _measure_early(report, launches)
    if not (early > MOST_EARLY_NS).any():
        return []
    launched = (
        report.gpu_ops.select("process_key", "device_id")[known]
        .with_columns(early_ns=pl.Series(early))
        .join(
            report.devices.select("process_key", "device_id", "gpu"),
            on=["process_key", "device_id"],
            how="left",
        )
        .group_by("gpu")
        .agg(
            count=pl.len(),
            early_count=(pl.col("early_ns") > MOST_EARLY_NS).sum(),
            early_ns=pl.col("early_ns").max(),
        )
        .filter(pl.col("early_count") > QUIET_SHARE * pl.col("count"))
        .sort("gpu")
    )
    return [
        f"the clock of {gpu or 'a GPU'} in {REPORT} is off: {early_count:,} of {count:,} operations start"
        f" more than {format_duration(MOST_EARLY_NS)}, up to {format_duration(early_ns)}, before the call"
        " that launched them, so these delays of launches are left out"
        for gpu, count, early_count, early_ns in launched.rows()
    ]


_NAMES_FINDINGS = {  # ids of names in raw frames, and our nouns
    ("nvtx", "text_id"): "NVTX events",
    ("calls", "name_id"): "CUDA calls",
    ("kernels", "name_id"): "kernels",
    ("kernels", "full_name_id"): "full names of kernels",
    ("os_calls", "name_id"): "calls of the operating system",
}
_MEANINGS = {  # of rows that are left out, by table
    "nvtx": "ranges and marks are missing: `project`, jobs and steps lack them",
    "calls": "launches are missing: kernels of these calls are in no range",
    "kernels": "GPU time is missing: sums are too small, and intervals may be too short",
    "copies": "time of copies is missing",
    "sets": "time of memory sets is missing",
    "graphs": "GPU time of CUDA graphs is missing",
    "mpi_messages": "fewer operations align the clocks",
    "mpi_collectives": "fewer operations align the clocks",
    "os_calls": "waits of the host are missing in `summary` and the verdict",
    "thread_switches": "times of threads off the CPU are missing in `summary`",
    "cuda_memory": "the use of GPU memory is incomplete",
}


def count_unnamed(raw: RawReport) -> dict[str, int]:
    """Count the rows of raw frames whose id of a name is in no row of the table of names, by noun."""
    named = raw["strings"].filter(pl.col("text").count() > 0)  # one text may be empty
    known = named["id"].drop_nulls().implode()
    return {
        noun: count
        for (table, column), noun in _NAMES_FINDINGS.items()
        if (count := int((~raw[table][column].drop_nulls().is_in(known)).sum()))
    }


def find_row_findings(report: Report, launches: pl.DataFrame, unnamed: Mapping[str, int]) -> list[Finding]:
    """Find the defects of the rows of a report.

    Args:
        report: Read with all groups.
        launches: `LAUNCHES` of its calls and operations.
        unnamed: From `count_unnamed`.
    """
    return [
        *list_left_out(report.row_counts),
        *(finding for find in _FINDERS for finding in find(report, launches)),
        *(
            Finding(
                severity="warning",
                kind="ids without a name",
                count=count,
                text=f"{noun} with the id of a name that the report lacks: {count:,}",
                meaning="they are shown without that name, and are not jobs or steps",
            )
            for noun, count in unnamed.items()
        ),
    ]


def list_left_out(row_counts: pl.DataFrame) -> Iterator[Finding]:
    """List the rows of `ROW_COUNTS` that were left out up to the report, and those missing in the file."""
    # a row may be in two frames, one of them on request
    named = row_counts.with_columns(pl.coalesce("source", "table").alias("source"))
    once = named.unique(["stage", "source", "reason"], keep="first", maintain_order=True)
    for stage, table, source, reason, count in once.rows():
        # "other events": of another frame, or counted in it
        if reason is None or stage == "projection" or reason.startswith("other events:"):
            continue
        is_harmless = reason.startswith(("notes:", "not calls:", "information,", "stored twice:"))
        what = f"{reason} (deleted, or lost)" if stage == "file" else f"left out: {reason}"
        yield Finding(
            severity="info" if is_harmless else "warning",
            kind="missing rows" if stage == "file" else "rows left out",
            count=count,
            text=f"{source}: {format_count(count, 'row')} {what}",
            meaning="none is an event that is analysed"
            if is_harmless
            else _MEANINGS.get(table, "what they describe is missing"),
        )


def _find_losses(report: Report, launches: pl.DataFrame) -> Iterator[Finding]:
    """Find messages about lost events, and count the others, which may quote command lines."""
    is_loss = report.diagnostics["text"].is_in(list_losses(report.diagnostics))
    rows = report.diagnostics.filter(is_loss).select("text", "count").rows()
    harmless = _list_harmless([text for text, _ in rows], report, launches)
    for text, count in rows:
        yield Finding(
            severity="info" if text in harmless else "warning",
            kind="lost events",
            count=count,
            text=f"nsys says: {text}",
            meaning=_explain_harmless(text)
            if text in harmless
            else "events are missing: sums are too small, ranges may lack kernels, and idle time may be none",
        )
    others = report.diagnostics.filter(~is_loss).group_by("severity", maintain_order=True)
    for severity, count in others.agg(pl.col("count").sum()).rows():
        yield Finding(
            severity="warning" if severity == "error" else "info",
            kind="message of nsys",
            count=count,
            text=f"{format_count(count, f'other {severity}')} of nsys about the recording",
            meaning="not shown, as it may quote what was run; the window of nsys lists it",
        )


def _find_orphans(report: Report, launches: pl.DataFrame) -> Iterator[Finding]:
    ops = report.gpu_ops
    lost = _count_unlaunched(report, launches)
    without, launching = _count_launches(report.api_calls, launches, KERNEL_LAUNCH)
    if lost:
        yield Finding(
            severity="warning" if lost > QUIET_SHARE * len(ops) else "info",
            kind="operations without a call",
            count=lost,
            text=f"{lost:,} of {len(ops):,} GPU operations lack the CUDA call that launched them",
            meaning="no range is projected onto them; they count in streams and sums",
        )
    if without and len(ops):
        yield Finding(
            severity="warning" if without > QUIET_SHARE * launching else "info",
            kind="calls without an operation",
            count=without,
            text=f"{without:,} of {launching:,} CUDA calls that launch kernels have no kernel",
            meaning=(
                "their kernels are missing, or are part of CUDA graphs: intervals of their ranges may be "
                "too short"
            ),
        )


def _find_clock(report: Report, launches: pl.DataFrame) -> Iterator[Finding]:
    known, early = _measure_early(report, launches)
    if count := int((early > 0).sum()):
        most, is_off = int(early.max()), bool((early > MOST_EARLY_NS).any())
        yield Finding(
            severity="warning" if is_off else "info",
            kind="operations before their call",
            count=count,
            text=(
                f"{count:,} of {len(known):,} GPU operations start before the call that launched them, by "
                f"up to {format_duration(most)}"
            ),
            meaning=(
                "the clock of the GPU is off: delays of launches are left out, and waits of the host are "
                "uncertain"
            )
            if is_off
            else "within the error of the GPU's clock",
        )


def _find_overlaps(report: Report, launches: pl.DataFrame) -> Iterator[Finding]:
    """Find kernels that overlap on their stream; nodes of CUDA graphs may."""
    kernels = report.gpu_ops.filter(pl.col("kind").is_in(KERNEL_KINDS) & pl.col("graph_id").is_null())
    stream = ["process_key", "device_id", "context_id", "stream_id"]
    kernels = kernels.select(*stream, "start_ns", "end_ns").sort(*stream, "start_ns", "end_ns")
    is_same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in stream)
    count = int(
        kernels.select((is_same & (pl.col("start_ns") < pl.col("end_ns").shift(1))).sum()).item() or 0
    )
    if count:
        yield Finding(
            severity="info",
            kind="overlapping kernels",
            count=count,
            text=(
                f"{count:,} of {len(kernels):,} kernels start before the previous kernel of their stream ends"
            ),
            meaning="busy time is their union, and counts no time twice",
        )


def _find_window(report: Report, launches: pl.DataFrame) -> Iterator[Finding]:
    session, end_ns = report.session, report.session.capture_end_ns
    if session.utc_epoch_ns is None:
        yield Finding(
            severity="info",
            kind="unknown UTC",
            text="the report has no UTC",
            meaning="its clock cannot be aligned with those of other machines",
        )
    if end_ns is None:
        return
    outside = sum(
        frame.select(
            ((pl.col("start_ns") < session.time_shift_ns) | (pl.col("end_ns") > end_ns)).sum()
        ).item()
        for frame in (report.ranges, report.api_calls, report.gpu_ops)
    )
    if outside:
        yield Finding(
            severity="info",
            kind="events outside the capture",
            count=outside,
            text=f"ranges, calls and operations outside the window of the capture: {outside:,}",
            meaning="they are used as recorded",
        )


def _find_absent(report: Report, launches: pl.DataFrame) -> Iterator[Finding]:
    absent = {
        "GPU operations": (report.gpu_ops, "`merge`, `project` and `pipeline` need them"),
        "CUDA calls": (report.api_calls, "no range can be projected onto the GPU"),
        "NVTX ranges": (report.ranges, "there are no projections, jobs and steps by names"),
    }
    for noun, (frame, meaning) in absent.items():
        if frame.is_empty():
            yield Finding(
                severity="info",
                kind="not recorded",
                count=0,
                text=f"the report has no {noun}",
                meaning=meaning,
            )


_FINDERS: tuple[Callable[[Report, pl.DataFrame], Iterator[Finding]], ...] = (
    _find_losses,
    _find_orphans,
    _find_clock,
    _find_overlaps,
    _find_window,
    _find_absent,
)
