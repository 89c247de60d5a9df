"""Findings about the rows of a report: left out, orphaned, impossible, lost; and their meaning for the analyses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import polars as pl

from nsys_pp.arrays.launch_calls import find_launch_calls
from nsys_pp.frames.findings import Finding
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import KERNEL_KINDS, MOST_EARLY_NS, Report
from nsys_pp.model.diagnostics import list_losses
from nsys_pp.units import format_count, format_duration

_LEAST_SHARE = 0.01  # of the rows, from which on orphans are a warning
_LAUNCHING_KERNELS = r"^(?:cuda|cu)Launch(?:Kernel|CooperativeKernel)"
_NAMES = {  # ids of names in raw frames, and our nouns
    ("nvtx", "text_id"): "NVTX events",
    ("calls", "name_id"): "CUDA calls",
    ("kernels", "name_id"): "kernels",
    ("os_calls", "name_id"): "calls of the operating system",
}
_HARMLESS = ("notes:", "not calls:", "information,")
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
    known = raw["strings"]["id"].drop_nulls()
    counts = {}
    for (table, column), noun in _NAMES.items():
        ids = raw[table][column].drop_nulls()
        if count := int((~ids.is_in(known.implode())).sum()):
            counts[noun] = count
    return counts


def find_row_findings(report: Report, launches: pl.DataFrame, unnamed: Mapping[str, int]) -> list[Finding]:
    """Find the defects of the rows of a report.

    Args:
        report: Read with all groups.
        launches: `LAUNCHES` of its calls and operations.
        unnamed: From `count_unnamed`.
    """
    found = [*list_left_out(report.row_counts)]
    for find in _FINDERS:
        found += find(report, launches)
    found += [
        Finding(
            severity="warning",
            kind="ids without a name",
            count=count,
            text=f"{noun} with the id of a name that the report lacks: {count:,}",
            meaning="they are shown without a name, and are not jobs or steps",
        )
        for noun, count in unnamed.items()
    ]
    return found


def list_left_out(row_counts: pl.DataFrame) -> Iterator[Finding]:
    """List the rows of `ROW_COUNTS` that were left out up to the report, and those missing in the file."""
    for stage, table, source, reason, count in row_counts.rows():
        if reason is None or stage == "projection":
            continue
        is_harmless = reason.startswith(_HARMLESS)
        name = source or table
        text = f"{name}: {format_count(count, 'row')} left out: {reason}"
        if stage == "file":
            text = f"{name}: {format_count(count, 'row')} {reason} (deleted, or lost)"
        yield Finding(
            severity="info" if is_harmless else "warning",
            kind="missing rows" if stage == "file" else "rows left out",
            count=count,
            text=text,
            meaning="none is an event that is analysed"
            if is_harmless
            else _MEANINGS.get(table, "what they describe is missing"),
        )


def _find_losses(report: Report, launches: pl.DataFrame) -> Iterator[Finding]:
    """Find messages about lost events, and count the others, which may quote command lines."""
    is_loss = report.diagnostics["text"].is_in(list_losses(report.diagnostics))
    for text, count in report.diagnostics.filter(is_loss).select("text", "count").rows():
        yield Finding(
            severity="warning",
            kind="lost events",
            count=count,
            text=f"nsys says: {text}",
            meaning="events are missing: sums are too small, ranges may lack kernels, and idle time may be none",
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
    ops, calls = report.gpu_ops, report.api_calls
    lost = len(ops) - launches["op_id"].n_unique()
    if lost:
        yield Finding(
            severity="warning" if lost > _LEAST_SHARE * len(ops) else "info",
            kind="operations without a call",
            count=lost,
            text=f"{lost:,} of {len(ops):,} GPU operations lack the CUDA call that launched them",
            meaning="no range is projected onto them; they count in streams and sums",
        )
    names = calls["name"].unique().drop_nulls()
    launching = names.filter(names.cast(pl.String).str.contains(_LAUNCHING_KERNELS))
    rows = np.flatnonzero(calls["name"].is_in(launching.implode()).fill_null(value=False).to_numpy())
    without = len(np.setdiff1d(rows, launches["call_row"].to_numpy()))
    if without and len(ops):
        yield Finding(
            severity="warning" if without > _LEAST_SHARE * len(rows) else "info",
            kind="calls without an operation",
            count=without,
            text=f"{without:,} of {len(rows):,} CUDA calls that launch kernels have no kernel",
            meaning="their kernels are missing, or are part of CUDA graphs: intervals of their ranges may be too short",
        )


def _find_clock(report: Report, launches: pl.DataFrame) -> Iterator[Finding]:
    ops, calls = report.gpu_ops, report.api_calls
    if not len(launches):
        return
    call = find_launch_calls(ops["op_id"], gpu_ops=ops, api_calls=calls, launches=launches)
    known = np.flatnonzero(call >= 0)
    early = calls["start_ns"].to_numpy()[call[known]] - ops["start_ns"].to_numpy()[known]
    count = int((early > 0).sum())
    if count:
        most, is_off = int(early.max()), bool((early > MOST_EARLY_NS).any())
        yield Finding(
            severity="warning" if is_off else "info",
            kind="operations before their call",
            count=count,
            text=f"{count:,} of {len(known):,} GPU operations start before the call that launched them, by up to {format_duration(most)}",
            meaning="the clock of the GPU is off: delays of launches are left out, and waits of the host are uncertain"
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
            text=f"{count:,} of {len(kernels):,} kernels start before the previous kernel of their stream ends",
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
    frames = (report.ranges, report.api_calls, report.gpu_ops)
    outside = sum(
        frame.select(
            ((pl.col("start_ns") < session.time_shift_ns) | (pl.col("end_ns") > end_ns)).sum()
        ).item()
        for frame in frames
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
