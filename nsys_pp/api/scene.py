"""What of one report is drawn: composes projection and drawing for `nsys_pp.api`."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from nsys_pp.model.report import Report
from nsys_pp.natural import natural_key
from nsys_pp.project.launches import match_launches
from nsys_pp.project.nesting import find_parents
from nsys_pp.project.ranges import Scope, count_cross_thread, project_ranges
from nsys_pp.write.drawing import Clock
from nsys_pp.write.tracks import PLACES, Detail, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the user asked to see; times are on the trace's clock."""

    detail: Detail
    ops: tuple[str, ...]
    scope: Scope
    flows: bool
    devices: frozenset[int] | None  # numbers of GPUs on their machine; all if None
    start_ns: int | None
    end_ns: int | None

    @property
    def is_part(self) -> bool:
        """Whether only a part of what the reports hold is to be shown."""
        return self.devices is not None or self.start_ns is not None or self.end_ns is not None


def label_reports(paths: Sequence[Path]) -> list[str]:
    """Name reports by their files without suffix, with as many folders as tell them apart.

    >>> label_reports([Path("a/rank0.sqlite"), Path("b/rank0.sqlite"), Path("b/rank1.sqlite")])
    ['a/rank0', 'b/rank0', 'rank1']
    """
    parts = [(*path.parent.parts, path.stem) for path in paths]
    labels = [part[-1] for part in parts]
    for length in range(2, max(map(len, parts), default=0) + 1):
        shared = {label for label, count in Counter(labels).items() if count > 1}
        labels = [
            "/".join(part[-length:]) if label in shared else label
            for label, part in zip(labels, parts, strict=True)
        ]
    return labels


def project_report(
    report: Report, *, ops: tuple[str, ...], scope: Scope, per_stream: bool = False
) -> pl.DataFrame:
    """Project a report's ranges (`PROJECTIONS`); warns of those that scope "thread" leaves out."""
    crossing = count_cross_thread(report.ranges)
    if scope == "thread" and crossing:
        warnings.warn(
            f"`{report.path}`: skipped {crossing:,} ranges that end on another thread than they began"
            " (`--scope process` projects them)",
            stacklevel=3,
        )
    return project_ranges(
        report.ranges, report.api_calls, report.gpu_ops, ops=ops, scope=scope, per_stream=per_stream
    )


def view_report(
    report: Report, sessions: Sequence[Report], *, number: int, offset_ns: int, wanted: Wanted
) -> View:
    """Gather what is drawn of one report.

    Args:
        report: Read with the groups that `wanted.detail` needs.
        sessions: All reports of the trace, at least with their sessions.
        number: This one's place among them.
        offset_ns: From its clock to the trace's.
        wanted: What to show.
    """
    machines = sorted({one.session.machine for one in sessions}, key=natural_key)
    places = _place(report, sessions)
    projections = project_report(report, ops=wanted.ops, scope=wanted.scope)
    no_flow = pl.lit(None, dtype=pl.UInt64).alias("flow_id")
    gpu_ops, api_calls = report.gpu_ops.with_columns(no_flow), report.api_calls.with_columns(no_flow)
    ranges, marks = report.ranges, report.marks
    if wanted.detail != "cpu":
        ranges, marks, api_calls = ranges.clear(), marks.clear(), api_calls.clear()
    elif wanted.flows:
        gpu_ops, api_calls = _join_flows(report, number)
    if wanted.devices is not None:
        places = places.filter(pl.col("number").is_in(list(wanted.devices)))
        keys = ["process_key", "device_id"]
        projections = projections.join(places, on=keys, how="semi", maintain_order="left")
        gpu_ops = gpu_ops.join(places, on=keys, how="semi", maintain_order="left")
    view = View(
        machine=report.session.machine,
        machine_rank=machines.index(report.session.machine),
        clock=Clock(offset_ns=offset_ns),
        places=places.select(PLACES.names()),
        processes=report.processes,
        threads=report.threads,
        streams=report.streams,
        projections=projections,
        crossing=report.ranges.filter(pl.col("end_thread_key").is_not_null())["range_id"],
        gpu_ops=gpu_ops,
        op_details=report.op_details,
        cpu_ranges=ranges.with_columns(parent_id=_parents(ranges)),
        marks=marks,
        api_calls=api_calls,
    )
    return _cut(view, wanted.start_ns, wanted.end_ns)


