"""Which rows a report gets, in which order, and what stands on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from fixtures.recording.export import write_report
from nsys_pp.frames.conform import conform_part
from nsys_pp.frames.part import PartOptions
from nsys_pp.frames.report import (
    API_CALLS,
    COUNTERS,
    GPU_OPS,
    OP_DETAILS,
    PROJECTIONS,
    RANGES,
    OpDetails,
    Report,
)
from nsys_pp.frames.training import JOB_RANGES, JOBS
from nsys_pp.model import build_report
from nsys_pp.options import DETAILS, Detail
from nsys_pp.output.trace.drawing import (
    Drawing,
    MarkSubtrack,
    SliceSubtrack,
    arrange,
    index_tracks,
    subtracks_by_track,
)
from nsys_pp.output.trace.tracks import (
    api_call_slices,
    cpu_range_slices,
    operation_slices,
    range_slices,
)
from nsys_pp.read import read_report
from nsys_pp.run.report import draw as draw_as_part
from nsys_pp.run.report import project
from nsys_pp.run.view import Window
from nsys_pp.training.jobs import list_job_ranges


def read(path: Path) -> Report:
    return build_report(read_report(path))


def draw(report: Report, *, detail: Detail = "cpu", **asked: Any) -> Drawing:
    """The drawing of a report."""
    window = Window(start_ns=asked.pop("start_ns", None), end_ns=asked.pop("end_ns", None))
    return draw_as_part(
        report, project(report, PartOptions()), PartOptions(detail=detail, **asked), window=window
    )


def rows(drawing: Drawing, below: str = "") -> list[str]:
    """Paths of the rows that are drawn, in order; or their names below one of them."""
    nodes = arrange(index_tracks(drawing), subtracks_by_track(drawing))
    paths = ["/".join(node.track.path) for node in nodes]
    if below:
        return [path[len(below) + 1 :] for path in paths if path.startswith(below + "/")]
    return [path for path in paths if path and "/" not in path]


def names(drawing: Drawing, path: str) -> list[str]:
    """What stands on a row, subtrack by subtrack."""
    subtracks = subtracks_by_track(drawing)[tuple(path.split("/"))]
    return [
        name
        for subtrack in subtracks
        for name in (
            subtrack.slices
            if isinstance(subtrack, SliceSubtrack)
            else subtrack.marks
            if isinstance(subtrack, MarkSubtrack)
            else pl.DataFrame({"name": []})
        )["name"]
    ]


def launched(*threads: int, **fields: Any) -> dict[str, Any]:
    """A range, a call and a kernel for each thread, one after the other."""
    at = [(1000 * row, tid) for row, tid in enumerate(threads)]
    return {
        "ranges": [
            {"start": start, "end": start + 100, "name": f"of {tid}", "tid": tid} for start, tid in at
        ],
        "api_calls": [{"start": start + 10, "end": start + 20, "tid": tid} for start, tid in at],
        "kernels": [
            {"start": start + 300, "end": start + 400, "correlation": row + 1, **fields}
            for row, (start, tid) in enumerate(at)
        ],
    }


def test_each_detail_has_its_rows(tmp_path: Path) -> None:
    recorded = launched(1000)
    recorded["kernels"][0]["name"] = "ncclDevKernel_SendRecv"
    report = read(write_report(tmp_path / "x.sqlite", **recorded, marks=[{"time": 5, "name": "here"}]))
    expected: dict[Detail, list[str]] = {
        "jobs": ["ranges"],
        "ranges": ["GPU busy", "ranges", "communication"],
        "kernels": ["GPU busy", "ranges", "communication", "stream 7 (default)"],
        "cpu": ["GPU busy", "ranges", "communication", "stream 7 (default)"],
    }
    for detail in DETAILS:
        drawing = draw(report, detail=detail)
        assert rows(drawing, "GPU 0") == expected[detail]
        assert rows(drawing) == ["GPU 0", "CPU: python 1000"][: 2 if detail == "cpu" else 1]
    assert rows(drawing, "CPU: python 1000") == [
        "NVTX thread 1000",
        "marks thread 1000",
        "CUDA API thread 1000",
    ]
    assert names(drawing, "GPU 0/ranges") == ["of 1000"]
    assert names(drawing, "GPU 0/communication") == ["ncclDevKernel_SendRecv"]
    assert names(drawing, "CPU: python 1000/marks thread 1000") == ["here"]


def test_what_is_not_there_has_no_row(tmp_path: Path) -> None:
    recorded = launched(1000)
    report = read(write_report(tmp_path / "x.sqlite", kernels=recorded["kernels"]))
    assert rows(draw(report), "GPU 0") == ["GPU busy", "stream 7 (default)"]
    report = read(write_report(tmp_path / "y.sqlite", ranges=recorded["ranges"]))
    assert rows(draw(report)) == ["CPU: python 1000"]
    assert rows(draw(report, detail="kernels")) == []


def test_jobs_are_the_outer_levels_of_ranges(tmp_path: Path) -> None:
    report = read(
        write_report(
            tmp_path / "x.sqlite",
            ranges=[{"start": level, "end": 100 - level, "name": f"level {level}"} for level in range(6)],
            api_calls=[{"start": 20, "end": 30}],
            kernels=[{"start": 40, "end": 50, "correlation": 1}],
        )
    )
    assert names(draw(report, detail="jobs"), "GPU 0/ranges") == ["level 0", "level 1", "level 2"]
    assert len(names(draw(report, detail="ranges"), "GPU 0/ranges")) == 6


def test_threads_have_rows_of_their_own_the_busiest_first(tmp_path: Path) -> None:
    threads = [{"tid": 1002, "name": "pt_autograd_0"}]
    report = read(write_report(tmp_path / "x.sqlite", **launched(1001, 1002, 1002), threads=threads))
    drawing = draw(report)
    assert rows(drawing, "GPU 0")[1:3] == ["ranges of pt_autograd_0 1002", "ranges of thread 1001"]
    assert names(drawing, "GPU 0/ranges of thread 1001") == ["of 1001"]
    cpu = rows(drawing, "CPU: python 1000")
    assert cpu == [
        f"{kind} {name}" for name in ("thread 1001", "pt_autograd_0 1002") for kind in ("NVTX", "CUDA API")
    ]


def test_streams_are_told_apart(tmp_path: Path) -> None:
    """By the least that does: number, name, context, process."""

    def streams(*kernels: dict[str, Any], **more: Any) -> list[str]:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite"
        report = read(write_report(path, kernels=[{"start": 0, "end": 9, **one} for one in kernels], **more))
        return [row for row in rows(draw(report), "GPU 0") if row.startswith("stream")]

    assert streams({"stream": 10}, {"stream": 9}) == ["stream 9", "stream 10"]
    named = [{"stream": 9, "name": "copies"}]
    assert streams({"stream": 9}, {"stream": 7}, streams=named) == ["stream 7 (default)", "stream 9 copies"]
    contexts = streams({"stream": 9, "context": 1}, {"stream": 9, "context": 4})
    assert contexts == ["stream 9, context 1", "stream 9, context 4"]
    shared = [{"id": 0, "pid": pid, "device": 0, "bus": "0000:01:00.0", "uuid": "u"} for pid in (1, 2)]
    processes = streams({"stream": 9, "pid": 1}, {"stream": 9, "pid": 2}, gpus=shared)
    assert processes == ["stream 9, pid 1", "stream 9, pid 2"]


def test_gpus_stand_in_order_and_above_all_cpus(tmp_path: Path) -> None:
    """Also the sixteen of one machine."""
    count = 16
    gpus = [
        {"id": number, "bus": f"0000:{number:02x}:00.0", "uuid": f"{number:032x}"} for number in range(count)
    ]
    recorded = launched(*[1000] * count)
    for number, kernel in enumerate(recorded["kernels"]):
        kernel["device"] = number
    report = read(write_report(tmp_path / "x.sqlite", gpus=gpus, **recorded))
    drawing = draw(report)
    assert rows(drawing) == [*(f"GPU {number}" for number in range(count)), "CPU: python 1000"]


def test_a_window_is_on_the_clock_of_the_report(tmp_path: Path) -> None:
    """Operations at 300 to 400, 1,300 to 1,400 and 2,300 to 2,400 ns, ranges 300 ns before."""
    report = read(
        write_report(tmp_path / "x.sqlite", **launched(1, 1, 1), marks=[{"time": t} for t in (5, 1300)])
    )

    def drawn(start: int | None, end: int | None) -> tuple[int, ...]:
        drawing = draw(report, start_ns=start, end_ns=end)
        parts = {subtrack.track[-1]: subtrack for subtrack in drawing.subtracks}
        slices = [
            parts.get(name) for name in ("stream 7 (default)", "ranges", "NVTX thread 1", "CUDA API thread 1")
        ]
        return tuple(len(part.slices) if isinstance(part, SliceSubtrack) else 0 for part in slices)

    assert drawn(None, None) == (3, 3, 3, 3)
    assert drawn(1300, 1301) == (1, 1, 0, 0)
    assert drawn(1400, None) == (2, 2, 1, 1)
    assert drawn(1401, None) == (1, 1, 1, 1)
    assert drawn(None, 1300) == (1, 1, 2, 2)
    assert drawn(None, 1301) == (2, 2, 2, 2)
    assert drawn(2000, 2010) == (0, 0, 1, 0)


def test_recorded_counters_follow_the_busy_time_of_their_gpu_and_head_their_process(tmp_path: Path) -> None:
    report = read(write_report(tmp_path / "x.sqlite", **launched(1)))
    process = report.processes["process_key"][0]
    samples = [
        (process, 0, "power", "W", 300, 250.0),
        (process, None, "threads", "count", 0, 3.0),
    ]
    counters = pl.DataFrame(samples, schema=COUNTERS, orient="row")
    drawing = draw(replace(report, counters=counters))
    assert rows(drawing, below="GPU 0")[:2] == ["GPU busy", "power"]
    assert rows(drawing, below=rows(drawing)[1])[0] == "threads"
    assert {track.name: track.counter_unit for track in drawing.tracks if track.counter_unit} == {
        "GPU busy": "%",
        "power": "W",
        "threads": "count",
    }


NO_JOBS = JOB_RANGES.to_frame()


NO_FLOW = pl.lit(None, dtype=pl.UInt64).alias("flow_id")


def projections(*rows: dict[str, Any]) -> pl.DataFrame:
    given = {
        "thread_key": 1,
        "gpu_start_ns": 0,
        "gpu_end_ns": 10,
        "busy_ns": 5,
        "scope": "thread",
        "is_open": False,
    }
    return pl.DataFrame([{**given, **row} for row in rows], schema=PROJECTIONS)


def operations(*rows: dict[str, Any]) -> pl.DataFrame:
    given = {"kind": "kernel", "start_ns": 0, "end_ns": 10, "name": "gemm", "is_communication": False}
    numbered = [{**given, "op_id": number, **row} for number, row in enumerate(rows)]
    return pl.DataFrame(numbered, schema=GPU_OPS).with_columns(NO_FLOW)


def test_a_projected_range_tells_what_it_is() -> None:
    on_cpu = {"range_id": 7, "domain": "NCCL", "name": "send", "start_ns": 100, "end_ns": 130}
    on_gpu = {"gpu_start_ns": 200, "gpu_end_ns": 203, "busy_ns": 1, "first_op": "a", "last_op": "b"}
    how = {"call_count": 2, "op_count": 3, "scope": "process", "is_open": True}
    drawn = {"start_ns": 200, "end_ns": 203, "parent": -1, "name": "send", "color": None, "flow_id": None}
    told = {"domain": "NCCL", "cpu_start_ns": 100, "cpu_duration_ns": 30, "calls": 2, "operations": 3}
    shares = {"busy_ns": 1, "busy_percent": 33.3, "first_operation": "a", "last_operation": "b"}
    rest = {"scope": "process", "is_open": True, "range_id": 7}
    slices = range_slices(projections({**on_cpu, **on_gpu, **how}), NO_JOBS)
    assert slices.to_dicts() == [{**drawn, **told, **shares, **rest}]


def test_what_there_is_not_is_not_told() -> None:
    """False would stand at every closed range; a range without length has no share."""
    row = range_slices(projections({"name": None, "gpu_end_ns": 0, "busy_ns": 0}), NO_JOBS).to_dicts()[0]
    assert (row["name"], row["is_open"], row["busy_percent"], row["domain"]) == (
        "(no name)",
        None,
        None,
        None,
    )


def test_parents_are_rows() -> None:
    """Of these rows, in whatever order; a parent that is not among them is none."""
    frame = projections(
        {"range_id": 9, "parent_id": 4},
        {"range_id": 2, "parent_id": None},
        {"range_id": 4, "parent_id": 2},
        {"range_id": 5, "parent_id": 3},
        {"range_id": 6, "parent_id": 99},
    )
    assert range_slices(frame, NO_JOBS)["parent"].to_list() == [2, -1, 1, -1, -1]
    assert range_slices(frame.clear(), NO_JOBS)["parent"].to_list() == []


@pytest.mark.parametrize(
    ("kind", "is_communication", "color"),
    [
        ("kernel", False, None),
        ("kernel", True, "communication"),
        ("memcpy", False, "copy"),
        ("memset", False, "memset"),
        ("graph", False, "graph"),
    ],
)
def test_operations_are_coloured_by_kind(kind: str, is_communication: bool, color: str | None) -> None:
    slices = operation_slices(operations({"kind": kind, "is_communication": is_communication}), OpDetails())
    assert slices["color"].to_list() == [color]


def test_details_are_found_by_operation() -> None:
    ops = operations(*({"correlation_id": 10 + row, "graph_id": row or None} for row in range(4)))
    details = pl.DataFrame(
        {"grid": [f"{row},1,1" for row in (0, 1, 3)], "size_bytes": [None, 1, 3]},
        schema_overrides=OP_DETAILS,
    )
    row = np.array([0, 1, 1, 2], dtype=np.uint32)
    slices = operation_slices(ops[[3, 1]], OpDetails(distinct=conform_part(details, OP_DETAILS), row=row))
    assert slices.select("correlation_id", "graph_id", "grid", "size_bytes").rows() == [
        (13, 3, "3,1,1", 3),
        (11, 1, "1,1,1", 1),
    ]
    assert operation_slices(ops, OpDetails()).columns[-1] == "graph_id"


def test_what_the_cpu_did() -> None:
    ranges = pl.DataFrame(
        [
            {
                "range_id": 3,
                "start_ns": -5,
                "end_ns": 9,
                "name": "f",
                "category": "c",
                "payload": "1",
                "is_open": True,
            },
            {"range_id": 4, "start_ns": 0, "end_ns": 9, "domain": "D", "is_open": False},
        ],
        schema=RANGES,
    ).with_columns(parent_id=pl.Series([None, 3], dtype=pl.Int64))
    columns = ("start_ns", "end_ns", "parent", "name", "domain", "category", "payload", "is_open", "range_id")
    assert cpu_range_slices(ranges, NO_JOBS).select(columns).rows() == [
        (-5, 9, -1, "f", None, "c", "1", True, 3),
        (0, 9, 0, "(no name)", "D", None, None, None, 4),
    ]
    calls = pl.DataFrame(
        [{"start_ns": 1, "end_ns": 2, "name": "cudaLaunch", "correlation_id": 5}], schema=API_CALLS
    )
    calls = calls.with_columns(flow_id=pl.lit(8, pl.UInt64))
    assert api_call_slices(calls).to_dicts() == [
        {"start_ns": 1, "end_ns": 2, "name": "cudaLaunch", "color": None, "flow_id": 8, "correlation_id": 5}
    ]


def test_ranges_of_jobs_have_the_color_of_their_kind() -> None:
    rows = [
        {"range_id": 9, "kind": "backward", "start_ns": 5, "device_id": 0},
        {"range_id": 9, "kind": "backward", "start_ns": 5, "device_id": 1},
        {"range_id": 3, "kind": "forward", "start_ns": 1},
        {"range_id": 4, "kind": "optimizer", "start_ns": None},
        {"range_id": None, "kind": "data", "start_ns": 1},
    ]
    jobs = list_job_ranges(pl.DataFrame(rows, schema=JOBS))
    assert jobs.rows() == [(3, "forward"), (9, "backward")]
    found = range_slices(projections(*({"range_id": number} for number in (1, 3, 4, 9, 3))), jobs)
    assert found["color"].to_list() == [None, "forward", None, "backward", "forward"]
    on_cpu = conform_part(pl.DataFrame({"range_id": [9, 2]}, schema={"range_id": pl.UInt32}), RANGES)
    assert cpu_range_slices(on_cpu.with_columns(parent_id=pl.lit(None, pl.Int64)), jobs)[
        "color"
    ].to_list() == [
        "backward",
        None,
    ]
