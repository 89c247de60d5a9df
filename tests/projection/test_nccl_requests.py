"""NCCL requests matched to the operations launched for them."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fixtures.recording.export import Session, write_report
from nsys_pp.frames.report import REQUESTS
from nsys_pp.model import build_report
from nsys_pp.projection.launches import match_launches
from nsys_pp.projection.nccl_requests import match_requests
from nsys_pp.read import read_report


def requests_of(path: Path) -> pl.DataFrame:
    report = build_report(read_report(path, need=frozenset({"ranges", "ops", "communication"})))
    return match_requests(
        ranges=report.ranges,
        api_calls=report.api_calls,
        gpu_ops=report.gpu_ops,
        launches=match_launches(report.api_calls, report.gpu_ops),
        nccl_calls=report.nccl_calls,
    )


def nccl(start: int, end: int, name: str, tid: int = 1000) -> dict[str, object]:
    return {"start": start, "end": end, "name": name, "domain": "NCCL", "tid": tid}


def test_a_group_is_every_request_since_the_last_launch_in_the_order_of_asking(tmp_path: Path) -> None:
    ranges = [
        nccl(0, 5, "ncclGroupStart"),
        nccl(10, 15, "ncclSend"),
        nccl(20, 25, "ncclRecv"),
        nccl(30, 60, "ncclGroupEnd"),
        nccl(200, 240, "ncclAllReduce"),
        nccl(0, 300, "ncclSend", tid=1001),  # a request of another thread
    ]
    calls = [{"start": at, "end": at + 10, "correlation": at} for at in (40, 210, 400)]
    kernels = [
        {"start": at + 20, "end": at + 50, "correlation": at, "name": f"ncclDevKernel_{name}"}
        for at, name in ((40, "SendRecv"), (210, "AllReduce"), (400, "SendRecv"))
    ]
    path = write_report(tmp_path / "r.sqlite", ranges=ranges, api_calls=calls, kernels=kernels)
    requests = requests_of(path)
    assert requests.schema == REQUESTS
    assert requests.select("op_id", "call", "start_ns").rows() == [
        (0, "Send", 10),
        (0, "Recv", 20),
        (1, "AllReduce", 200),
    ]


def test_computation_inside_a_request_is_no_part_of_it(tmp_path: Path) -> None:
    calls = [{"start": at, "end": at + 5, "correlation": at} for at in (10, 20)]
    kernels = [
        {"start": 50, "end": 60, "correlation": 10, "name": "gemm"},
        {"start": 60, "end": 70, "correlation": 20, "name": "ncclDevKernel_SendRecv"},
    ]
    path = write_report(
        tmp_path / "r.sqlite", ranges=[nccl(0, 40, "ncclRecv")], api_calls=calls, kernels=kernels
    )
    assert requests_of(path).select("op_id", "call").rows() == [(1, "Recv")]


def test_a_report_without_communication_has_none(tmp_path: Path) -> None:
    path = write_report(tmp_path / "r.sqlite", session=Session())
    assert requests_of(path).equals(REQUESTS.to_frame())
