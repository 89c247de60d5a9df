"""Sums of kernels of communication, by what NCCL was asked for or by their names."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest

from nsys_pp.aggregates.items import sum_collectives
from nsys_pp.frames.aggregates import COLLECTIVE_AGGREGATES
from nsys_pp.frames.report import GPU_OPS, NCCL_CALLS, REQUESTS
from nsys_pp.frames.training import STEPS
from tests.aggregates.small_reports import Row, fill, op, step

COLUMNS = ("call", "size_bytes", "rank_count", "count", "total")
_NCCL = ("kernel", True)


def ops(*names: str) -> pl.DataFrame:
    """Kernels of communication that take 1, 2, 3 ... ns."""
    return fill(
        GPU_OPS,
        (
            op((1, 0), (10 * at, 11 * at + 1), _NCCL) | {"op_id": at, "name": name}
            for at, name in enumerate(names)
        ),
    )


def request(op_id: int, call: str, size: int | None = None, communicator: int | None = None) -> Row:
    return {"op_id": op_id, "call": call, "size_bytes": size, "communicator": communicator, "start_ns": 0}


def sums_of(
    gpu_ops: pl.DataFrame, requests: Sequence[Row] = (), sizes: Sequence[tuple[int, int | None]] = ()
) -> list[tuple[object, ...]]:
    calls = fill(
        NCCL_CALLS,
        ({"range_id": at, "communicator": one, "rank_count": size} for at, (one, size) in enumerate(sizes)),
    )
    return sum_collectives(gpu_ops, fill(REQUESTS, requests), calls, STEPS.to_frame()).select(COLUMNS).rows()


def test_requests_tell_call_size_and_communicator() -> None:
    requests = [
        request(0, "AllReduce", 64, 7),
        request(1, "AllReduce", 64, 7),
        request(2, "AllReduce", 64, 9),
    ]
    sizes = [(7, None), (7, 4), (7, 4), (8, 2)]
    assert sums_of(ops("ncclKernel", "ncclKernel", "ncclKernel"), requests, sizes) == [
        ("AllReduce", 64, 4, 2, 3),
        ("AllReduce", 64, None, 1, 3),
    ]


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([request(0, "AllGather", 10, 7), request(0, "AllGather", 20, 7)], ("AllGather", 30, 4)),
        ([request(0, "Send", 10, 7), request(0, "Recv", 20, 7)], ("SendRecv", 30, 4)),
        ([request(0, "Send", 10, 7), request(0, "Recv", None, 7)], ("SendRecv", None, 4)),
        (
            [request(0, "ReduceScatter", 1, 7), request(0, "AllGather", 2, 8)],
            ("AllGather+ReduceScatter", 3, None),
        ),
        ([request(0, "Send", 1, 7), request(0, "Send", 2, 6)], ("Send", 3, None)),
    ],
)
def test_a_group_is_one_kernel_with_the_bytes_of_all_requests(
    requests: list[Row], expected: tuple[object, ...]
) -> None:
    assert sums_of(ops("ncclKernel"), requests, [(7, 4), (8, 2)]) == [(*expected, 1, 1)]


@pytest.mark.parametrize(
    ("kernel", "call"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "AllReduce"),
        ("ncclKernel_AllReduce_RING_LL_Sum_half", "AllReduce"),
        ("ncclAllReduceRingLLKernel_sum_f16", "AllReduce"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "ReduceScatter"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "Reduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t", "AllGather"),
        ("ncclDevKernel_Broadcast_RING_LL", "Broadcast"),
        ("ncclSymDevKernel_AllGather_LL", "AllGather"),
        ("ncclDevKernel_SendRecv", "SendRecv"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "SendRecv"),
    ],
)
def test_without_requests_the_name_of_the_kernel_tells_what_it_does(kernel: str, call: str) -> None:
    assert sums_of(ops(kernel)) == [(call, None, None, 1, 1)]


def test_where_nothing_tells_what_a_kernel_does_it_still_counts() -> None:
    assert sums_of(ops("ncclDevKernel_Generic", "nvshmem_barrier")) == [(None, None, None, 2, 3)]


def test_only_kernels_of_communication_count_in_the_step_in_which_they_start() -> None:
    gpu_ops = ops("ncclKernel_AllReduce", "ncclKernel_AllReduce", "gemm", "Memcpy PtoP").with_columns(
        is_communication=pl.Series([True, True, False, True]),
        kind=pl.Series(["kernel", "kernel", "kernel", "memcpy"], dtype=GPU_OPS["kind"]),
    )
    steps = fill(STEPS, [step((1, 0), 3, (10, 20))])
    found = sum_collectives(gpu_ops, REQUESTS.to_frame(), NCCL_CALLS.to_frame(), steps)
    assert found.select("step", "count", "total").rows() == [(None, 1, 1), (3, 1, 2)]


def test_nothing_gives_nothing() -> None:
    nothing = (GPU_OPS.to_frame(), REQUESTS.to_frame(), NCCL_CALLS.to_frame(), STEPS.to_frame())
    assert sum_collectives(*nothing).equals(COLLECTIVE_AGGREGATES.to_frame())
