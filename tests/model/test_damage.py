"""Events that end before they start."""

from __future__ import annotations

from pathlib import Path

import pytest

import nsys_pp
from fixtures.recording.export import write_report
from nsys_pp.model import build_report
from nsys_pp.read import read_report


def test_reversed_events_are_left_out_and_counted(tmp_path: Path) -> None:
    report = write_report(
        tmp_path / "report.sqlite",
        ranges=[{"name": "good", "start": 0, "end": 100}, {"name": "bad", "start": 50, "end": 40}],
        api_calls=[{"start": 10, "end": 20}, {"start": 30, "end": 25}],
        kernels=[
            {"name": "gemm", "start": 30, "end": 50, "correlation": 1},
            {"name": "bad", "start": 90, "end": 60, "correlation": 1},
        ],
        os_calls=[{"start": 10, "end": 20}, {"start": 30, "end": 25}],
    )
    with pytest.warns(UserWarning, match="left out 1 .* that end before they start") as warned:
        built = build_report(read_report(report))
    assert {str(one.message).split("out 1 ")[1].split(" that")[0] for one in warned} == {
        "NVTX ranges",
        "CUDA calls",
        "kernels",
        "calls of the operating system",
    }
    assert built.ranges["name"].to_list() == ["good"]
    assert built.gpu_ops["name"].to_list() == ["gemm"]
    assert len(built.op_details.row) == built.gpu_ops.height == built.api_calls.height == 1
    assert built.os_calls.select("start_ns", "end_ns").rows() == [(10, 20)]


def test_a_trace_of_a_damaged_report_is_written(tmp_path: Path) -> None:
    report = write_report(
        tmp_path / "report.sqlite",
        ranges=[{"start": 0, "end": 100}],
        api_calls=[{"start": 10, "end": 20}],
        kernels=[{"start": 30, "end": 50, "correlation": 1}, {"start": 90, "end": 60}],
    )
    with pytest.warns(UserWarning, match="left out 1 kernels"):
        merged = nsys_pp.merge([report], tmp_path / "run.pftrace")
    assert merged.slices == 2