def _place(report: Report, sessions: Sequence[Report]) -> pl.DataFrame:
    """Name the rows of the report's GPUs (`PLACES`).

    A row says the rank of its report. Where the machine has several reports without ranks, those
    of one GPU share its row: the row says the GPU's place on the bus, or else its uuid, or else,
    where nothing tells whether two GPUs are one, the report.
    """
    session = report.session
    beside = [one.path for one in sessions if one.session.machine == session.machine]
    suffix = pl.lit("" if session.rank is None else f" · rank {session.rank}")
    if session.rank is None and len(beside) > 1:
        label = pl.lit(label_reports(beside)[beside.index(report.path)])
        suffix = pl.lit(" · ") + pl.coalesce("bus_location", "uuid", label)
    number = pl.col("gpu").str.extract(r"(\d+)").cast(pl.Int64)
    rank = 0 if session.rank is None else session.rank
    described = [pl.col("name"), pl.col("uuid"), pl.col("bus_location"), pl.lit(report.path.name)]
    return report.devices.select(
        "process_key",
        "device_id",
        gpu=pl.col("gpu") + suffix,
        gpu_rank=number * 100_000 + rank,
        description=pl.concat_str(described, separator=", ", ignore_nulls=True),
        number=number,
    ).sort("gpu_rank", "gpu")


def _parents(ranges: pl.DataFrame) -> pl.Series:
    """range_id of the innermost range around each range on its thread; null at the top."""
    columns = (ranges[name].to_numpy() for name in ("thread_key", "start_ns", "end_ns"))
    parent, _ = find_parents(*columns)
    parent_row = pl.Series(parent)
    return (
        ranges["range_id"].gather(parent_row.clip(0)).set(parent_row < 0, None) if len(ranges) else parent_row
    )


def _join_flows(report: Report, number: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give each launching call and its first operation an id that they share with nothing else."""
    launches = match_launches(report.api_calls, report.gpu_ops)
    first = (
        launches.with_columns(start_ns=report.gpu_ops["start_ns"][launches["op_id"]])
        .sort("start_ns", "op_id")
        .unique("op_id", keep="first", maintain_order=True)
        .unique("call_row", keep="first", maintain_order=True)
        .with_columns(flow_id=pl.lit(number + 1, pl.UInt64) * (1 << 40) + pl.col("call_row").cast(pl.UInt64))
    )
    ops = report.gpu_ops.join(first.select("op_id", "flow_id"), on="op_id", how="left", maintain_order="left")
    calls = report.api_calls.with_row_index("call_row").join(
        first.select("call_row", "flow_id"), on="call_row", how="left", maintain_order="left"
    )
    return ops, calls


def _cut(view: View, start_ns: int | None, end_ns: int | None) -> View:
    """Keep what reaches into the window, given on the trace's clock."""
    if start_ns is None and end_ns is None:
        return view
    offset = view.clock.offset_ns

    def within(frame: pl.DataFrame, start: str, end: str) -> pl.DataFrame:
        if start_ns is not None:
            frame = frame.filter(pl.col(end) >= start_ns - offset)
        if end_ns is not None:
            frame = frame.filter(pl.col(start) < end_ns - offset)
        return frame

    return replace(
        view,
        projections=within(view.projections, "gpu_start_ns", "gpu_end_ns"),
        gpu_ops=within(view.gpu_ops, "start_ns", "end_ns"),
        cpu_ranges=within(view.cpu_ranges, "start_ns", "end_ns"),
        api_calls=within(view.api_calls, "start_ns", "end_ns"),
        marks=within(view.marks, "time_ns", "time_ns"),
    )
