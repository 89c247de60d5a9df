"""What Perfetto's importer holds of a merged report, against the frames that were drawn."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.report import Report
from nsys_pp.model import build_report
from nsys_pp.options import DETAILS, Detail
from nsys_pp.output.trace.tracks import busy_percent
from nsys_pp.projection.ranges import project_ranges
from nsys_pp.read import find_reports, read_report
from tests.cli.calls import PIPELINE
from tests.importer import (
    Importer,
    assert_no_errors,
    read_flows,
    read_machines,
    read_tracks,
    read_zero_ns,
    slices_by_track,
)

DAY_NS = 86_400_000_000_000
COUNTERS = """
SELECT track.name AS name, parent.name AS gpu, counter.ts, counter.value
FROM counter JOIN track ON counter.track_id = track.id
JOIN track AS parent ON track.parent_id = parent.id
ORDER BY counter.ts
"""


def read_back(importer: Importer, inputs: list[Path], tmp_path: Path) -> tuple[pl.DataFrame, list[Report]]:
    """Merge with everything drawn; the slices as the importer has them, and the reports."""
    trace = tmp_path / "run.pftrace"
    nsys_pp.merge(inputs, trace, detail="cpu", flows=True)
    slices = slices_by_track(importer, trace)
    machines = read_machines(importer)
    assert_no_errors(importer)
    outermost = pl.col("path").str.split("/").list.first()
    reports = [build_report(read_report(path)) for path in find_reports(inputs)]
    slices = slices.with_columns(
        machine=outermost.replace(machines), ts=pl.col("ts") + zero_ns(importer, reports)
    )
    return slices, reports


def zero_ns(importer: Importer, reports: list[Report]) -> int:
    """0 of the loaded trace on the clock of the run.

    The earliest start of a session, unless an event is earlier.
    """
    known = read_zero_ns(importer)
    if known is not None:
        return known
    starts = [
        getattr(report, name)["start_ns"].min()
        for report in reports
        for name in ("gpu_ops", "api_calls", "ranges")
    ]
    return DAY_NS + int(min([0, *(start for start in starts if start is not None)]))


def offset_ns(report: Report) -> int:
    """UTC, or a day after 0 for the start of a session that does not know its UTC."""
    epoch_ns = report.session.utc_epoch_ns
    return (DAY_NS if epoch_ns is None else epoch_ns) - report.session.time_shift_ns


def assert_operations_are_drawn(slices: pl.DataFrame, reports: list[Report]) -> None:
    """Every operation stands on its stream's row once, and NCCL's once more on theirs."""
    drawn = Counter(
        (
            machine,
            "stream" if "/stream " in path else "communication",
            ts,
            dur,
            name,
            args.get("correlation_id"),
        )
        for machine, path, ts, dur, name, args in slices.select(
            "machine", "path", "ts", "dur", "name", "args"
        ).iter_rows()
        if "/stream " in path or path.endswith("/communication")
    )
    expected: Counter[tuple[object, ...]] = Counter()
    for report in reports:
        for op in report.gpu_ops.iter_rows(named=True):
            key = (
                op["start_ns"] + offset_ns(report),
                op["end_ns"] - op["start_ns"],
                op["name"],
                op["correlation_id"],
            )
            expected[(report.session.machine, "stream", *key)] += 1
            if op["is_communication"]:
                expected[(report.session.machine, "communication", *key)] += 1
    assert drawn == expected


def assert_ranges_are_drawn(slices: pl.DataFrame, reports: list[Report]) -> None:
    """Every projection is drawn once; what is drawn around it is its parent."""
    rows = slices.filter(pl.col("path").str.contains("^[^/]*/ranges"))
    by_id = {row["slice_id"]: row for row in rows.iter_rows(named=True)}
    drawn = Counter(
        (
            row["machine"],
            row["args"]["range_id"],
            row["ts"],
            row["dur"],
            row["name"],
            row["args"]["operations"],
        )
        for row in by_id.values()
    )
    expected: Counter[tuple[object, ...]] = Counter()
    parents: dict[tuple[object, ...], object] = {}
    for report in reports:
        machine, offset = report.session.machine, offset_ns(report)
        for one in project_ranges(report.ranges, report.api_calls, report.gpu_ops).iter_rows(named=True):
            start, length = one["gpu_start_ns"] + offset, one["gpu_end_ns"] - one["gpu_start_ns"]
            key = (machine, one["range_id"], start, length, one["name"] or "(no name)", one["op_count"])
            expected[key] += 1
            parents[machine, one["range_id"], start] = one["parent_id"]
    assert drawn == expected

    stack: dict[tuple[str, int], list[dict[str, object]]] = {}
    for row in rows.sort("path", "subtrack", "ts", "depth").iter_rows(named=True):
        open_slices = stack.setdefault((row["path"], row["subtrack"]), [])
        del open_slices[row["depth"] :]
        if row["depth"]:
            parent = parents[row["machine"], row["args"]["range_id"], row["ts"]]
            assert open_slices[-1]["args"]["range_id"] == parent  # type: ignore[index]
        open_slices.append(row)


def assert_cpu_is_drawn(slices: pl.DataFrame, reports: list[Report]) -> None:
    for kind, frame in (("NVTX", "ranges"), ("CUDA API", "api_calls"), ("marks", "marks")):
        drawn = Counter(
            slices.filter(pl.col("path").str.contains(f"/CPU: .*/{kind} "))
            .select("ts", "dur", "name")
            .iter_rows()
        )
        expected: Counter[tuple[object, ...]] = Counter()
        for report in reports:
            for row in getattr(report, frame).iter_rows(named=True):
                start = row["time_ns"] if kind == "marks" else row["start_ns"]
                length = 0 if kind == "marks" else row["end_ns"] - start
                expected[start + offset_ns(report), length, row["name"] or "(no name)"] += 1
        assert drawn == expected, kind


def assert_flows_join_calls_to_their_first_operation(
    importer: Importer, slices: pl.DataFrame, reports: list[Report]
) -> None:
    rows = {row["slice_id"]: row for row in slices.iter_rows(named=True)}
    flows = [flow for flow in read_flows(importer) if not rows[flow[0]]["path"].endswith("/messages")]
    launching = 0
    starts: set[tuple[int, int]] = set()  # of calls and of their operations: two calls may start at once
    for report in reports:
        pairs = report.gpu_ops.join(
            report.api_calls.select(
                "process_key", "correlation_id", call_start="start_ns", call_end="end_ns"
            ),
            on=["process_key", "correlation_id"],
        )
        launching += pairs.select("process_key", "correlation_id").unique().height
        for call, op in (
            pairs.group_by("process_key", "correlation_id")
            .agg(pl.col("call_start").first(), pl.col("start_ns").min())
            .select("call_start", "start_ns")
            .iter_rows()
        ):
            starts.add((call + offset_ns(report), op + offset_ns(report)))
    assert len(flows) == launching
    for source, target in flows:
        ends = {"CPU" if "/CPU: " in rows[end]["path"] else "GPU": rows[end] for end in (source, target)}
        assert (ends["CPU"]["ts"], ends["GPU"]["ts"]) in starts
        assert ends["CPU"]["args"]["correlation_id"] == ends["GPU"]["args"]["correlation_id"]


def assert_counters_are_drawn(importer: Importer, reports: list[Report]) -> None:
    zero = zero_ns(importer, reports)
    drawn = Counter(
        (round(value, 6), ts + zero)
        for name, _, ts, value in importer.query(None, COUNTERS).iter_rows()
        if name == "GPU busy"
    )
    expected: Counter[tuple[float, int]] = Counter()
    for report in reports:
        for gpu in report.devices.partition_by("gpu"):
            ops = report.gpu_ops.join(gpu, on=["process_key", "device_id"], how="semi")
            samples = busy_percent(ops["start_ns"], ops["end_ns"])
            expected.update(
                (round(value, 6), time + offset_ns(report)) for time, value in samples.iter_rows()
            )
    assert drawn == expected


def test_every_shared_report_comes_back(shared_report: Path, importer: Importer, tmp_path: Path) -> None:
    try:
        slices, reports = read_back(importer, [shared_report], tmp_path)
    except MissingDataError:
        report = build_report(read_report(shared_report))
        assert all(frame.is_empty() for frame in (report.gpu_ops, report.ranges, report.api_calls))
        return
    assert len(slices)
    assert_is_drawn(importer, slices, reports)


def assert_is_drawn(importer: Importer, slices: pl.DataFrame, reports: list[Report]) -> None:
    """Everything in reports is drawn."""
    assert_operations_are_drawn(slices, reports)
    assert_ranges_are_drawn(slices, reports)
    assert_cpu_is_drawn(slices, reports)
    assert_flows_join_calls_to_their_first_operation(importer, slices, reports)
    assert_counters_are_drawn(importer, reports)


def test_several_machines_come_back_in_natural_order(importer: Importer, tmp_path: Path) -> None:
    slices, reports = read_back(importer, [PIPELINE], tmp_path)
    assert_is_drawn(importer, slices, reports)
    paths = [list(path) for path in read_tracks(importer)["path"]]
    outermost = list(dict.fromkeys(path[0] for path in paths))
    gpus = [f"rank {rank} · stage {rank} · node{2 if rank < 2 else 10} · GPU {rank % 2}" for rank in range(4)]
    bubbles = [f"bubble of stage {stage}" for stage in range(4)]
    assert outermost == ["steps", *bubbles, *gpus, "node2", "node10"]
    rows = [path[1] for path in paths if len(path) == 2 and path[0] == "node10"]
    assert rows
    assert all(row.startswith("CPU: ") for row in rows)
    under = list(dict.fromkeys(path[1] for path in paths if len(path) == 2 and path[0] == gpus[2]))
    kinds = [name.split()[0] for name in under]
    order = ["steps", "messages", "GPU", "ranges", "communication", "stream"]
    assert list(dict.fromkeys(kinds)) == order
    assert kinds == sorted(kinds, key=order.index)


@pytest.mark.few(1)
@pytest.mark.parametrize("detail", DETAILS)
def test_each_detail_shows_more(detail: Detail, importer: Importer, tmp_path: Path) -> None:
    trace = tmp_path / "run.pftrace"
    nsys_pp.merge([PIPELINE], trace, detail=detail)
    slices = slices_by_track(importer, trace)
    kinds = {path.split("/")[-1].split()[0] for path in slices["path"] if "/" in path}
    assert kinds == {
        "jobs": set(),
        "ranges": {"ranges", "communication"},
        "kernels": {"ranges", "communication", "stream"},
        "cpu": {"ranges", "communication", "stream", "NVTX", "CUDA", "marks"},
    }[detail] | {"steps", "jobs", "messages"}
