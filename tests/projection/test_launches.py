"""Launches and requests of NCCL, against joins in plain loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.recording.export import write_report
from nsys_pp.arrays.search import expand_windows
from nsys_pp.frames.report import API_CALLS, GPU_OPS, LAUNCHES, REQUESTS
from nsys_pp.model import build_report
from nsys_pp.projection.launches import match_launches, match_requests
from nsys_pp.read import read_report

# Processes as nsys numbers them, and correlation ids that span 32 bits; few, so that many meet.
PROCESSES = (1 << 24, 281_492_156_579_840, -(1 << 62))


ids = st.sampled_from([0, 1, 2, 3, 2**32 - 1])


def calls(pairs: list[tuple[int, int]]) -> pl.DataFrame:
    return pl.DataFrame([{"process_key": p, "correlation_id": c} for p, c in pairs], schema=API_CALLS)


def ops(pairs: list[tuple[int, int | None]]) -> pl.DataFrame:
    numbered = [{"op_id": row, "process_key": p, "correlation_id": c} for row, (p, c) in enumerate(pairs)]
    return pl.DataFrame(numbered, schema=GPU_OPS)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(PROCESSES), ids), max_size=15),
    st.lists(st.tuples(st.sampled_from(PROCESSES), st.none() | ids), max_size=15),
)
def test_launches_are_all_pairs_of_one_process_and_id(
    given_calls: list[tuple[int, int]], given_ops: list[tuple[int, int | None]]
) -> None:
    launches = match_launches(calls(given_calls), ops(given_ops))
    assert launches.schema == LAUNCHES
    assert launches["op_id"].is_sorted()
    assert launches.rows() == [
        (op_id, row)
        for op_id, op in enumerate(given_ops)
        for row, call in enumerate(given_calls)
        if op == call
    ]


def test_one_id_of_two_processes_is_two_calls() -> None:
    assert match_launches(calls([(1, 5), (2, 5)]), ops([(2, 5), (1, 5), (3, 5)])).rows() == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("first", "second"), [([], [(1, 1)]), ([(1, 1)], []), ([], []), ([(1, 1)], [(1, None)])]
)
def test_nothing_in_nothing_out(first: list[tuple[int, int]], second: list[tuple[int, int | None]]) -> None:
    assert match_launches(calls(first), ops(second)).equals(LAUNCHES.to_frame())


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=20))
def test_windows_are_listed_one_after_the_other(windows: list[tuple[int, int]]) -> None:
    first, size = np.array(windows, dtype=np.int64).reshape(-1, 2).T
    listed = [position for start, count in windows for position in range(start, start + count)]
    assert expand_windows(first, first + size).tolist() == listed


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
