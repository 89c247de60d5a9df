"""Sums of operations on GPUs, and of bytes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from nsys_pp.aggregates.items import sum_copy_sizes, sum_ops
from nsys_pp.arrays.distributions import build_distributions, merge_distributions
from nsys_pp.frames.aggregates import COPY_SIZES, OP_AGGREGATES
from nsys_pp.frames.report import GPU_OPS, OP_DETAILS, OpDetails
from nsys_pp.frames.training import STEPS
from tests.aggregates.small_reports import fill, op, step

_COPY, _SET, _GRAPH, _SEND = ("memcpy", False), ("memset", False), ("graph", False), ("kernel", True)
OPS = fill(
    GPU_OPS,
    (
        row | {"op_id": at, "name": name}
        for at, (name, row) in enumerate(
            [
                ("gemm", op((1, 0), (0, 10))),
                ("gemm", op((1, 0), (10, 30))),
                ("gemm", op((1, 0), (30, 31))),
                ("gemm", op((1, 1), (5, 9))),
                ("ncclSend", op((1, 0), (40, 45), _SEND)),
                ("Memcpy HtoD", op((1, 0), (50, 52), _COPY)),
                ("Memcpy HtoD", op((1, 0), (52, 56), _COPY)),
                ("Memset", op((1, 0), (60, 61), _SET)),
                ("CUDA graph 7", op((1, 0), (70, 90), _GRAPH)),
            ]
        )
    ),
)
FULL_NAMES = ["gemm<float>(int)", "gemm<float>(int)", "gemm<half>(int)", None, None, None, None, None, None]
SIZES = [None, None, None, None, None, 100, 50, None, None]
DETAILS = OpDetails(
    distinct=fill(
        OP_DETAILS,
        ({"full_name": name, "size_bytes": size} for name, size in zip(FULL_NAMES, SIZES, strict=True)),
    ),
    row=np.arange(len(SIZES), dtype=np.uint32),
)
STEP = fill(STEPS, [step((1, 0), 4, (10, 52))])


def test_kernels_are_told_apart_by_all_of_their_name_where_that_is_known() -> None:
    found = sum_ops(OPS, DETAILS, STEPS.to_frame())

    columns = ("device_id", "kind", "name", "base_name", "is_communication", "values")
    assert found.select(columns).rows() == [
        (0, "kernel", "gemm<float>(int)", "gemm", False, [10, 20]),
        (0, "kernel", "gemm<half>(int)", "gemm", False, [1]),
        (1, "kernel", "gemm", "gemm", False, [4]),
        (0, "kernel", "ncclSend", "ncclSend", True, [5]),
        (0, "memcpy", "Memcpy HtoD", "Memcpy HtoD", False, [2, 4]),
        (0, "memset", "Memset", "Memset", False, [1]),
        (0, "graph", "CUDA graph 7", "CUDA graph 7", False, [20]),
    ]
    assert found["step"].null_count() == len(found)


def test_without_details_short_names_are_all_that_is_known() -> None:
    found = sum_ops(OPS, OpDetails(), STEPS.to_frame()).filter(name="gemm")
    assert found.select("device_id", "values").rows() == [(0, [1, 10, 20]), (1, [4])]
    assert sum_copy_sizes(OPS, OpDetails(), STEPS.to_frame()).equals(COPY_SIZES.to_frame())


def test_operations_are_in_the_step_in_which_they_start_on_their_device() -> None:
    found = sum_ops(OPS, DETAILS, STEP).select("device_id", "step", "name", "total").rows()

    assert found[:3] == [
        (0, None, "gemm<float>(int)", 10),
        (0, 4, "gemm<float>(int)", 20),
        (0, 4, "gemm<half>(int)", 1),
    ]
    assert found[3] == (1, None, "gemm", 4)
    assert sum_copy_sizes(OPS, DETAILS, STEP).select("step", "total").rows() == [(4, 100), (None, 50)]


def test_sizes_are_of_what_says_its_size() -> None:
    found = sum_copy_sizes(OPS, DETAILS, STEPS.to_frame())
    assert found.select("kind", "name", "count", "total", "values").rows() == [
        ("memcpy", "Memcpy HtoD", 2, 150, [50, 100])
    ]


@pytest.mark.parametrize("steps", [STEPS.to_frame(), STEP])
def test_nothing_is_lost_or_counted_twice(steps: pl.DataFrame) -> None:
    durations = OPS.with_columns(duration=pl.col("end_ns") - pl.col("start_ns"))
    whole = build_distributions(durations, ["kind"], "duration").sort("kind").drop("squares")
    found = merge_distributions(sum_ops(OPS, DETAILS, steps), ["kind"]).sort("kind").drop("squares")
    assert found.equals(whole)


def test_details_are_found_by_op_id_and_not_by_place() -> None:
    found = sum_ops(OPS[2:4], DETAILS, STEPS.to_frame())
    assert found.select("name", "total").rows() == [("gemm<half>(int)", 1), ("gemm", 4)]


def test_nothing_gives_nothing() -> None:
    nothing = (GPU_OPS.to_frame(), OpDetails(), STEPS.to_frame())
    assert sum_ops(*nothing).equals(OP_AGGREGATES.to_frame())
    assert sum_copy_sizes(*nothing).equals(COPY_SIZES.to_frame())
