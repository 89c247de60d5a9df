"""Sums of calls, operations, collectives and items by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.aggregates.items import sum_calls, sum_collectives, sum_copy_sizes, sum_items, sum_ops
from nsys_pp.aggregates.times import step_on_device, step_on_host
from nsys_pp.frames.aggregates import (
    COPY_SIZES,
    DISTRIBUTION,
    ITEM_AGGREGATES,
    NAMED_OPERATORS,
)
from nsys_pp.frames.report import (
    API_CALLS,
    GPU_OPS,
    NCCL_CALLS,
    OP_DETAILS,
    OS_CALLS,
    RANGES,
    REQUESTS,
    OpDetails,
)
from nsys_pp.frames.training import JOB_KINDS, JOBS, STEPS
from nsys_pp.projection.launches import match_launches
from nsys_pp.projection.ranges import project_ranges
from tests.aggregates.small_reports import Row, fill, op, step
from tests.arrays.test_launch_calls import expect_launch_calls
from tests.projection.definition import Frames, frames


def row(process: int, start: int, end: int, name: str | None) -> dict[str, object]:
    return {"process_key": process, "thread_key": process, "start_ns": start, "end_ns": end, "name": name}


API = fill(
    API_CALLS, [row(1, 0, 9, "launch"), row(1, 9, 10, "launch"), row(1, 10, 12, "launch"), row(2, 0, 4, None)]
)


OS = fill(OS_CALLS, [row(1, 3, 8, "open"), row(1, 12, 14, "launch")])


def test_calls_count_by_name_api_process_and_the_step_in_which_they_start() -> None:
    found = sum_calls(API, OS, fill(STEPS, [step((1, 0), 5, (100, 200), (9, 12))]))
    assert found.select("process_key", "step", "api", "name", "values").rows() == [
        (1, None, "cuda", "launch", [9]),
        (1, 5, "cuda", "launch", [1, 2]),
        (2, None, "cuda", None, [4]),
        (1, None, "os", "open", [5]),
        (1, None, "os", "launch", [2]),
    ]


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


NO_STEPS = STEPS.to_frame()


@pytest.mark.parametrize(
    ("ops", "details", "steps", "expected"),
    [
        pytest.param(
            OPS,
            DETAILS,
            NO_STEPS,
            [
                (0, None, "kernel", "gemm<float>(int)", "gemm", False, [10, 20]),
                (0, None, "kernel", "gemm<half>(int)", "gemm", False, [1]),
                (1, None, "kernel", "gemm", "gemm", False, [4]),
                (0, None, "kernel", "ncclSend", "ncclSend", True, [5]),
                (0, None, "memcpy", "Memcpy HtoD", "Memcpy HtoD", False, [2, 4]),
                (0, None, "memset", "Memset", "Memset", False, [1]),
                (0, None, "graph", "CUDA graph 7", "CUDA graph 7", False, [20]),
            ],
            id="by all of the name where that is known",
        ),
        pytest.param(
            OPS[:4],
            OpDetails(),
            NO_STEPS,
            [
                (0, None, "kernel", "gemm", "gemm", False, [1, 10, 20]),
                (1, None, "kernel", "gemm", "gemm", False, [4]),
            ],
            id="without details",
        ),
        pytest.param(
            OPS[1:4],
            DETAILS,
            STEP,
            [
                (0, 4, "kernel", "gemm<float>(int)", "gemm", False, [20]),
                (0, 4, "kernel", "gemm<half>(int)", "gemm", False, [1]),
                (1, None, "kernel", "gemm", "gemm", False, [4]),
            ],
            id="in the step in which they start, with the details of their ids",
        ),
    ],
)
def test_operations_count_by_device_step_and_name(
    ops: pl.DataFrame, details: OpDetails, steps: pl.DataFrame, expected: list[tuple[object, ...]]
) -> None:
    columns = ("device_id", "step", "kind", "name", "base_name", "is_communication", "values")
    assert sum_ops(ops, details, steps).select(columns).rows() == expected


def test_sizes_are_of_what_says_its_size() -> None:
    found = sum_copy_sizes(OPS, DETAILS, STEP).select("step", "kind", "name", "count", "total", "values")
    assert found.rows() == [
        *((4, "memcpy", "Memcpy HtoD", 1, 100, [100]), (None, "memcpy", "Memcpy HtoD", 1, 50, [50])),
    ]
    assert sum_copy_sizes(OPS, OpDetails(), NO_STEPS).equals(COPY_SIZES.to_frame())


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
        ("ncclDevKernel_Generic", None),
        ("nvshmem_barrier", None),
    ],
)
def test_without_requests_the_name_of_the_kernel_tells_what_it_does(kernel: str, call: str | None) -> None:
    assert sums_of(ops(kernel)) == [(call, None, None, 1, 1)]


def test_only_kernels_of_communication_count_in_the_step_in_which_they_start() -> None:
    gpu_ops = ops("ncclKernel_AllReduce", "ncclKernel_AllReduce", "gemm", "Memcpy PtoP").with_columns(
        is_communication=pl.Series([True, True, False, True]),
        kind=pl.Series(["kernel", "kernel", "kernel", "memcpy"], dtype=GPU_OPS["kind"]),
    )
    steps = fill(STEPS, [step((1, 0), 3, (10, 20))])
    found = sum_collectives(gpu_ops, REQUESTS.to_frame(), NCCL_CALLS.to_frame(), steps)
    assert found.select("step", "count", "total").rows() == [(None, 1, 1), (3, 1, 2)]


Instance = tuple[Row, int, int | None]  # what it is, value, calls


KEYS = [column for column in ITEM_AGGREGATES if column not in (*DISTRIBUTION, "call_count")]


STEP_ROWS = [
    step((0, 0), 3, (-100, 0), (-100, -10)),
    step((0, 0), 4, (0, 60), (-10, 50)),
    step((0, 1), 3, (-90, 10), (-100, -10)),
    step((1, 0), 8, (5, 30), (0, 20)),
]


checked = settings(deadline=None, max_examples=40)


def sums_of_items(
    report: Frames,
    *,
    operators: pl.DataFrame | None = None,
    jobs: pl.DataFrame | None = None,
    steps: pl.DataFrame | None = None,
    **options: Any,
) -> pl.DataFrame:
    ranges, api_calls, gpu_ops = report
    launches = match_launches(api_calls, gpu_ops)
    return sum_items(
        ranges=ranges,
        projections=project_ranges(ranges, api_calls, gpu_ops, launches=launches),
        operators=NAMED_OPERATORS.to_frame() if operators is None else operators,
        jobs=JOBS.to_frame() if jobs is None else jobs,
        gpu_ops=gpu_ops,
        api_calls=api_calls,
        launches=launches,
        steps=fill(STEPS, STEP_ROWS) if steps is None else steps,
        **options,
    )


def tell(sums: pl.DataFrame) -> dict[tuple[object, ...], tuple[list[int], int | None]]:
    """Keys -> all values, and the counts."""
    found = {}
    for row in sums.iter_rows(named=True):
        values = np.repeat(row["values"], row["value_counts"]).tolist()
        key = tuple(row[column] for column in KEYS)
        assert key not in found
        assert (row["count"], row["total"]) == (len(values), sum(values))
        found[key] = (values, row["call_count"])
    return found


def gather(
    instances: list[Instance],
) -> dict[tuple[object, ...], tuple[list[int], int | None]]:
    """The same of instances."""
    groups: dict[tuple[object, ...], list[Instance]] = defaultdict(list)
    for one in instances:
        groups[tuple(one[0].get(column) for column in KEYS)].append(one)
    return {
        key: (
            sorted(value for _, value, _ in rows),
            sum(calls for *_, calls in rows if calls)
            if any(calls is not None for *_, calls in rows)
            else None,
        )
        for key, rows in groups.items()
    }


def with_steps(frame: pl.DataFrame, *, on_device: bool) -> list[Row]:
    look_up = step_on_device if on_device else step_on_host
    return list(frame.with_columns(look_up(frame, fill(STEPS, STEP_ROWS))).iter_rows(named=True))


@checked
@given(frames())
def test_ranges_count_by_style_domain_and_name(report: Frames) -> None:
    ranges, api_calls, gpu_ops = report = (report[0].sort("range_id"), *report[1:])
    instances: list[Instance] = []
    by_id = {}
    for row in with_steps(ranges, on_device=False):
        what = {key: row[key] for key in ("process_key", "step", "domain", "name")}
        by_id[row["range_id"]] = what | {"item": "range", "style": row["kind"]}
        host = by_id[row["range_id"]] | {"measure": "host"}
        instances.append((host, row["end_ns"] - row["start_ns"], None))
    for row in project_ranges(ranges, api_calls, gpu_ops).iter_rows(named=True):
        what = by_id[row["range_id"]] | {"device_id": row["device_id"]}
        instances.append(
            (what | {"measure": "span"}, row["gpu_end_ns"] - row["gpu_start_ns"], row["call_count"])
        )
        instances.append((what | {"measure": "gpu"}, row["total_ns"], row["call_count"]))

    assert tell(sums_of_items(report).filter(item="range")) == gather(instances)


def contains(outer: Row, inner: Row) -> bool:
    """As the projection has it: of equal ranges the earlier is the outer one."""
    spans = [(row["start_ns"], row["end_ns"]) for row in (outer, inner)]
    return bool(
        outer is not inner
        and outer["thread_key"] == inner["thread_key"]
        and outer["start_ns"] <= inner["start_ns"]
        and outer["end_ns"] >= inner["end_ns"]
        and (spans[0] != spans[1] or outer.get("range_id", -1) < inner.get("range_id", 0))
    )


def around(row: Row, ranges: list[Row]) -> Row | None:
    return max((one for one in ranges if contains(one, row)), key=lambda one: one["start_ns"], default=None)


def expect_operators(report: Frames, names: dict[int, str | None]) -> list[Instance]:
    ranges, api_calls, gpu_ops = report
    known = [
        row | {"operator": names[row["range_id"]]}
        for row in with_steps(ranges, on_device=False)
        if names.get(row["range_id"]) is not None and row["end_thread_key"] is None
    ]
    outer = [row for row in known if not any(contains(other, row) for other in known)]
    ids = {row["range_id"] for row in outer}
    inner = [
        row
        for row in known
        if row["range_id"] not in ids
        and all(other["range_id"] in ids for other in known if contains(other, row))
    ]
    for row in outer:
        row["what"] = {"name": row["operator"], "inner": None}
    for row in inner:
        parent = around(row, outer)
        assert parent is not None
        row["what"] = {"name": parent["operator"], "inner": row["operator"]}
    calls, ops = list(api_calls.iter_rows(named=True)), with_steps(gpu_ops, on_device=True)
    instances: list[Instance] = []
    launched: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    launch_calls = expect_launch_calls(gpu_ops, api_calls, match_launches(api_calls, gpu_ops))
    for op_id, call_row in launch_calls.items():
        one, duration = ops[op_id], ops[op_id]["end_ns"] - ops[op_id]["start_ns"]
        call = {key: calls[call_row][key] for key in ("thread_key", "start_ns", "end_ns")} | {
            "range_id": 10**9
        }
        levels = [around(call, level) for level in (outer, inner)]
        if levels[0] is None:
            continue
        for level in filter(None, levels):
            launched[level["range_id"], one["device_id"]].append((duration, call_row))
        kernel = {key: one[key] for key in ("process_key", "device_id", "step")} | {
            "name": levels[0]["operator"],
            "inner": levels[1] and levels[1]["operator"],
            "kernel": one["name"],
        }
        instances.append((kernel | {"item": "operator", "measure": "gpu"}, duration, None))
    for row in (*outer, *inner):
        what = row["what"] | {"item": "operator", "process_key": row["process_key"], "step": row["step"]}
        instances.append((what | {"measure": "host"}, row["end_ns"] - row["start_ns"], None))
        for (range_id, device_id), rows in launched.items():
            if range_id == row["range_id"]:
                on_device = what | {"measure": "gpu", "device_id": device_id}
                total, call_rows = sum(row[0] for row in rows), {row[1] for row in rows}
                instances.append((on_device, total, len(call_rows)))
    return instances


@checked
@given(
    frames(),
    st.booleans(),
    st.lists(st.sampled_from(["matmul", "add", "linear", None]), min_size=25, max_size=25),
)
def test_operators_count_with_what_is_right_inside_and_what_they_launched(
    report: Frames, has_twins: bool, names: list[str | None]
) -> None:
    """With twins, two calls of different threads and times launch one operation."""
    calls = report[1].with_columns(pl.col("correlation_id") // 2) if has_twins else report[1]
    report = (report[0].sort("range_id"), calls, report[2])
    ids = report[0]["range_id"].to_list()
    rows = [{"range_id": at, "name": name} for at, name in zip(ids, names, strict=False)]

    found = sums_of_items(report, operators=fill(NAMED_OPERATORS, rows)).filter(item="operator")

    assert tell(found) == gather(expect_operators(report, dict(zip(ids, names, strict=False))))


@st.composite
def job_rows(draw: st.DrawFn) -> list[Row]:
    """Jobs of which each lies in an earlier one or in none, on up to two devices."""
    rows: list[Row] = []
    for at in range(draw(st.integers(0, 8))):
        start = draw(st.integers(0, 50))
        job = {
            "process_key": 0,
            "range_id": 10 * at,
            "outer_id": draw(st.none() | st.sampled_from([10 * one for one in range(at)])) if at else None,
            "kind": draw(st.sampled_from(JOB_KINDS[:3])),
            "host_start_ns": start,
            "host_end_ns": start + draw(st.integers(0, 9)),
        }
        devices: list[int | None] = draw(st.sampled_from([[None], [0], [0, 1]]))
        for device in devices:
            ran = {"start_ns": start + 5, "end_ns": start + 25, "total_ns": start + at}
            told = draw(st.sampled_from([None, 3, 4]))
            rows.append(job | {"device_id": device, "step": told} | (ran if device is not None else {}))
    return rows


@checked
@given(job_rows())
def test_phases_are_jobs_without_one_of_their_kind_around_them(rows: list[Row]) -> None:
    by_id = {row["range_id"]: row for row in rows}
    instances: list[Instance] = []
    counted = set()
    for row in rows:
        above = by_id.get(row["outer_id"])
        names = ["jobs"] if row["outer_id"] is None else []
        while above is not None and above["kind"] != row["kind"]:
            above = by_id.get(above["outer_id"])
        names += [row["kind"]] if above is None else []
        for name in names:
            what = {"item": "phase", "process_key": 0, "step": row["step"], "name": name}
            if (row["range_id"], name) not in counted:
                counted.add((row["range_id"], name))
                host = what | {"measure": "host"}
                instances.append((host, row["host_end_ns"] - row["host_start_ns"], None))
            if row["device_id"] is not None:
                what["device_id"] = row["device_id"]
                instances.append((what | {"measure": "gpu"}, row["total_ns"], None))
    nothing = (RANGES.to_frame(), API_CALLS.to_frame(), GPU_OPS.to_frame())

    assert tell(sums_of_items(nothing, jobs=fill(JOBS, rows), steps=STEPS.to_frame())) == gather(instances)


def test_steps_are_phases_with_the_operations_that_began_in_them() -> None:
    spans = [(1, 4), (9, 12), (10, 15), (25, 30)]
    ops = fill(GPU_OPS, (op((1, 0), span) | {"op_id": row, "name": "k"} for row, span in enumerate(spans)))
    steps = fill(
        STEPS,
        [
            step((1, 0), 7, (0, 10), (-5, 6)),
            step((1, 0), 8, (10, 20), (6, 11)),
            step((1, 1), 8, (12, 21), (6, 11)),
            step((2, 0), 9, (0, 5)),
        ],
    )

    found = sums_of_items((RANGES.to_frame(), API_CALLS.to_frame(), ops), steps=steps)

    assert set(found["name"]) == {"step"}
    assert set(found.select(("measure", "process_key", "device_id", "step", "count", "total")).rows()) == {
        *(("host", 1, None, 7, 1, 11), ("host", 1, None, 8, 1, 5)),
        *(("gpu", 1, 0, 7, 1, 6), ("gpu", 1, 0, 8, 1, 5), ("gpu", 1, 1, 8, 1, 0)),
        ("gpu", 2, 0, 9, 1, 0),
    }


@pytest.mark.parametrize(
    ("most_names", "names"), [(3, ["conv2d", "step 11", "step 12"]), (2, ["conv2d", "step #"])]
)
def test_digits_are_folded_where_there_are_too_many_names(most_names: int, names: list[str]) -> None:
    told = ["step 11", "step 12", None, "conv2d", "step 12"]
    ranges = fill(
        RANGES,
        (
            {
                "range_id": at,
                "kind": "push_pop",
                "process_key": 0,
                "thread_key": 1,
                "start_ns": 0,
                "end_ns": 9,
                "name": name,
            }
            for at, name in enumerate(told)
        ),
    )

    found = sums_of_items(
        (ranges, API_CALLS.to_frame(), GPU_OPS.to_frame()), steps=STEPS.to_frame(), most_names=most_names
    )

    assert found["name"].cast(pl.String).sort().to_list() == [None, *names]
    assert found["count"].sum() == len(told)
